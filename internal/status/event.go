package status

import (
	"fmt"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/plan"
)

// Event is something that happened, for the user.
type Event struct {
	Warning bool
	// Reason is one of the Reason constants of apis/v1; Action says in one word what was done or tried.
	Reason, Action string
	Message        string
}

// Events are what is new in the status after the previous one.
func Events(in Input, s v1.PostgresClusterStatus) []Event {
	var events []Event
	events = append(events, conditionEvents(in.Previous, s)...)
	events = append(events, switchoverEvents(in.Previous.Switchover, s.Switchover)...)
	events = append(events, upgradeEvents(in.Previous.Upgrade, s.Upgrade)...)
	events = append(events, recoveryEvents(in.Previous.Recovery, s.Recovery)...)
	events = append(events, primaryEvents(in.Previous, s)...)
	events = append(events, instanceEvents(in.Previous, s)...)
	events = append(events, volumeEvents(in)...)
	events = append(events, missedEvents(in.Previous.Backup, s.Backup)...)
	events = append(events, verificationEvents(in.Previous.Backup, s.Backup)...)
	for n := range events {
		events[n].Message = bounded(events[n].Message)
	}
	return events
}

// maxEventMessage is how many bytes the API server takes of an event's message; it refuses the whole event otherwise.
const maxEventMessage = 1024

// bounded is the text, cut if it is too long; the status has all of it.
func bounded(text string) string {
	const end = " …"
	if len(text) <= maxEventMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxEventMessage-len(end)], "") + end
}

// conditionEvents are for what became wrong, became ready or is being done.
func conditionEvents(previous, s v1.PostgresClusterStatus) []Event {
	var events []Event
	degraded := apimeta.FindStatusCondition(s.Conditions, v1.ConditionDegraded)
	if before := apimeta.FindStatusCondition(previous.Conditions, v1.ConditionDegraded); degraded.Status == metav1.ConditionTrue &&
		(before == nil || before.Status != metav1.ConditionTrue || before.Reason != degraded.Reason) {
		events = append(events, Event{Warning: true, Reason: degraded.Reason, Action: "Observe", Message: degraded.Message})
	}
	progressing := apimeta.FindStatusCondition(s.Conditions, v1.ConditionProgressing)
	if before := apimeta.FindStatusCondition(previous.Conditions, v1.ConditionProgressing); progressing.Status == metav1.ConditionTrue && isStep(progressing.Reason) &&
		(before == nil || before.Reason != progressing.Reason || (before.Message != progressing.Message && progressing.Reason != v1.ReasonDeleting && progressing.Reason != v1.ReasonFinalBackup)) {
		events = append(events, Event{Reason: progressing.Reason, Action: "Reconcile", Message: progressing.Message})
	}
	ready := apimeta.FindStatusCondition(s.Conditions, v1.ConditionReady)
	if ready.Status == metav1.ConditionTrue && !apimeta.IsStatusConditionTrue(previous.Conditions, v1.ConditionReady) {
		events = append(events, Event{Reason: v1.ReasonReady, Action: "Reconcile", Message: ready.Message})
	}
	return events
}

// isStep says whether the reason is of something done, not of something waited for.
func isStep(reason string) bool {
	switch reason {
	case v1.ReasonSuspended, v1.ReasonCreatingInstances, v1.ReasonRemovingInstance, v1.ReasonRestartingInstance, v1.ReasonReplacingVolume, v1.ReasonDeleting, v1.ReasonFinalBackup,
		v1.ReasonSwitchingOver, v1.ReasonUpdatingInstances, v1.ReasonReplacingInstance:
		return true
	}
	return false
}

// switchoverEvents say how a switchover ended. That one begins is a step like others.
func switchoverEvents(previous, s *v1.SwitchoverStatus) []Event {
	if s == nil || s.CompletedAt == nil || previous != nil && s.Target == previous.Target && s.CompletedAt.Equal(previous.CompletedAt) {
		return nil
	}
	switch s.Phase {
	case v1.SwitchoverCompleted:
		return []Event{{Reason: v1.ReasonSwitchedOver, Action: "Switchover", Message: s.Message}}
	case v1.SwitchoverRefused, v1.SwitchoverFailed:
		return []Event{{Warning: true, Reason: s.Reason, Action: "Switchover", Message: fmt.Sprintf("No switchover from %s to %s: %s", s.From, s.Target, s.Message)}}
	default:
		return nil
	}
}

// upgradeEvents say how far a major upgrade is, once for each phase, and what failed.
func upgradeEvents(previous, s *v1.UpgradeStatus) []Event {
	if s == nil {
		return nil
	}
	if previous == nil {
		previous = &v1.UpgradeStatus{}
	}
	var events []Event
	if s.LastFailure != "" && s.LastFailure != previous.LastFailure {
		events = append(events, Event{Warning: true, Reason: v1.ReasonUpgradeRetrying, Action: "Upgrade", Message: s.LastFailure})
	}
	if s.Phase == previous.Phase && s.From == previous.From && s.To == previous.To {
		return events
	}
	e := Event{Reason: v1.ReasonUpgrading, Action: "Upgrade", Message: string(s.Phase) + ": " + s.Message}
	switch s.Phase {
	case v1.UpgradeFailed:
		e.Warning, e.Reason = true, v1.ReasonUpgradeFailed
	case v1.UpgradeObserve:
		e.Reason = v1.ReasonUpgradeSwitchedOver
		if s.LastWritePause != "" {
			e.Message += "; writes paused for " + s.LastWritePause
		}
	case v1.UpgradeRolledBack:
		e.Reason = v1.ReasonUpgradeReverted
		if s.SwitchedOverAt != nil {
			e.Reason = v1.ReasonUpgradeRolledBack
		}
	case v1.UpgradeDone:
		e.Reason = v1.ReasonUpgraded
	case v1.UpgradePreflight, v1.UpgradePrepareSource, v1.UpgradeSeedStandby, v1.UpgradeCatchUp, v1.UpgradeRollStandbys,
		v1.UpgradeAwaitSwitchover, v1.UpgradeSwitchingOver, v1.UpgradeRollback, v1.UpgradeRetire, v1.UpgradeRevert:
	}
	return append(events, e)
}

// recoveryEvents say how far a recovery in place is, once for each phase.
func recoveryEvents(previous, s *v1.RecoveryStatus) []Event {
	if s == nil || previous != nil && previous.Name == s.Name && previous.Phase == s.Phase {
		return nil
	}
	e := Event{Reason: v1.ReasonRecoveringInPlace, Action: "Recover", Message: fmt.Sprintf("Recovery in place %s: %s: %s", s.Name, s.Phase, s.Message)}
	switch s.Phase {
	case v1.RecoveryCompleted:
		e.Reason = v1.ReasonRecoveredInPlace
	case v1.RecoveryRefused, v1.RecoveryFailed:
		e.Warning, e.Reason = true, v1.ReasonRecoveryRefused
	case v1.RecoverySafetyBackup, v1.RecoveryPreparing, v1.RecoveryAnnouncing, v1.RecoveryReplacing, v1.RecoveryRejoining:
	}
	return []Event{e}
}

func primaryEvents(previous, s v1.PostgresClusterStatus) []Event {
	switch {
	case s.CurrentPrimary == previous.CurrentPrimary || s.CurrentPrimary == "":
		return nil
	case previous.CurrentPrimary == "":
		return []Event{{Reason: v1.ReasonPrimaryChanged, Action: "Elect", Message: s.CurrentPrimary + " is primary"}}
	default:
		return []Event{{Reason: v1.ReasonPrimaryChanged, Action: "Elect", Message: fmt.Sprintf("%s is primary after %s", s.CurrentPrimary, previous.CurrentPrimary)}}
	}
}

func instanceEvents(previous, s v1.PostgresClusterStatus) []Event {
	before := map[string]v1.InstanceStatus{}
	for _, i := range previous.Instances {
		before[i.Name] = i
	}
	var events []Event
	for _, i := range s.Instances {
		was, known := before[i.Name]
		switch {
		case i.Ready && !was.Ready:
			message := i.Name + " is ready"
			if i.Role != "" {
				message += " as " + string(i.Role)
			}
			events = append(events, Event{Reason: v1.ReasonInstanceReady, Action: "Observe", Message: message})
		case known && was.Ready && !i.Ready:
			message := i.Name + " is not ready any more"
			if i.Message != "" {
				message += ": " + i.Message
			}
			events = append(events, Event{Warning: true, Reason: v1.ReasonInstancesNotReady, Action: "Observe", Message: message})
		}
	}
	return events
}

// volumeEvents say which volumes are kept, when an instance or the cluster goes.
func volumeEvents(in Input) []Event {
	var kept []facts.Volume
	if in.Facts.Deleting && in.Facts.KeepVolumes && in.Previous.Phase != v1.PhaseDeleting {
		kept = in.Facts.Volumes
	}
	if action, ok := in.Decision.Action.(plan.RemoveInstance); ok && !action.DeleteVolume {
		if v, ok := in.Facts.Volume(action.Instance); ok {
			kept = append(kept, v)
		}
	}
	if len(kept) == 0 {
		return nil
	}
	names := make([]string, 0, len(kept))
	for _, v := range kept {
		names = append(names, naming.DataVolume(v.Instance))
	}
	return []Event{{
		Reason: v1.ReasonVolumeRetained, Action: "Delete",
		Message: "Kept, with their data, as spec.deletion.volumes says: PersistentVolumeClaim " + strings.Join(names, ", ") +
			". A cluster or instance of the same name takes them over; delete them to be rid of the data",
	}}
}
