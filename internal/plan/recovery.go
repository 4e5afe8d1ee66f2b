package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
)

const (
	// announceBound is how long it may take until all instances know which data is not to take over any more.
	announceBound = 10 * time.Minute
	// prepareBound is how long the primary's agent may say nothing of the recovery that it is asked for.
	prepareBound = 5 * time.Minute
	// rejoinBound is for how long standbys that follow the recovered data hold up everything else.
	rejoinBound = time.Hour
	// recoveryRecheck is when to look again at a recovery in place, should no news come.
	recoveryRecheck = 10 * time.Second
)

// recovering waits for a recovery in place that is under way, or begins: nothing else is changed meanwhile.
func recovering(f *facts.Cluster) (Decision, bool) {
	next := nextRecovery(f)
	if next == nil || next.Phase.Final() {
		return Decision{}, false
	}
	d := Decision{
		Members: members(f), Reason: v1.ReasonRecoveringInPlace, Recheck: recoveryRecheck,
		Message: fmt.Sprintf("Recovering in place to %s: %s: %s", next.Target, next.Phase, next.Message),
	}
	if changesPhase(f.Recovery.Status, next) {
		d.Recheck = time.Second // the status is written before it is acted upon
	}
	return d, true
}

// noteRecovery adds to any decision what there is to say of a recovery in place, and what the agents are told of it: what the status says
// already, so that nothing is begun that nobody would know of.
func noteRecovery(f *facts.Cluster, d *Decision) {
	s, next := f.Recovery.Status, nextRecovery(f)
	if f.Recovery.BadWish != "" {
		d.Refused = append(d.Refused, Refusal{Reason: v1.ReasonRecoveryRefused, What: "recovering in place", Why: f.Recovery.BadWish})
	}
	d.Recovery = s
	if next != nil && (d.Rule == "recovery" || next.Phase.Final()) {
		d.Recovery = next
		if w, failed := f.Recovery.Wish, next.Phase == v1.RecoveryRefused || next.Phase == v1.RecoveryFailed; failed && w != nil && w.Name == next.Name {
			d.Refused = append(d.Refused, Refusal{Reason: v1.ReasonRecoveryRefused, What: "recovering in place", Why: fmt.Sprintf(
				"the recovery in place %s did not come about, and nothing was changed: %s. Remove the annotation %s, or give it another name to try again", next.Name, next.Message, naming.AnnotationRecoverInPlace)})
		}
	}
	if s == nil {
		return
	}
	if timeline := floor(s); timeline > 0 {
		d.Floor = &agentapi.Floor{SystemIdentifier: s.SystemIdentifier, Timeline: timeline}
	}
	switch s.Phase {
	case v1.RecoverySafetyBackup:
		if d.Rule == "recovery" && f.Recovery.Safety != nil && !f.Recovery.Safety.Asked {
			d.Backup = f.Recovery.Safety.Name
		}
	case v1.RecoveryPreparing, v1.RecoveryAnnouncing, v1.RecoveryReplacing, v1.RecoveryRejoining:
		d.InPlace = &agentapi.InPlace{Name: s.Attempt, Replace: s.Phase == v1.RecoveryReplacing || s.Phase == v1.RecoveryRejoining}
		if w := f.Recovery.Wish; w != nil && w.Name == s.Name {
			d.InPlace.Target = w.Target
		} else if s.Phase == v1.RecoveryPreparing {
			d.InPlace = nil // it is called off
		}
	case v1.RecoveryCompleted, v1.RecoveryRefused, v1.RecoveryFailed:
	}
}

// floor is the lowest timeline whose data may take over; 0: any may.
func floor(s *v1.RecoveryStatus) int64 {
	if s.Phase.Binding() {
		return max(s.MinimumTimeline, s.Timeline)
	}
	return s.MinimumTimeline
}

func changesPhase(before, after *v1.RecoveryStatus) bool {
	return before == nil || before.Name != after.Name || before.Phase != after.Phase
}

// nextRecovery is what the status is to say of a recovery in place; nil: there is none, nor was one.
func nextRecovery(f *facts.Cluster) *v1.RecoveryStatus {
	w, s := f.Recovery.Wish, f.Recovery.Status
	if s != nil && !s.Phase.Final() {
		return advance(f, *s.DeepCopy())
	}
	if w == nil || s != nil && s.Name == w.Name {
		return s
	}
	if stillUnheard(f) { // after the operator's start, say: the name would be spent for nothing
		return s
	}
	now := metav1.NewTime(f.Now)
	next := v1.RecoveryStatus{Name: w.Name, Attempt: fmt.Sprintf("%s-%x", w.Name, f.Now.Unix()), Target: w.Target.String(), StartedAt: now, ChangedAt: now, SystemIdentifier: f.SystemIdentifier}
	if s != nil && s.SystemIdentifier == f.SystemIdentifier {
		next.MinimumTimeline = floor(s)
	}
	if why := cannotRecover(f, *w); why != "" {
		return recoveryEnded(f, next, v1.RecoveryRefused, why)
	}
	if w.WithoutBackup {
		return recoveryIn(f, next, v1.RecoveryPreparing, "the data is being made from a backup, beside what is there; no backup of that was wished")
	}
	next.SafetyBackup = naming.RecoveryBackup(f.Name, next.Attempt)
	return recoveryIn(f, next, v1.RecoverySafetyBackup, "waiting for PostgresBackup "+next.SafetyBackup)
}

// stillUnheard says whether an agent has not been heard for so short a time that it may be any moment.
func stillUnheard(f *facts.Cluster) bool {
	return slices.ContainsFunc(f.Instances, func(i facts.Instance) bool {
		_, heard := i.Report.Get()
		return !heard && !i.Deleting && i.UnheardFor < hearingPatience
	})
}

// recoveryIn is the status in another phase.
func recoveryIn(f *facts.Cluster, s v1.RecoveryStatus, phase v1.RecoveryPhase, message string) *v1.RecoveryStatus {
	s.Phase, s.Message, s.ChangedAt = phase, message, metav1.NewTime(f.Now)
	return &s
}

// recoveryEnded is the status at the end.
func recoveryEnded(f *facts.Cluster, s v1.RecoveryStatus, phase v1.RecoveryPhase, message string) *v1.RecoveryStatus {
	at := metav1.NewTime(f.Now)
	s.FinishedAt = &at
	return recoveryIn(f, s, phase, message)
}

// cannotRecover is why a recovery in place cannot begin; empty: it can, as far as is known here.
func cannotRecover(f *facts.Cluster, w backup.InPlace) string {
	primary, known := f.Primary()
	u := f.Upgrade.Status
	switch {
	case f.Backup == nil:
		return "there is no spec.backup, so that there is nothing to recover from"
	case f.Suspend:
		return "the cluster is suspended"
	case u != nil && !u.Phase.Final() || f.Version != f.Live:
		return "a major upgrade is under way, or wanted: first let it end, or call it off"
	case f.Switchover != nil && f.Switchover.Phase == v1.SwitchoverInProgress:
		return "a switchover is under way"
	case !known || !primary.Ready() || primary.Deleting:
		return "the primary does not serve: a new cluster can be made from the backups by spec.bootstrap.recovery"
	case f.IsFenced(primary.Name):
		return "the primary is fenced"
	}
	for _, i := range f.Instances {
		report, heard := i.Report.Get()
		switch {
		case i.Deleting:
		case !heard:
			return fmt.Sprintf("%s is not heard, so that it would not know that its data is not to take over any more: mend it, or remove it", i.Name)
		case !report.KnowsInPlace:
			return fmt.Sprintf("the agent of %s is older than this operator and knows nothing of recoveries in place: restart the instances first, by the annotation %s", i.Name, naming.AnnotationRestart)
		}
	}
	report, _ := f.Backup.Repository.Get()
	switch {
	case !report.Ready || report.Error != "":
		return "the repository cannot be used: " + cmp.Or(report.Error, "it is being prepared")
	case w.Target.Time != nil && w.Target.Time.After(f.Now):
		return fmt.Sprintf("targetTime %s is in the future", w.Target)
	}
	first := backup.FirstRecoverable(report.Backups)
	if w.Target.Time != nil && w.Target.Timeline == 0 && w.Target.Backup == "" && report.Known && (first.IsZero() || w.Target.Time.Before(first)) {
		if first.IsZero() {
			return "there is no good backup to begin with"
		}
		return fmt.Sprintf("targetTime is before the first moment that can be recovered, %s", first.UTC().Format(time.RFC3339))
	}
	return ""
}

// advance is the status of a recovery that is under way after what is known now.
func advance(f *facts.Cluster, s v1.RecoveryStatus) *v1.RecoveryStatus {
	w := f.Recovery.Wish
	calledOff := w == nil || w.Name != s.Name || w.Target.String() != s.Target
	switch s.Phase {
	case v1.RecoverySafetyBackup:
		if calledOff {
			return recoveryEnded(f, s, v1.RecoveryFailed, "it was called off")
		}
		return secured(f, s)
	case v1.RecoveryPreparing:
		if calledOff {
			return recoveryEnded(f, s, v1.RecoveryFailed, "it was called off")
		}
		return prepared(f, s)
	case v1.RecoveryAnnouncing:
		if calledOff {
			return recoveryEnded(f, s, v1.RecoveryFailed, "it was called off")
		}
		return announced(f, s)
	case v1.RecoveryReplacing:
		return replaced(f, s)
	case v1.RecoveryRejoining:
		return rejoined(f, s)
	case v1.RecoveryCompleted, v1.RecoveryRefused, v1.RecoveryFailed:
	}
	return &s
}

// secured waits for the backup of what is there.
func secured(f *facts.Cluster, s v1.RecoveryStatus) *v1.RecoveryStatus {
	safety := f.Recovery.Safety
	switch {
	case safety != nil && safety.Phase == v1.BackupCompleted:
		return recoveryIn(f, s, v1.RecoveryPreparing, "the data is being made from a backup, beside what is there")
	case safety != nil && safety.Phase == v1.BackupFailed:
		return recoveryEnded(f, s, v1.RecoveryFailed, fmt.Sprintf("the backup of what is there, %s, failed: %s. To do without it, say skipSafetyBackup", safety.Name, safety.Message))
	case safety != nil && safety.Message != "":
		s.Message = fmt.Sprintf("waiting for PostgresBackup %s: %s", safety.Name, safety.Message)
	}
	return &s
}

// said is what the primary's agent says of the attempt; nil: nothing.
func said(f *facts.Cluster, s v1.RecoveryStatus) *agentapi.InPlaceReport {
	primary, known := f.Primary()
	if !known {
		return nil
	}
	report, heard := primary.Report.Get()
	if !heard || report.InPlace == nil || report.InPlace.Name != s.Attempt {
		return nil
	}
	return report.InPlace
}

// prepared waits for the recovered data beside the present. A failover meanwhile has the new primary begin anew.
func prepared(f *facts.Cluster, s v1.RecoveryStatus) *v1.RecoveryStatus {
	report := said(f, s)
	switch {
	case f.Backup == nil:
		return recoveryEnded(f, s, v1.RecoveryFailed, "spec.backup was removed")
	case report == nil && f.Now.Sub(s.ChangedAt.Time) > prepareBound:
		return recoveryEnded(f, s, v1.RecoveryFailed, fmt.Sprintf("the primary said nothing of it for %s", prepareBound))
	case report == nil:
		return &s
	}
	switch report.Stage {
	case agentapi.InPlaceFailed:
		return recoveryEnded(f, s, v1.RecoveryFailed, report.Error)
	case agentapi.InPlacePrepared:
		s.Timeline, s.SystemIdentifier = report.Timeline, f.SystemIdentifier
		return recoveryIn(f, s, v1.RecoveryAnnouncing, "waiting until all instances know that what they have is not to take over any more")
	case agentapi.InPlaceReplaced: // it was done before, and the status was lost
		s.Timeline, s.SystemIdentifier = report.Timeline, f.SystemIdentifier
		return recoveryIn(f, s, v1.RecoveryRejoining, "the recovered data is in place")
	case agentapi.InPlacePreparing:
		if report.Error != "" {
			s.Message = report.Error
		}
	}
	return &s
}

// announced waits until nobody would take over with what is there. Nothing was replaced yet, so it can be left at any moment.
func announced(f *facts.Cluster, s v1.RecoveryStatus) *v1.RecoveryStatus {
	report := said(f, s)
	primary, known := f.Primary()
	if _, heard := primary.Report.Get(); (!known || !heard) && f.Now.Sub(s.ChangedAt.Time) <= announceBound {
		s.Message = "waiting for the primary, which is not heard just now"
		return &s
	}
	if report == nil || report.Stage != agentapi.InPlacePrepared || report.Timeline != s.Timeline {
		why := "the primary does not have the recovered data any more, or is not heard"
		if report != nil && report.Error != "" {
			why = report.Error
		}
		return recoveryEnded(f, s, v1.RecoveryFailed, why)
	}
	var unaware []string
	for _, i := range f.Instances {
		if said, heard := i.Report.Get(); !i.Deleting && (!heard || said.Floor < s.Timeline) {
			unaware = append(unaware, i.Name)
		}
	}
	switch {
	case len(unaware) == 0:
		return recoveryIn(f, s, v1.RecoveryReplacing, "the recovered data takes the place of the primary's")
	case f.Now.Sub(s.ChangedAt.Time) > announceBound:
		return recoveryEnded(f, s, v1.RecoveryFailed, fmt.Sprintf("%s did not confirm within %s that what they have is not to take over any more", strings.Join(unaware, ", "), announceBound))
	}
	s.Message = "waiting until what they have cannot take over any more: " + strings.Join(unaware, ", ")
	return &s
}

// replaced waits for the word of the primary's agent, whatever time that takes: nobody else knows which data is in place.
func replaced(f *facts.Cluster, s v1.RecoveryStatus) *v1.RecoveryStatus {
	report := said(f, s)
	switch {
	case report == nil:
		s.Message = fmt.Sprintf("the recovered data takes the place of that of %s, which is not heard just now; until it is, no other instance takes over", f.Holder)
	case report.Stage == agentapi.InPlaceFailed:
		return recoveryEnded(f, s, v1.RecoveryFailed, report.Error)
	case report.Stage == agentapi.InPlaceReplaced:
		return recoveryIn(f, s, v1.RecoveryRejoining, "the recovered data is in place")
	}
	return &s
}

// rejoined waits for the standbys, which are rewound or made anew.
func rejoined(f *facts.Cluster, s v1.RecoveryStatus) *v1.RecoveryStatus {
	var waiting []string
	for _, i := range f.Instances {
		if report, heard := i.Report.Get(); !heard || !i.Ready() || report.Timeline < s.Timeline {
			waiting = append(waiting, i.Name)
		}
	}
	done := "The cluster is as it was at " + s.Target
	if report := said(f, s); report != nil && report.Stage == agentapi.InPlaceFailed { // somebody had data from before take over
		s.MinimumTimeline = s.Timeline
		return recoveryEnded(f, s, v1.RecoveryFailed, report.Error)
	}
	switch {
	case len(waiting) == 0:
		s.MinimumTimeline = s.Timeline
		return recoveryEnded(f, s, v1.RecoveryCompleted, done)
	case f.Now.Sub(s.ChangedAt.Time) > rejoinBound:
		s.MinimumTimeline = s.Timeline
		return recoveryEnded(f, s, v1.RecoveryCompleted, done+fmt.Sprintf("; %s did not follow within %s", strings.Join(waiting, ", "), rejoinBound))
	}
	s.Message = "the recovered data is in place; waiting for " + strings.Join(waiting, ", ")
	return &s
}
