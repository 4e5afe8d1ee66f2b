package main

import (
	"sync"
	"time"
)

// throughService is the name of the writer whose gaps count.
const throughService = "rw"

// ack is an acknowledged row. Times are since the program's start, by the monotonic clock.
type ack struct {
	writer     string
	seq        int64
	start, end time.Duration
	instance   string
	timeline   int64
	system     int64
}

// read is what the reader saw last in the table: the row of the highest number.
type read struct {
	at       time.Duration
	server   string
	seq      int64
	timeline int64
	system   int64
}

// ledger is what the present round has seen. Between rounds nothing is written.
type ledger struct {
	origin time.Time

	mu     sync.Mutex
	round  int32 // 0: none
	began  time.Duration
	moves  int   // how often the writes may move to another database system in this round, as in a major upgrade
	seq    int64 // the last number given out, never used twice
	acks   []ack
	reads  []read
	errors map[string]int // of the writer through the Service
	faults map[string]int // of the reader
	busy   int            // statements under way
}

func newLedger(origin time.Time) *ledger { return &ledger{origin: origin} }

// now is the time since the program's start.
func (l *ledger) now() time.Duration { return time.Since(l.origin) }

// wall is that time by the clock on the wall.
func (l *ledger) wall(d time.Duration) time.Time { return l.origin.Add(d) }

// begin starts a round, in which the writes may move to another database system so often.
func (l *ledger) begin(round int32, moves int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.round, l.began, l.moves = round, l.now(), moves
	l.acks, l.reads = nil, nil
	l.errors, l.faults = map[string]int{}, map[string]int{}
}

// pause ends the round; statements under way still count. It returns the round's number.
func (l *ledger) pause() int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	round := l.round
	l.round = 0
	return round
}

// next gives out a number, if there is a round; done must follow.
func (l *ledger) next() (round int32, seq int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.round == 0 {
		return 0, 0, false
	}
	l.seq++
	l.busy++
	return l.round, l.seq, true
}

// done tells how the statement of a number ended.
func (l *ledger) done(a ack, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy--
	switch {
	case err == nil:
		l.acks = append(l.acks, a)
	case a.writer == throughService:
		l.errors[kind(err)]++
	}
}

// idle says whether no statement is under way.
func (l *ledger) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.busy == 0
}

// present is the number of the round, 0 if there is none.
func (l *ledger) present() int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.round
}

// sawRow keeps what the reader saw, or its error.
func (l *ledger) sawRow(r read, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.faults[kind(err)]++
		return
	}
	l.reads = append(l.reads, r)
}

// state is what the harness looks at while a round goes on.
type state struct {
	Round     int32   `json:"round"`
	Acked     int     `json:"acked"`
	SinceLast float64 `json:"sinceLastSeconds"` // since the last row through the Service, or the round's begin
	Instance  string  `json:"instance"`         // that acknowledged it
	Timeline  int64   `json:"timeline"`
}

func (l *ledger) state() state {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := state{Round: l.round, Acked: len(l.acks), SinceLast: (l.now() - l.began).Seconds()}
	for i := len(l.acks) - 1; i >= 0; i-- {
		if a := l.acks[i]; a.writer == throughService {
			s.SinceLast, s.Instance, s.Timeline = (l.now() - a.end).Seconds(), a.instance, a.timeline
			break
		}
	}
	return s
}

// taken is a copy of what the round has.
type taken struct {
	acks           []ack
	reads          []read
	errors, faults map[string]int
	began, ended   time.Duration
	moves          int
}

func (l *ledger) take() taken {
	l.mu.Lock()
	defer l.mu.Unlock()
	return taken{acks: l.acks, reads: l.reads, errors: l.errors, faults: l.faults, began: l.began, ended: l.now(), moves: l.moves}
}
