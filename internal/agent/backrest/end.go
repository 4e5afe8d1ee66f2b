package backrest

import (
	"errors"
	"time"
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
