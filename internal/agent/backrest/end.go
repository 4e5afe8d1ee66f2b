package backrest

import (
	"context"
	"errors"
	"time"

	"github.com/pgsteward/pgsteward/internal/backup"
)

// ErrLost is that a backup ended because the process that made it does.
var ErrLost = errors.New("the Pod that made the backup ends")

// ErrCancelled is that somebody asked for the end of a backup.
var ErrCancelled = errors.New("the backup was cancelled")

// Cancel ends the backup of that ID.
func (r *Runner) Cancel(id string, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cancel != nil && (id == "" || r.run.ID == id) {
		r.cancel(why)
	}
}

// Stop ends what is being done and waits for its end.
func (r *Runner) Stop() {
	r.Cancel("", ErrLost)
	r.mu.Lock()
	if r.endRemoval != nil {
		r.endRemoval(ErrLost)
	}
	r.mu.Unlock()
	r.wait.Wait()
}

// usedSince says whether a backup was made or removed since then. The caller holds the lock.
func (r *Runner) usedSince(then time.Time) bool {
	return r.run != nil && r.run.Ended != nil && r.run.Ended.After(then) || r.removal != nil && r.removal.Ended != nil && r.removal.Ended.After(then)
}

// listLast is what there is when a backup or a removal has ended, also one that was called off. Nobody reads it if that is because this process
// ends, which must not wait for a repository that does not answer: a server is to be stopped after that.
func (r *Runner) listLast(ctx context.Context, stanza string) (backup.Contents, error) {
	if cause := context.Cause(ctx); errors.Is(cause, ErrLost) {
		return backup.Contents{}, cause
	}
	return r.survey(context.WithoutCancel(ctx), stanza)
}
