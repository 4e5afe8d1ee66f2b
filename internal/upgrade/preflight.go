package upgrade

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// maxFindings is how many the status holds.
const maxFindings = 200

// preflight waits until nothing speaks against the upgrade; then it chooses the seed.
func (p *pass) preflight() {
	f, u := p.f, p.u
	p.step.Waits, p.step.Reason, p.step.Recheck = true, v1.ReasonUpgradeWaits, rest
	switch f.Version {
	case u.To:
	case u.From:
		p.finish(v1.UpgradeRolledBack, "the upgrade from %s to %s was called off", u.From, u.To)
		return
	default: // another version is wanted
		p.u = &v1.UpgradeStatus{
			From: f.Live, To: f.Version, Phase: v1.UpgradePreflight, StartedAt: at(f.Now), FromImage: u.FromImage, Wish: wish(f), Surge: u.Surge,
		}
		p.step.Message, p.step.Recheck = fmt.Sprintf("The upgrade is to go to %s now", f.Version), soon
		return
	}
	u.FromImage = cmp.Or(u.FromImage, f.Images[u.From])
	if why := unfit(f); why != "" {
		p.wait(v1.ReasonUpgradeWaits, why)
		return
	}
	found, why := findings(f, u.To)
	if found == nil {
		p.wait(v1.ReasonUpgradeWaits, why)
		p.step.Recheck = watch
		return
	}
	u.Findings = statusFindings(found)
	if blockers := blocking(found); blockers != "" {
		p.wait(v1.ReasonUpgradeBlocked, blockers)
		p.step.Problem = &facts.Problem{Reason: v1.ReasonUpgradeBlocked, Message: fmt.Sprintf(
			"the upgrade from %s to %s waits, and goes on by itself when this is mended: %s", u.From, u.To, blockers)}
		return
	}
	p.step.Preflight = passed(u.From, u.To, found)
	if u.RetryAt != nil && f.Now.Before(u.RetryAt.Time) {
		p.step.Message = fmt.Sprintf("Upgrading from %s to %s: the next attempt begins in a moment, since the last one failed: %s", u.From, u.To, u.LastFailure)
		p.step.Recheck = min(rest, u.RetryAt.Sub(f.Now))
		return
	}
	if !p.backedUp() {
		return
	}
	if f.Replicas < 2 {
		u.Surge = true
		p.step.Message = fmt.Sprintf("Upgrading from %s to %s: a second instance is added, and removed when the upgrade is over", u.From, u.To)
		p.step.Recheck = soon
		return
	}
	p.choose()
}

// backedUp says whether there is a backup from before the upgrade, if the cluster is backed up: after the time in which one can go back, what it was
// before is in backups only, and the newest of them may be as old as the schedule says.
func (p *pass) backedUp() bool {
	u, b := p.u, p.f.Backup
	if b == nil || b.BeforeUpgrade == nil || b.BeforeUpgrade.Phase == v1.BackupCompleted {
		return true
	}
	wanted := b.BeforeUpgrade
	without := fmt.Sprintf("To upgrade without it, set the annotation %s=true", naming.AnnotationSkipUpgradeBackup)
	switch {
	case !wanted.Asked:
		p.step.Backup, p.step.Recheck = wanted.Name, soon
		p.wait(v1.ReasonUpgradeWaits, "a backup is made first, PostgresBackup "+wanted.Name)
	case wanted.Phase == v1.BackupFailed:
		why := fmt.Sprintf("the backup before it, PostgresBackup %s, failed: %s. To try again, delete that PostgresBackup. %s", wanted.Name, wanted.Message, without)
		p.wait(v1.ReasonUpgradeBlocked, why)
		p.step.Problem = &facts.Problem{Reason: v1.ReasonUpgradeBlocked, Message: fmt.Sprintf("the upgrade from %s to %s waits: %s", u.From, u.To, why)}
	default:
		why := fmt.Sprintf("the backup before it, PostgresBackup %s, is under way", wanted.Name)
		if wanted.Message != "" {
			why += ": " + wanted.Message
		}
		p.wait(v1.ReasonUpgradeWaits, why+". "+without)
	}
	return false
}

// choose takes the standby with the highest number as the seed.
func (p *pass) choose() {
	f, u := p.f, p.u
	for _, i := range slices.Backward(f.Instances) {
		if i.Name == f.Holder {
			continue
		}
		u.Attempt++
		u.ID, u.Seed, u.Source, u.Rolled, u.RetryAt = id(f, u.Attempt), i.Name, f.Holder, nil, nil
		u.WantedMethod = f.Upgrade.Method
		u.Method, u.MethodReason, u.TablesDone, u.TablesTotal = "", "", 0, 0
		u.Progress, u.ProgressAt = "", at(f.Now)
		p.say(v1.UpgradePrepareSource, "%s becomes the first server of %s", i.Name, u.To)
		p.step.Waits, p.step.Recheck = false, soon
		return
	}
}

// wait says what the upgrade waits for before it begins.
func (p *pass) wait(reason, why string) {
	u := p.u
	p.step.Message = fmt.Sprintf("The upgrade from %s to %s has not begun: %s", u.From, u.To, why)
	status := metav1.ConditionUnknown
	if reason == v1.ReasonUpgradeBlocked {
		status = metav1.ConditionFalse
	}
	p.step.Reason = reason
	p.step.Preflight = &metav1.Condition{Type: v1.ConditionUpgradePreflight, Status: status, Reason: reason, Message: why}
}

// unfit is why the cluster cannot be upgraded as it is now; empty: it can.
func unfit(f *facts.Cluster) string {
	primary, known := f.Primary()
	switch {
	case f.Image == "":
		return fmt.Sprintf("the operator has no default image of PostgreSQL %s; set spec.image", f.Version)
	case !known || !primary.Ready():
		return fmt.Sprintf("the primary %s is not known to serve", f.Holder)
	case len(f.Instances) < f.Replicas && f.Upgrade.Status.Surge:
		return "the second instance that it needs does not exist yet"
	case len(f.Instances) != f.Replicas:
		return fmt.Sprintf("there are %d instances of %d", len(f.Instances), f.Replicas)
	case len(f.Fenced) > 0:
		return "an instance is fenced; remove the annotation " + naming.AnnotationFenced
	case f.Switchover != nil && f.Switchover.Phase == v1.SwitchoverInProgress:
		return "a switchover is under way"
	case f.Upgrade.Method == v1.UpgradeInPlace && f.Upgrade.SyncRequired > 0:
		return "with the method InPlace commits would wait after the upgrade until a standby has been copied; set spec.availability.synchronous.mode to preferred for the upgrade"
	case f.Upgrade.SyncRequired > max(0, len(f.Instances)-2):
		return fmt.Sprintf("commits wait for %d standbys, so one can only be spared with %d instances; raise spec.replicas, or set spec.availability.synchronous.mode to preferred for the upgrade",
			f.Upgrade.SyncRequired, f.Upgrade.SyncRequired+2)
	}
	if i := slices.IndexFunc(f.Problems, func(p facts.Problem) bool { return p.Reason == v1.ReasonInvalidSpec }); i >= 0 {
		return f.Problems[i].Message
	}
	for _, i := range f.Instances {
		report, heard := i.Report.Get()
		switch {
		case !heard:
			return fmt.Sprintf("the agent of %s does not answer the operator%s", i.Name, problemOf(i))
		case report.UpgradeProtocol >= agentapi.OldestUpgradeProtocol && report.UpgradeProtocol < protocol(f.Upgrade.Method):
			return fmt.Sprintf("the agent of %s is older than this operator and knows nothing of the method %s; restart the instances first, by the annotation %s, or choose another method",
				i.Name, f.Upgrade.Method, naming.AnnotationRestart)
		case report.UpgradeProtocol < protocol(f.Upgrade.Method):
			return fmt.Sprintf("the agent of %s is older than this operator and knows nothing of major upgrades; restart the instances first, by the annotation %s", i.Name, naming.AnnotationRestart)
		}
		if i.Name != f.Holder {
			if why := f.CannotTakeOver(i); why != "" {
				return fmt.Sprintf("%s is not as it should be: %s%s", i.Name, why, problemOf(i))
			}
		}
	}
	return ""
}

// protocol is what agents must understand for that method.
func protocol(method v1.UpgradeMethod) int {
	if method == v1.UpgradeInPlace {
		return agentapi.UpgradeProtocol
	}
	return agentapi.OldestUpgradeProtocol
}

// findings are those of the live primary's agent, and what the method costs; nil if there are none yet, and why.
func findings(f *facts.Cluster, to string) ([]agentapi.Finding, string) {
	primary, _ := f.Primary()
	report, _ := primary.Report.Get()
	if report.Upgrade == nil || report.Upgrade.Preflight == nil || report.Upgrade.Preflight.To != to {
		return nil, fmt.Sprintf("%s looks for what the upgrade would not carry over", f.Holder)
	}
	made := report.Upgrade.Preflight
	if report.UpgradeProtocol > agentapi.OldestUpgradeProtocol && made.Method != methods[f.Upgrade.Method] { // that is of what the spec said before
		return nil, fmt.Sprintf("%s looks for what the upgrade would not carry over by the method %s", f.Holder, f.Upgrade.Method)
	}
	if made.Problem != nil {
		return nil, fmt.Sprintf("%s could not look for what the upgrade would not carry over: %s", f.Holder, made.Problem.Message)
	}
	found := append([]agentapi.Finding{}, made.Findings...)
	if f.Upgrade.Method == v1.UpgradeInPlace {
		found = append(found, agentapi.Finding{Severity: agentapi.SeverityWarning, Check: "InPlace", Message: fmt.Sprintf(
			"With the method InPlace nobody can read or write for as long as pg_upgrade takes, seconds to minutes, at most %s; there is no way back afterwards but a backup", offlinePause)})
	}
	return found, ""
}

// findingsOnDemand tells what a preflight found that somebody asked for by annotation.
func (p *pass) findingsOnDemand() {
	f := p.f
	if p.step.Config == nil {
		return
	}
	found, why := findings(f, p.step.Config.To)
	switch blockers := blocking(found); {
	case found == nil:
		p.step.Preflight = &metav1.Condition{Type: v1.ConditionUpgradePreflight, Status: metav1.ConditionUnknown, Reason: v1.ReasonUpgradeWaits, Message: why}
	case blockers != "":
		p.step.Preflight = &metav1.Condition{Type: v1.ConditionUpgradePreflight, Status: metav1.ConditionFalse, Reason: v1.ReasonUpgradeBlocked, Message: blockers}
	default:
		p.step.Preflight = passed(f.Live, p.step.Config.To, found)
	}
}

func passed(from, to string, found []agentapi.Finding) *metav1.Condition {
	message := fmt.Sprintf("Nothing that was found speaks against an upgrade from %s to %s", from, to)
	if len(found) > 0 {
		message += ": " + texts(found, func(agentapi.Finding) bool { return true })
	}
	return &metav1.Condition{Type: v1.ConditionUpgradePreflight, Status: metav1.ConditionTrue, Reason: v1.ReasonPreflightPassed, Message: message}
}

// blocking are the blockers in words.
func blocking(found []agentapi.Finding) string {
	return texts(found, func(f agentapi.Finding) bool { return f.Severity == agentapi.SeverityBlocker })
}

// maxText bounds what a condition says of findings; the status has them all.
const maxText = 900

func texts(found []agentapi.Finding, which func(agentapi.Finding) bool) string {
	var said []string
	for _, finding := range found {
		if !which(finding) {
			continue
		}
		text := finding.Message
		if finding.Database != "" {
			text = "database " + finding.Database + ": " + text
		}
		said = append(said, text)
	}
	text := strings.Join(said, "; ")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + " … (all are in status.upgrade.findings)"
	}
	return text
}

func statusFindings(found []agentapi.Finding) []v1.UpgradeFinding {
	var all []v1.UpgradeFinding
	for _, finding := range found[:min(len(found), maxFindings)] {
		all = append(all, v1.UpgradeFinding{
			Severity: string(finding.Severity), Check: finding.Check, Database: finding.Database, Objects: finding.Objects, Message: finding.Message,
		})
	}
	return all
}
