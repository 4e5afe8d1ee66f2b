package agent

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/generation"
	"github.com/pgsteward/pgsteward/internal/agent/supervise"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/election"
)

const (
	reasonUpgrade = "UpgradeFailed"
	// lookInterval is how often the detached server is looked at, and lookBound how long that may take.
	lookInterval = 2 * time.Second
	lookBound    = 20 * time.Second
	// rejoinAfter is how long the seed must not have followed until it joins again: longer than any switch, which disables its
	// subscriptions and would not want them back.
	rejoinAfter = time.Minute
	// The pause after an attempt that failed doubles from asideFirst to asideLast.
	asideFirst = time.Second
	asideLast  = 30 * time.Second
)

// aside is what the loop remembers of an instance that is not of the live generation.
type aside struct {
	// key is the part of the configuration that the tasks work by: of another one nothing goes on.
	key string
	// work makes data, or makes the server follow; failed counts its failures, and next is when it may begin again. done is what it has
	// done last: for which run of which server.
	work   *task
	failed failures
	next   time.Time
	done   string
	// look looks; lookedAt is when it did. followedAt is when the seed was last seen to follow.
	look       *task
	lookedAt   time.Time
	followedAt time.Time
	// keep keeps slots and the role on a detached server.
	keep   *task
	keptAt time.Time
	// spare says that nobody needs the WAL of the detached server: it is the seed, and never had the writes.
	spare bool
}

// generationSeen is what a look saw.
type generationSeen struct {
	seed *agentapi.SeedStatus
	back *agentapi.ReverseStatus
}

// asideRound is the round of an instance of a generation that is not live: it makes the next one, follows its server, or is the way back.
func (a *Agent) asideRound(ctx context.Context, w *world) outcome {
	a.takeSeed(w)
	w.decision = election.Decision{Action: election.Wait, Reason: "PostgreSQL " + a.live() + " is live"}
	u := a.config.Upgrade
	if u == nil {
		return a.asideIdle(w)
	}
	self, live, own := a.options.Instance, a.live(), strconv.Itoa(a.major)
	a.asideKey(ctx, fmt.Sprint(*u, live, own, w.view.Holder))
	marker, err := generation.ReadMarker(a.volume)
	if err != nil {
		return outcome{state: agentapi.StateFailed, problem: problem(reasonUpgrade, err.Error())}
	}
	if marker != nil {
		a.upgradeStatus.ID = marker.ID
	}
	switch detached := u.Detached(live); {
	case live == u.From && own == u.To && detached == self:
		a.besides.spare = marker == nil || !marker.GaveAway()
		return a.seedRound(ctx, w)
	case live == u.To && own == u.From && marker != nil && marker.Origin && marker.ID == u.ID:
		return a.originRound(ctx, w)
	case detached != "" && detached != self:
		return a.asideStandby(ctx, w, detached)
	}
	return a.asideIdle(w)
}

// asideKey ends what goes on for another configuration, or another primary.
func (a *Agent) asideKey(ctx context.Context, key string) {
	if a.besides.key == key {
		return
	}
	a.leaveAside()
	a.besides = aside{key: key}
	if ctx.Err() == nil {
		a.said.Store(nil)
		a.seen.Store(nil)
	}
}

// leaveAside ends what was done while the instance was aside.
func (a *Agent) leaveAside() {
	for _, task := range []*task{a.besides.work, a.besides.look, a.besides.keep} {
		task.stop()
	}
	a.besides = aside{}
	a.upgradeStatus.Seed, a.upgradeStatus.Back, a.upgradeStatus.ID = nil, nil, ""
}

// asideIdle is the round of an instance that nothing is to be done with: there is no server of its version to follow.
func (a *Agent) asideIdle(w *world) outcome {
	if w.server.Running && (w.server.Writable || w.server.Detached) {
		a.server.Stop(supervise.Fast)
	}
	result := a.serverOutcome(w)
	result.notReady = fmt.Sprintf("no server of PostgreSQL %d to follow", a.major)
	return result
}

// asideStandby runs the instance as a standby of the detached server.
func (a *Agent) asideStandby(ctx context.Context, w *world, upstream string) outcome {
	if w.server.Running && (w.server.Detached || w.server.Writable) {
		a.server.Stop(supervise.Fast) // it was the detached one
		return a.serverOutcome(w)
	}
	status := a.askUpstream(ctx, w.now, upstream, slotsInterval)
	if w.found.Complete && a.reclone == "" && status != nil && status.SystemIdentifier != "" && status.SystemIdentifier != w.found.Control.SystemIdentifier {
		a.wantCopy("it is of another attempt")
	}
	if !w.found.Complete && a.reclone == "" {
		if err := a.makeRoomAside(w); err != nil {
			return outcome{state: agentapi.StateFailed, problem: problem(reasonSeed, err.Error())}
		}
		w.decision = election.Decision{Action: election.CloneFrom, Upstream: upstream, Reason: w.decision.Reason}
		result := a.clone(ctx, w, upstream)
		result.role = agentapi.RoleStandby
		return result
	}
	w.decision = election.Decision{Action: election.RunStandby, Upstream: upstream, Reason: w.decision.Reason}
	return a.runStandby(ctx, w)
}

// makeRoomAside removes a standby's data of the other version if there would be no room for the copy of the new beside it.
func (a *Agent) makeRoomAside(w *world) error {
	if len(w.found.Others) == 0 || a.clones.failures == 0 || !saysNoRoom(a.clones.message) {
		return nil
	}
	a.log.Warn("Removing the data of the other version, to make room for that of the new one", "versions", w.found.Others)
	for _, major := range w.found.Others {
		if err := a.volumeOf(major).Remove(); err != nil {
			return err
		}
	}
	return nil
}

// attempt begins the work, unless it goes on, or has to wait after a failure.
func (a *Agent) attempt(ctx context.Context, w *world, name string, do func(context.Context) error) {
	b := &a.besides
	if err, isNew := b.work.result(); isNew {
		switch {
		case err == nil:
			b.done, b.failed = b.work.name, failures{}
		case !errors.Is(err, context.Canceled):
			b.failed = failures{count: b.failed.count + 1, message: err.Error()}
			b.next = w.now.Add(min(asideFirst<<min(b.failed.count-1, 10), asideLast))
			a.log.Warn("A step of the major upgrade failed", "step", b.work.name, "failures", b.failed.count, "error", err)
		}
	}
	if !b.work.isSettled() || b.done == name || w.now.Before(b.next) {
		return
	}
	b.work = a.begin(ctx, name, do)
}

// looking looks at the detached server from time to time, beside the loop.
func (a *Agent) looking(ctx context.Context, w *world, look func(context.Context) (generationSeen, error)) {
	b := &a.besides
	if err, isNew := b.look.result(); isNew {
		b.lookedAt = w.now
		if err != nil && !errors.Is(err, context.Canceled) {
			a.log.Warn("Looking at replication of the major upgrade failed", "error", err)
		}
	}
	if !b.look.isSettled() || w.now.Sub(b.lookedAt) < lookInterval {
		return
	}
	seen := &generationSeen{}
	b.look = a.begin(ctx, "look", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, lookBound)
		defer cancel()
		found, err := look(ctx)
		*seen = found
		a.seen.Store(seen)
		return err
	})
}

// runDetached runs the server read-write, beside the lease, and closed to clients. It says whether the server answers.
func (a *Agent) runDetached(ctx context.Context, w *world) (outcome, bool) {
	if w.server.Running && !w.server.Detached {
		a.server.Stop(supervise.Fast)
		return a.serverOutcome(w), false
	}
	a.holdArchive(false) // it may have given the writes away
	a.detach = true      // for settings and start
	defer func() { a.detach = false }()
	if !w.server.Running {
		return a.start(ctx, w, true, ""), false
	}
	a.reload(ctx, w, "")
	result := a.serverOutcome(w)
	running := w.state != nil && !w.state.InRecovery && w.server.Stopping == 0
	if running {
		a.keepDetached(ctx, w)
	}
	return result, running
}

// keepDetached keeps the slots of the standbys of its version, and the role by which the other side comes.
func (a *Agent) keepDetached(ctx context.Context, w *world) {
	b := &a.besides
	if err, isNew := b.keep.result(); isNew {
		b.keptAt = w.now
		if err != nil && !errors.Is(err, context.Canceled) {
			a.log.Warn("Keeping replication slots failed", "error", err)
		}
	}
	if !b.keep.isSettled() || w.now.Sub(b.keptAt) < slotsInterval/2 {
		return
	}
	wanted := a.slotsOfOthers()
	b.keep = a.begin(ctx, "keep", func(ctx context.Context) error {
		return errors.Join(a.admin.UpgradeRole(ctx), a.admin.EnsureSlots(ctx, wanted))
	})
}
