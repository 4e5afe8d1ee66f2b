package supervise

import (
	"context"
	"time"
)

// ImmediateBound is how long an immediate shutdown may take before everything is ended by force; killBound how long the end of that
// is waited for.
const (
	ImmediateBound = 6 * time.Second
	killBound      = time.Minute
	// hastenInterval is how often StopAndWait looks whether it takes too long.
	hastenInterval = 100 * time.Millisecond
)

// Due is the mode in which a server that is being stopped must be stopped by now, if a fast shutdown may take as long as bound: a
// fast one can wait for ever, for a consumer of WAL that is connected and confirms nothing.
func (s Snapshot) Due(now time.Time, bound time.Duration) Mode {
	since := now.Sub(s.ModeSince)
	switch {
	case s.Stopping == Fast && since > bound:
		return Immediate
	case s.Stopping == Immediate && since > ImmediateBound:
		return Kill
	}
	return s.Stopping
}

// Hasten stops a server with more force whose shutdown takes too long, whoever asked for it, and returns the mode if it did.
func (s *Server) Hasten(bound time.Duration) (harder Mode) {
	snapshot := s.Snapshot()
	mode := snapshot.Due(time.Now(), bound)
	if mode == snapshot.Stopping {
		return 0
	}
	s.Stop(mode)
	return mode
}

// StopAndWait stops the server in fast mode, in immediate mode after bound, and by force a little later. It returns when the
// server has ended or with the context.
func (s *Server) StopAndWait(ctx context.Context, bound time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, bound+ImmediateBound+killBound)
	defer cancel()
	ticker := time.NewTicker(hastenInterval)
	defer ticker.Stop()
	s.Stop(Fast)
	for done := s.Done(); ; s.Hasten(bound) {
		select {
		case <-done:
			return
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
