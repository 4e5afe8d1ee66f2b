package view

import (
	"cmp"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
)

// The ways that an upgrade can go; which one it is on is known by its phase and by whether the new version has ever had the writes.
var (
	forward = []v1.UpgradePhase{
		v1.UpgradePreflight, v1.UpgradePrepareSource, v1.UpgradeSeedStandby, v1.UpgradeCatchUp, v1.UpgradeRollStandbys,
		v1.UpgradeAwaitSwitchover, v1.UpgradeSwitchingOver, v1.UpgradeObserve, v1.UpgradeRetire, v1.UpgradeDone,
	}
	rolledBack = []v1.UpgradePhase{
		v1.UpgradePreflight, v1.UpgradePrepareSource, v1.UpgradeSeedStandby, v1.UpgradeCatchUp, v1.UpgradeRollStandbys,
		v1.UpgradeAwaitSwitchover, v1.UpgradeSwitchingOver, v1.UpgradeObserve, v1.UpgradeRollback, v1.UpgradeRevert, v1.UpgradeRolledBack,
	}
	calledOff = []v1.UpgradePhase{v1.UpgradePreflight, v1.UpgradeRevert, v1.UpgradeRolledBack}
	failed    = []v1.UpgradePhase{v1.UpgradePreflight, v1.UpgradeRevert, v1.UpgradeFailed}
)

// explained says what each phase does, in words for people.
var explained = map[v1.UpgradePhase]string{
	v1.UpgradePreflight:       "Looks for what would not go over",
	v1.UpgradePrepareSource:   "Makes publications and slots; changes of the schema are refused from here on",
	v1.UpgradeSeedStandby:     "Makes the new version's data on one standby",
	v1.UpgradeCatchUp:         "The new version follows, and gets its statistics",
	v1.UpgradeRollStandbys:    "The other standbys go to the new version, one at a time",
	v1.UpgradeAwaitSwitchover: "Waits for a word, or to try again",
	v1.UpgradeSwitchingOver:   "Writes pause, and go on in the new version",
	v1.UpgradeObserve:         "The old version follows, so that one can go back",
	v1.UpgradeRollback:        "Writes pause, and go on in the old version",
	v1.UpgradeRetire:          "Removes what the upgrade needed; the last instances get the new version",
	v1.UpgradeRevert:          "Removes what the upgrade needed; all instances are of the old version again",
	v1.UpgradeDone:            "Nothing is left to do",
	v1.UpgradeRolledBack:      "The old version serves, as before",
	v1.UpgradeFailed:          "All attempts failed; the old version serves, as before",
}

// way is the phases that this upgrade goes through.
func way(u *v1.UpgradeStatus) []v1.UpgradePhase {
	back := u.Phase == v1.UpgradeRevert || u.Phase == v1.UpgradeRolledBack
	switch {
	case u.Phase == v1.UpgradeFailed:
		return failed
	case u.Phase == v1.UpgradeRollback, back && u.SwitchedOverAt != nil:
		return rolledBack
	case back:
		return calledOff
	}
	return forward
}

// place is which step of how many the upgrade is at, from 1.
func place(u *v1.UpgradeStatus) (step, steps int) {
	phases := way(u)
	return slices.Index(phases, u.Phase) + 1, len(phases)
}

// Step is one phase on the line of an upgrade.
type Step struct {
	Phase       v1.UpgradePhase
	Explanation string
	// State is done, now, failed or todo.
	State string
}

// Upgrade is the page of a cluster's major upgrade.
type Upgrade struct {
	*v1.UpgradeStatus
	Steps    []Step
	Active   bool
	Findings []v1.UpgradeFinding
	Blockers int
	// Preflight is the condition with the answer to what was asked, if it was.
	Preflight *Condition
	// Window is nil while there is no way back to be had by setting the version back after a switchover.
	Window *Window
}

// Window is for how long one can still go back.
type Window struct {
	Until time.Time
	// Left in words; Percent of the whole window.
	Left    string
	Percent int
}

// UpgradeOf is nil if there has been none, and none was asked about.
func UpgradeOf(c *v1.PostgresCluster, now time.Time) *Upgrade {
	status := c.Status.Upgrade
	condition := apimeta.FindStatusCondition(c.Status.Conditions, v1.ConditionUpgradePreflight)
	if status == nil && condition == nil {
		return nil
	}
	u := &Upgrade{UpgradeStatus: status}
	if condition != nil {
		preflight := conditionOf(*condition)
		u.Preflight = &preflight
	}
	if status == nil {
		return u
	}
	u.Active = !status.Phase.Final()
	u.Steps = stepsOf(status)
	u.Findings = slices.Clone(status.Findings)
	slices.SortStableFunc(u.Findings, func(a, b v1.UpgradeFinding) int {
		return cmp.Compare(severity(a), severity(b))
	})
	for _, f := range u.Findings {
		if severity(f) == 0 {
			u.Blockers++
		}
	}
	u.Window = windowOf(status, now)
	return u
}

func stepsOf(u *v1.UpgradeStatus) []Step {
	phases := way(u)
	at := slices.Index(phases, u.Phase)
	steps := make([]Step, 0, len(phases))
	for n, phase := range phases {
		step := Step{Phase: phase, Explanation: explained[phase], State: "todo"}
		switch {
		case u.Phase == v1.UpgradeFailed && n == at:
			step.State = "failed"
		case n < at, n == at && u.Phase.Final():
			step.State = "done"
		case n == at:
			step.State = "now"
		}
		steps = append(steps, step)
	}
	return steps
}

// severity orders findings: what stops the upgrade comes first.
func severity(f v1.UpgradeFinding) int {
	switch f.Severity {
	case "Blocker":
		return 0
	case "Warning":
		return 1
	}
	return 2
}

// windowOf is nil when there is no way back, or not any more.
func windowOf(u *v1.UpgradeStatus, now time.Time) *Window {
	if u.Phase != v1.UpgradeObserve || u.RollbackUntil == nil || u.SwitchedOverAt == nil || !now.Before(u.RollbackUntil.Time) {
		return nil
	}
	left, whole := u.RollbackUntil.Sub(now), u.RollbackUntil.Sub(u.SwitchedOverAt.Time)
	percent := 100
	if whole > 0 {
		percent = min(100, int(100*left/whole))
	}
	return &Window{Until: u.RollbackUntil.Time, Left: span(left), Percent: percent}
}

// conditionOf is a condition for a page.
func conditionOf(c metav1.Condition) Condition {
	return Condition{Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime.Time, Tone: conditionTone(c)}
}
