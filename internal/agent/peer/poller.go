package peer

import (
	"context"
	"sync"
	"time"

	"github.com/pgsteward/pgsteward/internal/agentapi"
)

const (
	// interval is between two questions to a member; after eagerFor of asking it grows to patient.
	interval = 250 * time.Millisecond
	eagerFor = 20 * time.Second
	patient  = time.Second
	// timeout bounds one question.
	timeout = 2 * time.Second
)

// Asker asks one agent for its status as of now.
type Asker interface {
	Fresh(ctx context.Context, host string) (agentapi.Status, error)
}

// Poller asks members while it is wanted. It waits for no member before it asks another.
type Poller struct {
	ask   func() (Asker, error)
	clock func() time.Duration
	// heard is called after each answer.
	heard func()
	kick  chan struct{}

	mu      sync.Mutex
	members []agentapi.Member
	since   time.Time
	hurried time.Time
	asked   map[string]asked
}

// asked is what came of asking one member.
type asked struct {
	asking bool
	// at is when it was asked last, since when it was first asked without any answer until now.
	at, since time.Time
	answer    *Answer
}

// Answer is what a member said.
type Answer struct {
	Status agentapi.Status
	// Asked is when the question was sent; AskedAt as the poller's clock has it, which goes on while the machine sleeps.
	Asked   time.Time
	AskedAt time.Duration
}

// NewPoller is a poller that asks nobody yet. The asker is made for each question, since certificates change.
func NewPoller(ask func() (Asker, error), clock func() time.Duration, heard func()) *Poller {
	return &Poller{ask: ask, clock: clock, heard: heard, kick: make(chan struct{}, 1), asked: map[string]asked{}}
}

// Want says whom to ask from now on; nil: nobody, and what was answered is forgotten.
func (p *Poller) Want(members []agentapi.Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(members) == 0 {
		p.members = nil
		clear(p.asked)
		return
	}
	if len(p.members) == 0 {
		p.since = time.Now()
		p.kickNow()
	}
	p.members = members
}

// Hurry asks everybody at once, and who is being asked as soon as that has come back: only what is asked from now on counts.
func (p *Poller) Hurry() {
	p.mu.Lock()
	p.hurried = time.Now()
	p.mu.Unlock()
	p.kickNow()
}

func (p *Poller) kickNow() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// Answer is the last answer of a member, if there is one, and for how long it is being asked without any.
func (p *Poller) Answer(member string) (answer *Answer, silent time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := p.asked[member]
	if found.answer == nil && !found.since.IsZero() {
		silent = time.Since(found.since)
	}
	return found.answer, silent
}

// Run asks until the context ends.
func (p *Poller) Run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	for {
		timer := time.NewTimer(p.pause())
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-p.kick:
		case <-timer.C:
		}
		timer.Stop()
		for _, member := range p.due() {
			group.Go(func() { p.askOne(ctx, member) })
		}
	}
}

func (p *Poller) pause() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.members) > 0 && time.Since(p.since) < eagerFor {
		return interval
	}
	return patient
}

// due are the members to ask now: all that are not being asked yet.
func (p *Poller) due() (due []agentapi.Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, member := range p.members {
		found := p.asked[member.Name]
		if found.asking {
			continue
		}
		found.asking, found.at = true, now
		if found.since.IsZero() {
			found.since = now
		}
		p.asked[member.Name] = found
		due = append(due, member)
	}
	return due
}

func (p *Poller) askOne(ctx context.Context, member agentapi.Member) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	began, at := time.Now(), p.clock()
	var status agentapi.Status
	asker, err := p.ask()
	if err == nil { // else there are no certificates yet: every member stays unknown
		status, err = asker.Fresh(ctx, member.Host)
	}
	p.mu.Lock()
	found, wanted := p.asked[member.Name]
	found.asking = false
	heard := err == nil && status.Instance == member.Name
	if heard {
		found.answer = &Answer{Status: status, Asked: began, AskedAt: at}
	} else if found.answer != nil && time.Since(found.answer.Asked) > timeout {
		found.answer, found.since = nil, began
	}
	if wanted {
		p.asked[member.Name] = found
	}
	again := wanted && began.Before(p.hurried)
	p.mu.Unlock()
	if again {
		p.kickNow()
	}
	if heard && wanted {
		p.heard()
	}
}
