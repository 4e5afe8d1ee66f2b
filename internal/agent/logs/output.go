package logs

import (
	"bytes"
	"io"
	"log/slog"
	"sync"
	"time"
)

// maxWaiting bounds what waits to be written, in bytes. It has room for some records of the greatest length.
const maxWaiting = 8 << 20

// Output lets nobody wait who logs: standard output blocks while the container runtime hangs, and what fences PostgreSQL must
// go on then. What does not fit is dropped; how many records were is said once writing goes on.
type Output struct {
	to io.Writer
	// limit is maxWaiting.
	limit int
	// wake says that there is something to do.
	wake chan struct{}
	done chan struct{}

	mu      sync.Mutex
	waiting bytes.Buffer
	dropped int
	closed  bool
}

// NewOutput is an output that keeps what is written until Run writes it.
func NewOutput(to io.Writer) *Output {
	return &Output{to: to, limit: maxWaiting, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// Write takes one record. It never waits for the writer behind and never fails.
func (o *Output) Write(record []byte) (int, error) {
	o.mu.Lock()
	if o.waiting.Len()+len(record) > o.limit {
		o.dropped++
	} else {
		_, _ = o.waiting.Write(record)
	}
	o.mu.Unlock()
	o.poke()
	return len(record), nil
}

func (o *Output) poke() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// Run writes until Close, and then what still waits. It is not to be called twice.
func (o *Output) Run() {
	defer close(o.done)
	log := slog.New(slog.NewJSONHandler(o.to, nil)).With("logger", "agent")
	var batch bytes.Buffer
	for range o.wake {
		o.mu.Lock()
		// The one is filled while the other is written.
		batch, o.waiting = o.waiting, batch
		dropped, closed := o.dropped, o.closed
		o.dropped = 0
		o.mu.Unlock()
		_, _ = o.to.Write(batch.Bytes()) // there is nobody left to tell
		batch.Reset()
		if dropped > 0 {
			log.Error("Dropped log records, since the output did not take them in time", "dropped", dropped)
		}
		if closed {
			return
		}
	}
}

// Close has the rest written, and waits for that no longer than the bound.
func (o *Output) Close(bound time.Duration) {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.poke()
	select {
	case <-o.done:
	case <-time.After(bound):
	}
}
