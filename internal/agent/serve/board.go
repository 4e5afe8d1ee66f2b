package serve

import (
	"reflect"
	"sync"

	"github.com/pgsteward/pgsteward/internal/agentapi"
)

// Board keeps the agent's latest status.
type Board struct {
	mu     sync.Mutex
	status agentapi.Status
	// changed is closed, and replaced, when something other than positions has changed.
	changed chan struct{}
}

// NewBoard is a board with a first status.
func NewBoard(status agentapi.Status) *Board {
	return &Board{status: status, changed: make(chan struct{})}
}

// Set replaces the status.
func (b *Board) Set(status agentapi.Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	news := !reflect.DeepEqual(withoutPositions(b.status), withoutPositions(status))
	b.status = status
	if news {
		close(b.changed)
		b.changed = make(chan struct{})
	}
}

// Status is the latest status, and a channel that is closed when there is news.
func (b *Board) Status() (agentapi.Status, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status, b.changed
}

// withoutPositions is the status without what changes all the time.
func withoutPositions(status agentapi.Status) agentapi.Status {
	status.LSN, status.ReplayLSN, status.LagBytes, status.Slots = "", "", nil, nil
	status.Archive = status.Archive.WithoutPositions()
	return status
}
