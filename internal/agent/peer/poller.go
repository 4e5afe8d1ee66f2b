package peer

import (
	"context"
	"sync"
	"time"

	"github.com/pgsteward/pgsteward/internal/agentapi"
)

const (
	interval = time.Second
	timeout  = 2 * time.Second
	// fresh is how long an answer counts.
	fresh = 5 * time.Second
)

// Asker asks one agent for its status.
type Asker interface {
	Status(ctx context.Context, host string) (agentapi.Status, error)
}

// Poller asks members while it is wanted.
type Poller struct {
	ask func() (Asker, error)

	mu      sync.Mutex
	members []agentapi.Member
	answers map[string]answer
}

type answer struct {
	status agentapi.Status
	at     time.Time
}

// NewPoller is a poller that asks nobody yet. The asker is made for each round, since certificates change.
func NewPoller(ask func() (Asker, error)) *Poller {
	return &Poller{ask: ask, answers: map[string]answer{}}
}

// Want says whom to ask from now on; nil: nobody.
func (p *Poller) Want(members []agentapi.Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.members = members
}

// Answer is the fresh answer of a member, if there is one.
func (p *Poller) Answer(member string) (agentapi.Status, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found, ok := p.answers[member]
	if !ok || time.Since(found.at) > fresh {
		return agentapi.Status{}, false
	}
	return found.status, true
}

// Run asks until the context ends.
func (p *Poller) Run(ctx context.Context) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		p.round(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (p *Poller) round(ctx context.Context) {
	p.mu.Lock()
	members := p.members
	p.mu.Unlock()
	if len(members) == 0 {
		return
	}
	asker, err := p.ask()
	if err != nil {
		return // no certificates yet: every member stays unknown
	}
	var group sync.WaitGroup
	for _, member := range members {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			asked := time.Now()
			status, err := asker.Status(ctx, member.Host)
			if err != nil || status.Instance != member.Name {
				return
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.answers[member.Name] = answer{status: status, at: asked}
		})
	}
	group.Wait()
}
