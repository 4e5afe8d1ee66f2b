package upgrade

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/facts"
)

// Bounds and pauses.
const (
	// prepareBound is how long the source may take to be prepared, and silentBound how long the seed may not be heard.
	prepareBound = 15 * time.Minute
	silentBound  = 15 * time.Minute
	// seedBound is how long the seed may take for one step: one table, pg_upgrade, statistics.
	seedBound = 6 * time.Hour
	// rollBound is how long a rolled standby may take before the switchover goes ahead without it.
	rollBound = 30 * time.Minute
	// caughtUpLag is how far the seed may be behind when the switchover begins; what is left is drained while writes pause.
	caughtUpLag = 4 << 20
	// maxAttempts is how many seeds are tried, attemptPause the pause after the first, which doubles.
	maxAttempts  = 3
	attemptPause = 30 * time.Second
	// switchoverBackoff is the pause after a switchover that was refused, which doubles up to switchoverLongest.
	switchoverBackoff = 30 * time.Second
	switchoverLongest = 30 * time.Minute
	// askPatience is how long an agent that was asked may take to say how the switchover goes.
	askPatience = time.Minute
	// offlinePause is how long the primary may be stopped for the seed to be converted (in place); then it starts again.
	offlinePause = 30 * time.Minute
	// clockTolerance is how far the clocks of two machines may differ.
	clockTolerance = 2 * time.Second
	// soon is when to look again after the status was written, watch while something moves, rest while nothing should.
	soon  = 200 * time.Millisecond
	watch = 2 * time.Second
	rest  = 15 * time.Second
)

// Step is what is to be done about a major upgrade in one pass. Config, Versions and Carry follow from the status that is stored; what
// is new in Status is acted upon in the next pass, when it is stored itself.
type Step struct {
	// Applies says that nothing else is to be done now but what mends; Waits that an upgrade is wanted and waits for the cluster, or for
	// somebody.
	Applies, Waits bool
	// Status is what is to be stored; nil: there never was an upgrade.
	Status *v1.UpgradeStatus
	// Config is what the agents are told; nil: nothing.
	Config *agentapi.Upgrade
	// Versions are the majors of instances that are not to run the live one. Carry is the instance that needs the programs of From.
	Versions map[string]string
	Carry    string
	// Restart is an instance whose Pod is to be made anew, with another major.
	Restart string
	// Backup is the name of the PostgresBackup to ask for, which the upgrade waits for.
	Backup string
	// Switch is what the live primary's agent is to be asked for.
	Switch *agentapi.UpgradeSwitchoverRequest
	// Reason and Message are for people, Problem what somebody should mend, Preflight the condition.
	Reason, Message string
	Problem         *facts.Problem
	Preflight       *metav1.Condition
	// Recheck is when to look again although nothing is heard.
	Recheck time.Duration
}

// Refused is the status after the live primary's agent has refused a switchover.
func Refused(u *v1.UpgradeStatus, why string, now time.Time) *v1.UpgradeStatus {
	next := u.DeepCopy()
	pause := min(switchoverBackoff<<min(next.Refusals, 10), switchoverLongest)
	next.Refusals++
	next.AskedAt, next.LastFailure, next.RetryAt = nil, why, at(now.Add(pause))
	next.Phase = v1.UpgradeAwaitSwitchover
	if next.SwitchedOverAt != nil {
		next.Phase = v1.UpgradeRollback
	}
	return next
}

// Unanswered is the status after the agent could not be asked.
func Unanswered(u *v1.UpgradeStatus) *v1.UpgradeStatus {
	next := u.DeepCopy()
	next.AskedAt = nil
	return next
}

func at(t time.Time) *metav1.Time {
	stamp := metav1.NewTime(t)
	return &stamp
}
