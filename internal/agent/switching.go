package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/agent/generation"
	"github.com/pgsteward/pgsteward/internal/agent/lease"
	"github.com/pgsteward/pgsteward/internal/agent/supervise"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/election"
)

const (
	// closePoll is how often a switch looks whether the loop has done what it waits for, and closeBound how long it does.
	closePoll  = 5 * time.Millisecond
	closeBound = 5 * time.Second
	// switchPrepare bounds what a switch looks at before it pauses writes.
	switchPrepare = 5 * time.Minute
	// switchStopBound is when PostgreSQL must have stopped: by then the loop has hastened it, twice (hasten).
	switchStopBound = fastStopBound + 10*time.Second
	// lingerBound is how long PostgreSQL may go on when it has written its last checkpoint, and lingerPoll how often it is looked whether it has.
	lingerBound = 500 * time.Millisecond
	lingerPoll  = 25 * time.Millisecond
	// askGiven is how long it is asked whether the lease was given away, if no answer was had.
	askGiven = time.Minute
)

// switching is a move of the writes to the other generation, which runs as a task beside the loop. The loop keeps the lease, writes
// the configuration that keeps clients out, and does not start PostgreSQL again while it is to be stopped.
type switching struct {
	mu sync.Mutex
	// wanted was asked for and has not begun; request is the one that goes on.
	wanted, request *agentapi.UpgradeSwitchoverRequest
	status          *agentapi.UpgradeSwitchoverStatus
	// closed says that clients are to be kept out, inForce that this was seen to be so or not so; stopped that PostgreSQL is to stay
	// stopped, and giving that the lease is being given away.
	closed, inForce, stopped, giving bool
	// holds says that archiving is left to when this server goes on, and held that it is.
	holds, held bool
	// appliedAt is when a configuration with applied was last put in force.
	applied   bool
	appliedAt time.Time

	// task belongs to the loop.
	task *task
}

// ask takes a request, or says why not.
func (s *switching) ask(request agentapi.UpgradeSwitchoverRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wanted != nil || s.request != nil {
		return errors.New("the writes are being moved already")
	}
	s.wanted = &request
	s.status = &agentapi.UpgradeSwitchoverStatus{Target: request.Target, To: request.To, Phase: agentapi.SwitchoverPreparing, Since: time.Now()}
	return nil
}

// take is a request that has not begun; it goes on until end.
func (s *switching) take() *agentapi.UpgradeSwitchoverRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wanted == nil {
		return nil
	}
	s.request, s.wanted = s.wanted, nil
	return s.request
}

func (s *switching) active() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wanted != nil || s.request != nil
}

// isClosed says whether clients are to be kept out.
func (s *switching) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// sendsTo is the instance that clients are to be sent to, since they are kept out here; empty: they are not.
func (s *switching) sendsTo() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed || !s.inForce || s.request == nil || s.request.Offline { // who is converted first takes none for long
		return ""
	}
	return s.request.Target
}

// isStopped says whether PostgreSQL is to stay stopped, and whether the lease is being given away.
func (s *switching) isStopped() (stopped, giving bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped, s.giving
}

func (s *switching) set(change func(*switching)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// end ends the request.
func (s *switching) end(pause time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	status := *s.status
	status.Ended, status.PauseMillis, status.Phase = &now, pause.Milliseconds(), agentapi.SwitchoverHandedOver
	if err != nil {
		status.Phase, status.Refused = agentapi.SwitchoverRefused, err.Error()
	}
	s.status, s.request, s.closed, s.stopped, s.giving, s.held = &status, nil, false, false, false, false
}

// said is the status for others; they must not see it change.
func (s *switching) said() *agentapi.UpgradeSwitchoverStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status == nil {
		return nil
	}
	status := *s.status
	return &status
}

// askUpgradeSwitchover begins to move the writes to the other generation, or says why not.
func (a *Agent) askUpgradeSwitchover(request agentapi.UpgradeSwitchoverRequest) error {
	status, _ := a.board.Status()
	switch {
	case status.Role != agentapi.RolePrimary || status.State != agentapi.StateRunning:
		return fmt.Errorf("%s is not a primary that runs", a.options.Instance)
	case status.Upgrade == nil || status.Upgrade.ID != request.ID || request.ID == "":
		return fmt.Errorf("the configuration here knows nothing of the upgrade %s yet", request.ID)
	case status.LiveVersion == request.To:
		return fmt.Errorf("PostgreSQL %s has the writes already", request.To)
	}
	a.requests.mu.Lock()
	busy := a.requests.switchover != nil || a.requests.restart != ""
	a.requests.mu.Unlock()
	if busy {
		return errors.New("a switchover or a restart is going on")
	}
	if err := a.switching.ask(request); err != nil {
		return err
	}
	a.poke()
	return nil
}

// keepSwitching begins a switch that was asked for, and takes note of one that has ended.
func (a *Agent) keepSwitching(ctx context.Context, w *world) {
	s := &a.switching
	if err, isNew := s.task.result(); isNew && err != nil {
		a.log.Warn("Not moving the writes to the other generation", "error", err)
		a.holdArchive(false)
	}
	if !s.task.isSettled() {
		return
	}
	request := s.take()
	if request == nil {
		return
	}
	if w.view.Holder != a.options.Instance || a.versionOf(request.Target) != request.To || a.config.Upgrade == nil || a.config.Upgrade.ID != request.ID {
		s.end(0, fmt.Errorf("%s is not the primary any more, or %s is not to run PostgreSQL %s", a.options.Instance, request.Target, request.To))
		return
	}
	a.log.Info("Moving the writes to the other generation", "target", request.Target, "to", request.To)
	place := a.place(ctx)
	members, volume := a.membersOf(request.To), a.volume
	// Without a way back this server does not go on: what its archiver does not do now is not done.
	goesOn := request.Reverse || request.To == a.config.Upgrade.From
	s.set(func(s *switching) { s.holds = goesOn || a.archivingFails() })
	s.task = a.begin(ctx, "switch", func(ctx context.Context) error {
		run := a.runSwitch
		if request.Offline {
			run = a.runOffline
		}
		pause, err := run(ctx, place, *request, members, volume)
		s.end(pause, err)
		return err
	})
}

// membersOf are the instances that are to run that major.
func (a *Agent) membersOf(version string) []string {
	var names []string
	for _, member := range a.config.Members {
		if a.versionOf(member.Name) == version {
			names = append(names, member.Name)
		}
	}
	return names
}

// runSwitch moves the writes.
func (a *Agent) runSwitch(ctx context.Context, place *generation.Place, request agentapi.UpgradeSwitchoverRequest, members []string,
	volume *datadir.Volume,
) (time.Duration, error) {
	preparing, cancel := context.WithTimeout(ctx, switchPrepare)
	defer cancel()
	system, err := a.targetSystem(preparing, request)
	if err != nil {
		return 0, err
	}
	marker := &generation.Marker{ID: request.ID}
	move := &generation.Switch{
		Announce: func(ctx context.Context) time.Time { return a.announce(ctx, request) },
		Log:      a.log, ID: request.ID, Target: request.Target, Reverse: request.Reverse,
		MaxPause: time.Duration(request.MaxPauseMillis) * time.Millisecond,
		Local:    place.Local,
		Remote: func(ctx context.Context, database string) (*pgx.Conn, error) {
			return place.Remote(ctx, request.Target, database)
		},
		Confirm: a.leaseKeeper().Confirm,
		Close:   a.closeClients,
		Stop:    func(ctx context.Context) error { return a.stopForSwitch(ctx, volume, lingerBound) },
		NextXID: func() (uint64, error) {
			found, err := volume.Inspect()
			if err == nil && !found.Control.StoppedCleanly() {
				err = errors.New("PostgreSQL did not stop in an orderly way")
			}
			return found.Control.NextXID, err
		},
		Mark: func(reverse map[string]string) error {
			return place.MarkOrigin(marker, request.Reverse, reverse)
		},
		Unmark: func() error { return generation.UnmarkOrigin(place.New) },
		HandOver: func(ctx context.Context) error {
			a.switching.set(func(s *switching) { s.giving = true })
			next := lease.Generation{Version: request.To, SystemIdentifier: system, Members: members}
			return handOverTo(ctx, a.leaseKeeper(), request.Target, next)
		},
	}
	return move.Run(preparing)
}

// handOverTo gives the lease to the target. An answer that was lost is asked for: what is done if it was not given would undo what is.
func handOverTo(ctx context.Context, keeper *lease.Keeper, target string, next lease.Generation) error {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveTimeout)
	defer cancel()
	err := keeper.HandOverTo(bounded, target, next)
	if err == nil {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, askGiven)
	defer cancel()
	was, unknown := keeper.WasHandedOver(asking, next.Version)
	switch {
	case unknown != nil:
		return fmt.Errorf("%w: %w", generation.ErrUnknown, err)
	case was:
		return nil
	default:
		return err
	}
}

// targetSystem asks the target's agent whether all is well there, and for its PostgreSQL system.
func (a *Agent) targetSystem(ctx context.Context, request agentapi.UpgradeSwitchoverRequest) (string, error) {
	client, err := a.peerClient()
	if err != nil {
		return "", err
	}
	status, err := client.Fresh(ctx, a.host(request.Target))
	switch {
	case err != nil:
		return "", fmt.Errorf("asking %s: %w", request.Target, err)
	case status.Upgrade == nil || status.Upgrade.ID != request.ID:
		return "", fmt.Errorf("%s belongs to no upgrade %s", request.Target, request.ID)
	case status.State != agentapi.StateRunning || status.SystemIdentifier == "":
		return "", fmt.Errorf("PostgreSQL does not run on %s (%s)", request.Target, status.State)
	case status.Problem != nil:
		return "", fmt.Errorf("%s: %s", request.Target, status.Problem.Message)
	default:
		return status.SystemIdentifier, nil
	}
}

// closeClients has the loop keep clients out, or let them in, and waits until that is in force.
func (a *Agent) closeClients(ctx context.Context, closed bool) error {
	ctx, cancel := context.WithTimeout(ctx, closeBound)
	defer cancel()
	a.switching.set(func(s *switching) {
		s.closed, s.stopped, s.giving = closed, false, false
		if closed && s.status != nil {
			s.status.Phase = agentapi.SwitchoverStopping
		}
	})
	ticker := time.NewTicker(closePoll)
	defer ticker.Stop()
	for {
		a.switching.mu.Lock()
		done := a.switching.inForce == closed
		a.switching.mu.Unlock()
		if done {
			return nil
		}
		a.poke()
		select {
		case <-ctx.Done():
			return errors.New("the configuration was not put in force in time")
		case <-ticker.C:
		}
	}
}

// noteClosed takes note of whether the running server keeps clients out, as it was seen to have read its configuration.
func (a *Agent) noteClosed(w *world) {
	closed := a.confClosed
	a.switching.set(func(s *switching) {
		if s.applied != closed || a.reloadedAt.After(s.appliedAt) {
			s.applied, s.appliedAt = closed, a.reloadedAt
			return
		}
		if w.state != nil && a.reloadPID == 0 && !w.state.ConfigRead.Before(s.appliedAt) {
			s.inForce = closed
		}
	})
}

// stopForSwitch stops PostgreSQL, which stays stopped until the switch ends. When its last checkpoint is written, what it still does is for others:
// WAL senders send the rest, and the archiver archives it. Whoever has not received it soon after gets it when this server goes on; without
// that, one standby that does not answer would hold up the writes until wal_sender_timeout. An end by force is an orderly one then. A checkpoint that
// takes long is not cut off: to recover without it would take longer.
func (a *Agent) stopForSwitch(ctx context.Context, volume *datadir.Volume, linger time.Duration) error {
	a.switching.set(func(s *switching) { s.stopped = true })
	a.server.Stop(supervise.Fast)
	a.poke()
	timer, ticker := time.NewTimer(switchStopBound), time.NewTicker(lingerPoll)
	defer timer.Stop()
	defer ticker.Stop()
	var written time.Time
	for {
		select {
		case <-a.server.Done():
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return fmt.Errorf("PostgreSQL did not stop within %s", switchStopBound)
		case now := <-ticker.C:
			switch {
			case !a.hasWrittenAll(volume):
				written = time.Time{}
			case written.IsZero():
				written = now
			case now.Sub(written) > linger && a.server.Snapshot().Stopping == supervise.Fast:
				a.log.Warn("PostgreSQL has written its last checkpoint and does not end: ending it", "since", written)
				a.server.Stop(supervise.Immediate)
			}
		}
	}
}

// hasWrittenAll says whether a server that stops has written its last checkpoint, and its archiver has nothing to do that it would not do when the
// server goes on.
func (a *Agent) hasWrittenAll(volume *datadir.Volume) bool {
	found, err := volume.Inspect()
	if err != nil || !found.Control.StoppedCleanly() { // it may be writing just then
		return false
	}
	holds := false
	a.switching.set(func(s *switching) { holds = s.holds })
	if holds {
		return true
	}
	waiting, err := volume.WaitingWAL()
	return err == nil && waiting == 0
}

// whileStopped is the round while a switch keeps PostgreSQL stopped; nil: it does not. The lease is kept until it is given away.
func (a *Agent) whileStopped(w *world) *outcome {
	stopped, giving := a.switching.isStopped()
	if !stopped {
		return nil
	}
	a.holdForSwitch(w)
	if w.view.Holder == a.options.Instance && !giving {
		a.keeper.Take(lease.Claim{Seen: w.view.Record})
	}
	w.decision = election.Decision{Action: election.Stop, Reason: "the writes are being moved to the other generation"}
	return &outcome{state: agentapi.StateStopping, role: agentapi.RolePrimary, notReady: w.decision.Reason}
}

// holdForSwitch keeps the archiver from making the pause longer, once. A round that was under way when the switch began to stop PostgreSQL
// may have lifted it: so it is here.
func (a *Agent) holdForSwitch(w *world) {
	hold := false
	a.switching.set(func(s *switching) {
		hold = s.holds && !s.held && w.server.Running
		s.held = s.held || hold
	})
	if hold {
		a.holdArchive(true)
	}
}
