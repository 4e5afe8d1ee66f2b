package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/pgsteward/pgsteward/internal/agent/supervise"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/election"
	"github.com/pgsteward/pgsteward/internal/naming"
)

const (
	// checkpointBound bounds the checkpoint before a hand-over; one that took longer than checkpointLong is followed by another,
	// which has less to write.
	checkpointBound = time.Minute
	checkpointLong  = time.Second
	// giveTimeout bounds the update that hands over.
	giveTimeout = 3 * time.Second
	// endpointsSettle is how long a primary goes on serving after endpoints of the cluster have changed, before it stops and its Services
	// get those of the next primary. Proxies apply changes at most once a second, kube-proxy for all Services together: what changes
	// last in that second is applied at its end, all at once. A change that comes later is applied at once, and the one which comes
	// some milliseconds after it a second later; and a role that changes is a change of -ro and one of -rw, in any order.
	endpointsSettle = 700 * time.Millisecond
)

// handover is a hand-over of the Lease from this instance, as the loop knows it. It ends with the request.
type handover struct {
	kind  election.RequestKind
	phase agentapi.SwitchoverPhase
	began time.Time
	// wish is the target that was asked for; target the one that was chosen.
	wish, target string
	// labelled is the one that the Services were given.
	labelled string
	// given is the one that the Lease was tried to be given to.
	given       string
	checkpoint  *task
	checkpoints int
	// leaving is the target when it was made to leave -ro, settles when PostgreSQL may be stopped after that.
	leaving string
	settles time.Time
	// last is how the last switchover ended.
	last *agentapi.SwitchoverStatus
}

func (h *handover) active() bool { return h.kind != election.NoRequest }

// asked is the request for the election; there is none before everything is prepared.
func (h *handover) asked(w *world) election.Request {
	if !h.active() || h.phase != agentapi.SwitchoverStopping {
		return election.Request{}
	}
	request := election.Request{Kind: h.kind, Target: h.wish, Preferred: h.labelled}
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
		switch {
		case refused == "":
		case h.labelled != "": // it was stopped for that target
			h.last.Phase = agentapi.SwitchoverUndone
		default:
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
	// A Pod that was deleted by force has two seconds, and its token is void: whoever has answered will do.
	hasty := h.kind == election.Termination && apierrors.IsUnauthorized(w.view.Err)
	if hasty {
		if target, _ := election.BestTarget(a.facts(w), ""); target != "" {
			return true
		}
	}
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
	// A Pod that ends may have two seconds in all, without knowing it; and its endpoints have just changed.
	return len(others) == 0 || h.kind == election.Termination || a.settled(w)
}

// settled says whether the Services' endpoints may change now: the target has left -ro a moment ago.
func (a *Agent) settled(w *world) bool {
	h := &a.handover
	if h.settles.IsZero() {
		h.leaving, _ = election.BestTarget(a.facts(w), h.wish)
		h.settles = w.now.Add(endpointsSettle)
	}
	return !w.now.Before(h.settles)
}

// pause is until the next round while a hand-over is prepared.
func (h *handover) pause(now time.Time) time.Duration {
	if h.settles.IsZero() {
		return hurriedInterval
	}
	return min(max(h.settles.Sub(now), urgentInterval), hurriedInterval)
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
		if h.kind == election.Switchover { // the shutdown would take at least as long
			a.refuseHandover(w, fmt.Sprintf("the checkpoint that has to come before it, within %s, failed: %s", checkpointBound, err))
			return false
		}
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
	switch {
	case h.given != "" && w.view.Holder == h.given: // the update came to pass although its answer was lost
		a.log.Info("Gave the lease away", "target", h.given)
		h.target = h.given
		h.end(w.now, "")
		a.requests.endSwitchover()
	case w.decision.Problem == election.InstanceFenced:
		a.refuseHandover(w, "this instance was fenced by hand meanwhile")
	case w.decision.Action == election.Stop, w.decision.Action == election.HandOver:
		return
	case w.decision.Rule != "holder-with-data":
		a.refuseHandover(w, fmt.Sprintf("it came to nothing: %s (%s)", w.decision.Reason, w.decision.Rule))
	case h.labelled == "":
		a.refuseHandover(w, refusalText(election.Unconfirmed(a.facts(w), h.wish)))
	default:
		a.refuseHandover(w, "PostgreSQL was stopped, and no target has received everything: "+
			refusalText(election.Unconfirmed(a.facts(w), h.wish)))
	}
}

// stop stops PostgreSQL and keeps it stopped: for a hand-over, or because this instance is fenced by hand.
func (a *Agent) stop(ctx context.Context, w *world) outcome {
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
		a.backups.last = lastWAL{}
		a.holdArchive(h.active() && h.target != "" || a.archivingFails())
		a.server.Stop(supervise.Fast)
		a.log.Info("Stopping PostgreSQL", "rule", w.decision.Rule, "reason", w.decision.Reason)
		if h.active() && h.target != "" {
			// Proxies need about as long as the target does to be promoted. Who comes earlier can read.
			h.labelled = h.target
			a.label(ctx, podRole{pod: naming.Pod(h.target), role: naming.RolePrimary}, a.ownRole(naming.RoleStandby))
		}
		a.observer.Close()
		return result
	}
	a.watchLastWAL(w)
	return result
}
