package agent

import (
	"context"
	"errors"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/pgsteward/pgsteward/internal/agent/lease"
	"github.com/pgsteward/pgsteward/internal/agent/supervise"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/election"
)

const (
	// checkpointBound bounds the checkpoint before a hand-over; one that took longer than checkpointLong is followed by another,
	// which has less to write.
	checkpointBound = time.Minute
	checkpointLong  = time.Second
	// switchoverStopBound is how long a fast shutdown may take in a switchover before it becomes an immediate one, and comes to nothing.
	switchoverStopBound = 15 * time.Second
	// giveTimeout bounds the update that hands over.
	giveTimeout = 3 * time.Second
	// endpointsSettle is how long after its Pod began to end a primary goes on serving, so that the removal of the Pod's endpoints,
	// which comes first, does not hold up those of the next primary: proxies apply changes once a second.
	endpointsSettle = 800 * time.Millisecond
)

// handover is a hand-over of the Lease from this instance, as the loop knows it. It ends with the request.
type handover struct {
	kind  election.RequestKind
	phase agentapi.SwitchoverPhase
	began time.Time
	// wish is the target that was asked for; target the one that was chosen.
	wish, target string
	checkpoint   *task
	checkpoints  int
	// last is how the last switchover ended.
	last *agentapi.SwitchoverStatus
}

func (h *handover) active() bool { return h.kind != election.NoRequest }

// asked is the request for the election; there is none before everything is prepared.
func (h *handover) asked(w *world) election.Request {
	if !h.active() || h.phase != agentapi.SwitchoverStopping {
		return election.Request{}
	}
	request := election.Request{Kind: h.kind, Target: h.wish}
	if exit := w.server.Exit; !w.server.Running && exit != nil {
		request.Stopped = max(w.now.Sub(exit.At), 1)
	} else if !w.server.Running {
		request.Stopped = max(w.now.Sub(h.began), 1)
	}
	return request
}

// status is what the agent says about it.
func (h *handover) status() *agentapi.SwitchoverStatus {
	if h.kind != election.Switchover {
		return h.last
	}
	return &agentapi.SwitchoverStatus{Wanted: h.wish, Target: h.target, Phase: h.phase, Since: h.began}
}

// end ends it: handed over if there is no reason why not.
func (h *handover) end(now time.Time, refused string) {
	if h.kind == election.Switchover {
		h.last = &agentapi.SwitchoverStatus{
			Wanted: h.wish, Target: h.target, Phase: agentapi.SwitchoverHandedOver, Since: h.began, Ended: &now, Refused: refused,
		}
		if refused != "" {
			h.last.Phase = agentapi.SwitchoverRefused
		}
	}
	*h = handover{last: h.last}
}

// beginHandover begins what was asked for. A Pod that ends is stronger than a switchover to somebody.
func (a *Agent) beginHandover(kind election.RequestKind, wish string, now time.Time) {
	h := &a.handover
	if h.active() && kind == election.Termination {
		h.kind, h.wish = kind, "" // it goes on, to whoever can
		return
	}
	a.log.Info("Preparing to hand over", "target", wish)
	*h = handover{kind: kind, wish: wish, phase: agentapi.SwitchoverPreparing, began: now, last: h.last}
}

// prepareHandover does what comes before PostgreSQL is stopped: members are asked and a checkpoint is written, while it serves.
func (a *Agent) prepareHandover(ctx context.Context, w *world) {
	h := &a.handover
	if request := a.requests.takeSwitchover(); request != nil && !h.active() {
		a.beginHandover(election.Switchover, request.Target, w.now)
	}
	if !h.active() || h.phase != agentapi.SwitchoverPreparing {
		return
	}
	if w.view.Holder != a.options.Instance {
		a.refuseHandover(w, a.options.Instance+" is not the primary any more")
		return
	}
	if a.server.Snapshot().Running && !a.prepared(ctx, w) {
		return
	}
	facts := a.facts(w)
	target, refused := election.BestTarget(facts, h.wish)
	if target == "" && h.kind == election.Switchover {
		a.refuseHandover(w, refusalText(refused))
		return
	}
	if target == "" {
		a.log.Warn("No instance can take over", "refused", refusalText(refused))
	}
	h.target, h.phase = target, agentapi.SwitchoverStopping
}

// prepared says whether everybody has answered who will, and a checkpoint is written.
func (a *Agent) prepared(ctx context.Context, w *world) bool {
	h := &a.handover
	since := w.now.Sub(h.began)
	others := a.others()
	// A Pod that was deleted by force has two seconds, and its token is void.
	hasty := h.kind == election.Termination && apierrors.IsUnauthorized(w.view.Err)
	for _, member := range others {
		answer, _ := a.peers.Answer(member.Name)
		if (answer == nil || answer.Asked.Before(h.began)) && since < election.AnswerWait {
			return false
		}
	}
	if h.checkpoints == 0 && h.kind == election.Switchover {
		if target, refused := election.BestTarget(a.facts(w), h.wish); target == "" {
			a.refuseHandover(w, refusalText(refused))
			return false
		}
	}
	if hasty {
		return true
	}
	if !a.checkpointed(ctx, w) {
		return false
	}
	return h.kind != election.Termination || len(others) == 0 || since >= endpointsSettle
}

// checkpointed says whether the checkpoint is written, and has it written beside the loop.
func (a *Agent) checkpointed(ctx context.Context, w *world) bool {
	h := &a.handover
	if !w.server.Writable || w.state == nil {
		return true
	}
	if h.checkpoint == nil {
		h.checkpoints++
		h.checkpoint = a.begin(ctx, "checkpoint", func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, min(checkpointBound, a.options.StopBound/2))
			defer cancel()
			began := time.Now()
			if err := a.admin.Checkpoint(ctx); err != nil {
				return err
			}
			if time.Since(began) > checkpointLong {
				return errLong
			}
			return nil
		})
	}
	if !h.checkpoint.isDone() {
		return false
	}
	err, _ := h.checkpoint.result()
	if errors.Is(err, errLong) && h.checkpoints < 2 {
		h.checkpoint = nil
		return false
	}
	if err != nil && !errors.Is(err, errLong) {
		a.log.Warn("Writing a checkpoint before the shutdown failed", "error", err)
	}
	return true
}

var errLong = errors.New("the checkpoint took long")

func (a *Agent) refuseHandover(w *world, why string) {
	a.log.Warn("Not handing over", "target", a.handover.wish, "why", why)
	a.handover.checkpoint.stop()
	a.handover.end(w.now, why)
	a.requests.endSwitchover()
}

func refusalText(refused []election.Refusal) string {
	if len(refused) == 0 {
		return "there is no other instance"
	}
	texts := make([]string, 0, len(refused))
	for _, r := range refused {
		texts = append(texts, r.Member+" "+r.Reason)
	}
	return strings.Join(texts, "; ")
}

// noteUndone ends a switchover that came to nothing: the election goes on as if there were none.
func (a *Agent) noteUndone(w *world) {
	h := &a.handover
	if h.kind != election.Switchover || h.phase != agentapi.SwitchoverStopping || !a.giving.isSettled() {
		return
	}
	switch w.decision.Action {
	case election.Stop, election.HandOver:
		return
	default:
		_, refused := election.BestTarget(a.facts(w), h.wish)
		a.refuseHandover(w, "PostgreSQL was stopped, and no target has received everything: "+refusalText(refused))
	}
}

// stop stops PostgreSQL and keeps it stopped: for a hand-over, or because this instance is fenced by hand.
func (a *Agent) stop(w *world) outcome {
	h := &a.handover
	result := a.serverOutcome(w)
	result.notReady = w.decision.Reason
	if w.view.Holder == a.options.Instance {
		result.role = agentapi.RolePrimary
	}
	if w.decision.Problem == election.InstanceFenced {
		result.problem = problem(reasonFenced, w.decision.Reason)
	}
	if h.active() {
		h.target = w.decision.Target
		result.state = agentapi.StateStopping
	}
	if !w.server.Running {
		return result
	}
	if w.server.Stopping == 0 {
		a.holdArchive(h.active() && h.target != "")
		a.server.Stop(supervise.Fast)
		a.log.Info("Stopping PostgreSQL", "rule", w.decision.Rule, "reason", w.decision.Reason)
		a.observer.Close()
		return result
	}
	bound := switchoverStopBound
	if h.kind == election.Termination {
		bound = a.options.StopBound - w.now.Sub(h.began)
	}
	if since := w.now.Sub(w.server.StoppingSince); since > bound {
		a.server.Stop(supervise.Immediate)
		if since > bound+immediateBound {
			a.server.Stop(supervise.Kill)
		}
	}
	return result
}

// immediateBound is how long an immediate shutdown may take.
const immediateBound = 6 * time.Second

// giveAway hands the Lease over, or releases it, beside the loop.
func (a *Agent) giveAway(ctx context.Context, w *world) outcome {
	target, position := w.decision.Target, ownData(w).Position
	result := outcome{state: agentapi.StateStopping, role: agentapi.RolePrimary, notReady: w.decision.Reason}
	if !a.giving.isSettled() || w.server.Running {
		return result
	}
	a.log.Info("Giving the lease away", "target", target, "rule", w.decision.Rule, "reason", w.decision.Reason)
	keeper := a.keeper
	ending := a.ending
	a.giving = a.begin(ctx, target, func(ctx context.Context) error {
		bounded, cancel := context.WithTimeout(ctx, giveTimeout)
		defer cancel()
		if target == "" {
			return keeper.Stopped(bounded)
		}
		err := keeper.HandOver(bounded, target, position)
		if err == nil || errors.Is(err, lease.ErrHeldByOther) || !ending {
			return err
		}
		a.log.Warn("Having the target take the lease, since it cannot be written here", "target", target, "error", err)
		return a.handOverByPeer(ctx, target)
	})
	return result
}

// handOverByPeer tells the target to take the lease, which this Pod may not write any more: it was deleted by force. What it says is
// true for ever of the version that it names: nothing is written here before a later one was seen.
func (a *Agent) handOverByPeer(ctx context.Context, target string) error {
	client, err := a.peerClient()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, giveTimeout)
	defer cancel()
	return client.HandOver(ctx, a.host(target), agentapi.HandOverRequest{
		Holder: a.options.Instance, PodUID: a.options.PodUID, LeaseVersion: a.leaseKeeper().View().Version,
	})
}

// noteGiven takes note of how it went.
func (a *Agent) noteGiven(w *world) {
	err, isNew := a.giving.result()
	if !isNew {
		return
	}
	if err != nil {
		a.log.Error("Giving the lease away failed", "target", a.giving.name, "error", err)
		return
	}
	a.log.Info("Gave the lease away", "target", a.giving.name)
	a.gave = true
	if a.handover.active() {
		a.handover.target = a.giving.name
		a.handover.end(w.now, "")
		a.requests.endSwitchover()
	}
}

// restartWanted restarts PostgreSQL in the Pod, if somebody asked for it: a primary writes a checkpoint first.
func (a *Agent) restartWanted(ctx context.Context, w *world) {
	why := a.requests.restartWanted()
	if why == "" || a.handover.active() {
		return
	}
	if !w.server.Running || w.server.Stopping != 0 {
		a.requests.endRestart()
		return
	}
	if w.server.Writable && w.state != nil {
		if a.restartCheckpoint == nil {
			a.restartCheckpoint = a.begin(ctx, "checkpoint", func(ctx context.Context) error {
				ctx, cancel := context.WithTimeout(ctx, checkpointBound)
				defer cancel()
				return a.admin.Checkpoint(ctx)
			})
		}
		if !a.restartCheckpoint.isDone() {
			return
		}
		if err, _ := a.restartCheckpoint.result(); err != nil {
			a.log.Warn("Writing a checkpoint before the restart failed", "error", err)
		}
	}
	a.restartCheckpoint = nil
	a.log.Info("Restarting PostgreSQL", "why", why)
	a.observer.Close()
	a.server.Stop(supervise.Fast)
	a.requests.endRestart()
}

// askMembers has the members asked for their positions while these matter, or are about to; at rest nobody is asked.
func (a *Agent) askMembers(w *world) {
	v := w.view
	late := v.Known && v.Holder != a.options.Instance && v.SinceChange > 2*a.keeper.Timings().Renew
	if !w.decision.Ask && !late && v.Holder != "" && !a.handover.active() && a.downSince.IsZero() {
		a.peers.Want(nil)
		return
	}
	a.peers.Want(a.others())
	// Only what is asked from now on counts when the lease has run out, or PostgreSQL has stopped.
	moment := ""
	switch {
	case a.handover.active() && !w.server.Running && w.server.Exit != nil:
		moment = "stopped " + w.server.Exit.At.String()
	case !a.downSince.IsZero():
		moment = "down " + a.downSince.String()
	case v.Expired:
		moment = "expired " + v.Version
	}
	if moment != a.moment && moment != "" {
		a.peers.Hurry()
	}
	a.moment = moment
}

// seek asks all members for a promise to this Pod, beside the loop.
func (a *Agent) seek(ctx context.Context, w *world) {
	if err, isNew := a.seeking.result(); isNew && err == nil {
		a.promised = a.seekingGot
	}
	if !w.decision.Seek || !a.seeking.isSettled() || w.now.Sub(a.soughtAt) < seekInterval {
		return
	}
	a.soughtAt = w.now
	names, duration := a.otherNames(), a.keeper.Timings().Duration
	got, asked := map[string]time.Time{}, w.now
	a.seekingGot = got
	a.seeking = a.begin(ctx, "promises", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, seekTimeout)
		defer cancel()
		for _, name := range a.askPromises(ctx, names, duration, true) {
			got[name] = asked
		}
		return nil
	})
}

const (
	seekInterval = time.Second
	seekTimeout  = 2 * time.Second
)
