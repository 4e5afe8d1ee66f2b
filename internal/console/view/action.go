package view

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// ActionName is one of the actions, as it stands in addresses.
type ActionName string

// The actions.
const (
	ActionSwitchover ActionName = "switchover"
	ActionBackup     ActionName = "backup"
	ActionPreflight  ActionName = "preflight"
	ActionUpgrade    ActionName = "upgrade"
	ActionContinue   ActionName = "continue"
	ActionRetry      ActionName = "retry"
	ActionRollBack   ActionName = "rollback"
)

// Action is something that a user may do to a cluster, as its page of confirmation tells it.
type Action struct {
	Name  ActionName
	Title string
	// Does says what is done, Costs what that costs, one sentence each.
	Does  string
	Costs []string
	// Choices are what there is to choose from, the first one by default; none: there is nothing to choose.
	ChoiceLabel string
	Choices     []Choice
	// Careful says that it touches who writes, or which version does.
	Careful bool
}

// Choice is one value, and what it means.
type Choice struct{ Value, Label string }

// Has says whether that may be chosen.
func (a Action) Has(value string) bool {
	if len(a.Choices) == 0 {
		return value == ""
	}
	return slices.ContainsFunc(a.Choices, func(c Choice) bool { return c.Value == value })
}

// majors are the versions of PostgreSQL that there are.
var majors = []string{"15", "16", "17", "18"}

// Actions are those that make sense for the cluster as it is now. Whether they are allowed is for the API server to say.
func Actions(c *v1.PostgresCluster, now time.Time) []Action {
	if c.DeletionTimestamp != nil {
		return nil
	}
	var list []Action
	for _, offer := range []func(*v1.PostgresCluster, time.Time) *Action{switchover, backup, goOn, rollBack, retry, preflight, upgrade} {
		if a := offer(c, now); a != nil {
			list = append(list, *a)
		}
	}
	return list
}

// upgrading is the upgrade that is under way; nil if there is none.
func upgrading(c *v1.PostgresCluster) *v1.UpgradeStatus {
	if u := c.Status.Upgrade; u != nil && !u.Phase.Final() {
		return u
	}
	return nil
}

func switchover(c *v1.PostgresCluster, _ time.Time) *Action {
	if c.Status.CurrentPrimary == "" || upgrading(c) != nil || c.Spec.Suspend {
		return nil
	}
	a := &Action{
		Name: ActionSwitchover, Title: "Switch over", Careful: true,
		Does: fmt.Sprintf("Another instance becomes primary instead of %s.", c.Status.CurrentPrimary),
		Costs: []string{
			"Writes pause for about a second: connections to the primary end, and clients have to connect again.",
			"No acknowledged write is lost. If the standby is too far behind, nothing is changed, and the cluster's page says why.",
		},
		ChoiceLabel: "New primary", Choices: []Choice{{Value: naming.SwitchoverBest, Label: "the best standby"}},
	}
	for _, i := range c.Status.Instances {
		if i.Role == v1.RoleStandby && i.Ready {
			a.Choices = append(a.Choices, Choice{Value: i.Name, Label: i.Name})
		}
	}
	if len(a.Choices) == 1 {
		return nil
	}
	return a
}

func backup(c *v1.PostgresCluster, _ time.Time) *Action {
	if c.Spec.Backup == nil {
		return nil
	}
	return &Action{
		Name: ActionBackup, Title: "Back up now",
		Does: "Asks for a backup by creating a PostgresBackup.",
		Costs: []string{
			"The data is read from a standby where there is one: its disk and network are busier meanwhile.",
			"The backup takes room in the repository, until the retention removes it.",
		},
		ChoiceLabel: "Type", Choices: []Choice{
			{Value: "", Label: "as the schedule's"}, {Value: string(v1.BackupFull), Label: "full: everything"},
			{Value: string(v1.BackupDifferential), Label: "differential: what changed since the last full one"},
			{Value: string(v1.BackupIncremental), Label: "incremental: what changed since the last one"},
		},
	}
}

// higher are the majors above the cluster's.
func higher(c *v1.PostgresCluster) []Choice {
	var list []Choice
	for _, major := range majors {
		if number(major) > number(c.Spec.Version) {
			list = append(list, Choice{Value: major, Label: "PostgreSQL " + major})
		}
	}
	return list
}

func number(major string) int {
	n, err := strconv.Atoi(major)
	if err != nil {
		return 0
	}
	return n
}

func preflight(c *v1.PostgresCluster, _ time.Time) *Action {
	if upgrading(c) != nil || len(higher(c)) == 0 || c.Spec.Suspend {
		return nil
	}
	return &Action{
		Name: ActionPreflight, Title: "Check an upgrade",
		Does:        "Looks for what a major upgrade would not carry over, and tells it on the page of the upgrade. Nothing is changed.",
		Costs:       []string{"A few queries on the catalogs of the primary."},
		ChoiceLabel: "To", Choices: higher(c),
	}
}

func upgrade(c *v1.PostgresCluster, _ time.Time) *Action {
	if upgrading(c) != nil || len(higher(c)) == 0 || c.Spec.Suspend {
		return nil
	}
	a := &Action{
		Name: ActionUpgrade, Title: "Upgrade", Careful: true,
		Does: fmt.Sprintf("Sets spec.version, now %s: a major upgrade begins.", c.Spec.Version),
		Costs: []string{
			"Changes of the schema are refused from the beginning until it is over.",
			"One standby after the other leaves the read-only service for a while.",
			"Writes pause once, for about a second, and at most for " + pauseOf(c) + ".",
		},
		ChoiceLabel: "To", Choices: higher(c),
	}
	switch {
	case c.Spec.Upgrade.Method == v1.UpgradeInPlace:
		a.Costs = []string{"The cluster is stopped while its data is converted.", "There is no way back once the new version has started."}
	case c.Spec.Upgrade.Switchover == v1.SwitchoverManual:
		a.Costs = append(a.Costs, "It waits for your word before it switches over.")
	}
	if c.Spec.Upgrade.Method != v1.UpgradeInPlace && c.Spec.Upgrade.RollbackWindow != "" {
		a.Costs = append(a.Costs, fmt.Sprintf("For %s after that one can go back without losing a write.", c.Spec.Upgrade.RollbackWindow))
	}
	return a
}

func pauseOf(c *v1.PostgresCluster) string {
	if c.Spec.Upgrade.MaxWritePause == "" {
		return "the time in spec.upgrade.maxWritePause"
	}
	return string(c.Spec.Upgrade.MaxWritePause)
}

func goOn(c *v1.PostgresCluster, _ time.Time) *Action {
	u := upgrading(c)
	if u == nil || c.Spec.Upgrade.Switchover != v1.SwitchoverManual || u.SwitchedOverAt != nil ||
		c.Annotations[naming.AnnotationUpgradeSwitchover] != "" || c.Spec.Version != u.To {
		return nil
	}
	return &Action{
		Name: ActionContinue, Title: "Let it switch over", Careful: true,
		Does: fmt.Sprintf("The upgrade moves the writes from %s to %s as soon as everything is ready.", u.From, u.To),
		Costs: []string{
			"Writes pause for about a second, and at most for " + pauseOf(c) + "; sessions are ended.",
			"If the new version has not received everything by then, the old one takes writes again, and it is tried later.",
		},
	}
}

func rollBack(c *v1.PostgresCluster, now time.Time) *Action {
	u := upgrading(c)
	if u == nil || c.Spec.Version != u.To {
		return nil
	}
	if u.SwitchedOverAt == nil && u.Phase != v1.UpgradeRevert {
		return &Action{
			Name: ActionRollBack, Title: "Call the upgrade off", Careful: true,
			Does:  fmt.Sprintf("Sets spec.version back to %s: everything of the upgrade is removed.", u.From),
			Costs: []string{"The old version serves all the time.", "What was made for the new version is thrown away; the instances are made standbys of the old one again."},
		}
	}
	if windowOf(u, now) == nil {
		return nil
	}
	return &Action{
		Name: ActionRollBack, Title: "Roll back", Careful: true,
		Does: fmt.Sprintf("Sets spec.version back to %s: the old version takes the writes again.", u.From),
		Costs: []string{
			"Writes pause once more, for about a second; sessions are ended.",
			"No write is lost, also none of those that were made on the new version.",
		},
	}
}

func retry(c *v1.PostgresCluster, _ time.Time) *Action {
	if u := c.Status.Upgrade; u == nil || u.Phase != v1.UpgradeFailed || c.Spec.Version != u.To {
		return nil
	}
	return &Action{
		Name: ActionRetry, Title: "Try the upgrade again",
		Does:  "The upgrade that failed begins again.",
		Costs: []string{"The same as when it was begun: the schema cannot be changed, and standbys are busy. Mend the cause first."},
	}
}
