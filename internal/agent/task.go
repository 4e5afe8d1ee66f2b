package agent

import (
	"context"
	"time"
)

// task is something that takes time and runs beside the loop. A nil task is one that is done.
type task struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{}
	// err is the result; to be read when done is closed, and then only once.
	err   error
	taken bool
}

// begin runs a task and pokes the loop when it ends.
func (a *Agent) begin(ctx context.Context, name string, do func(context.Context) error) *task {
	ctx, cancel := context.WithCancel(ctx)
	t := &task{name: name, cancel: cancel, done: make(chan struct{})}
	a.run(func() {
		defer a.poke()
		defer close(t.done)
		defer cancel()
		t.err = do(ctx)
	})
	return t
}

// isDone says whether the task has ended.
func (t *task) isDone() bool {
	if t == nil {
		return true
	}
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// isSettled says whether the task has ended and its result was taken note of.
func (t *task) isSettled() bool { return t == nil || t.isDone() && t.taken }

// result is the task's error, and whether this is the first time that it is known.
func (t *task) result() (err error, isNew bool) { //nolint:revive // the error is a result here, not a failure to get one
	if t == nil || !t.isDone() || t.taken {
		return nil, false
	}
	t.taken = true
	return t.err, true
}

// stop cancels the task and waits for its end.
func (t *task) stop() {
	if t != nil {
		t.cancel()
		<-t.done
	}
}

// failures are those in a row, and what the last one said.
type failures struct {
	count   int
	message string
}

// restarts keeps when a server that ended may be started again.
type restarts struct {
	failures int
	next     time.Time
	// message says why it ended last.
	message string
	seen    time.Time
}

// failed takes note of a failure. After the first, the server is started again at once.
func (r *restarts) failed(now time.Time, message string) {
	pause := time.Duration(0)
	if r.failures > 0 {
		pause = min(restartFirst<<min(r.failures-1, 10), restartLast)
	}
	r.failures++
	r.next = now.Add(pause)
	r.message = message
}

func (r *restarts) reset() { *r = restarts{seen: r.seen} }

// clones keeps when a clone that failed may be tried again.
type clones struct {
	failures int
	next     time.Time
	message  string
	since    time.Time
	// last is when the last recovery was begun; unreachable says that it could not read the repository.
	last        time.Time
	unreachable bool
}

func (c *clones) failed(now time.Time, message string) {
	if c.failures == 0 {
		c.since = now
	}
	c.failures++
	pause := cloneFirst
	if c.failures > 10 { // a primary that is being made is there in seconds
		pause = min(cloneFirst<<min(c.failures-10, 6), cloneLast)
	}
	c.next = now.Add(pause)
	c.message = message
}
