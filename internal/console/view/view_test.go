package view

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

var now = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func at(ago time.Duration) *metav1.Time { return new(metav1.NewTime(now.Add(-ago))) }

// cluster is a healthy one of three instances, but for what is changed.
func cluster(name string, changes ...func(*v1.PostgresCluster)) *v1.PostgresCluster {
	c := &v1.PostgresCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: name},
		Spec:       v1.PostgresClusterSpec{Version: "16", Replicas: new(int32(3))},
		Status: v1.PostgresClusterStatus{
			Phase: v1.PhaseRunning, Version: "16.14", CurrentPrimary: name + "-1", Replicas: 3, ReadyReplicas: 3,
			Instances: []v1.InstanceStatus{
				{Name: name + "-1", Role: v1.RolePrimary, Ready: true, State: "Running"},
				{Name: name + "-2", Role: v1.RoleStandby, Ready: true, State: "Running", LagBytes: new(int64(10))},
				{Name: name + "-3", Role: v1.RoleStandby, Ready: true, State: "Running", LagBytes: new(int64(4096))},
			},
			Conditions: []metav1.Condition{{Type: v1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1.ReasonReady}},
		},
	}
	for _, change := range changes {
		change(c)
	}
	return c
}

func condition(name string, status metav1.ConditionStatus, reason string) func(*v1.PostgresCluster) {
	return func(c *v1.PostgresCluster) {
		c.Status.Conditions = append([]metav1.Condition{{Type: name, Status: status, Reason: reason, Message: reason}}, c.Status.Conditions...)
	}
}

func phase(p v1.Phase) func(*v1.PostgresCluster) {
	return func(c *v1.PostgresCluster) { c.Status.Phase = p }
}

func upgradeAt(p v1.UpgradePhase, changes ...func(*v1.UpgradeStatus)) func(*v1.PostgresCluster) {
	return func(c *v1.PostgresCluster) {
		c.Spec.Version = "17"
		c.Status.Upgrade = &v1.UpgradeStatus{From: "16", To: "17", Phase: p}
		for _, change := range changes {
			change(c.Status.Upgrade)
		}
	}
}

func switched(u *v1.UpgradeStatus) {
	u.SwitchedOverAt, u.RollbackUntil = at(15*time.Minute), at(-45*time.Minute)
}

func TestStateOf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cluster *v1.PostgresCluster
		want    State
	}{
		"healthy":              {cluster("db"), StateHealthy},
		"never seen":           {&v1.PostgresCluster{}, StateCreating},
		"failed before all":    {cluster("db", phase(v1.PhaseFailed), condition(v1.ConditionDegraded, metav1.ConditionTrue, "X")), StateFailed},
		"deleting":             {cluster("db", func(c *v1.PostgresCluster) { c.DeletionTimestamp = at(0) }), StateDeleting},
		"degraded in upgrade":  {cluster("db", phase(v1.PhaseUpgrading), condition(v1.ConditionDegraded, metav1.ConditionTrue, "X")), StateDegraded},
		"upgrading":            {cluster("db", phase(v1.PhaseUpgrading)), StateUpgrading},
		"suspended":            {cluster("db", phase(v1.PhaseSuspended)), StateSuspended},
		"archiving fails":      {cluster("db", condition(v1.ConditionContinuousArchiving, metav1.ConditionFalse, "X")), StateDegraded},
		"archiving begins":     {cluster("db", condition(v1.ConditionContinuousArchiving, metav1.ConditionUnknown, "X")), StateHealthy},
		"paused":               {cluster("db", condition(v1.ConditionPaused, metav1.ConditionTrue, "X")), StatePaused},
		"nothing says ready":   {cluster("db", func(c *v1.PostgresCluster) { c.Status.Conditions = nil }), StateNotReady},
		"not degraded is good": {cluster("db", condition(v1.ConditionDegraded, metav1.ConditionFalse, "X")), StateHealthy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, c.want, StateOf(c.cluster))
			assert.Contains(t, States, c.want)
		})
	}
}

func names(rows []Row) string {
	var list []string
	for _, row := range rows {
		list = append(list, row.Name)
	}
	return strings.Join(list, " ")
}

func TestFleetOf(t *testing.T) {
	t.Parallel()
	fleet := []*v1.PostgresCluster{
		cluster("b", func(c *v1.PostgresCluster) { c.Status.Version = "16.9" }),
		cluster("a", condition(v1.ConditionDegraded, metav1.ConditionTrue, "DiskFull")),
		cluster("c", func(c *v1.PostgresCluster) {
			c.Namespace, c.Status.Version, c.Status.LastBackup = "other", "17.2", at(time.Hour)
			c.Status.Instances[2].LagBytes = new(int64(1 << 30))
		}),
	}
	for name, c := range map[string]struct {
		filter Filter
		want   string
	}{
		"by name at first":          {Filter{}, "a b c"},
		"the other way round":       {Filter{Sort: "name", Descending: true}, "c b a"},
		"urgent first":              {Filter{Sort: "state"}, "a b c"},
		"numbers as numbers":        {Filter{Sort: "version"}, "b a c"},
		"lag":                       {Filter{Sort: "lag", Descending: true}, "c a b"},
		"backup":                    {Filter{Sort: "backup", Descending: true}, "c a b"},
		"no such order":             {Filter{Sort: "password"}, "a b c"},
		"state":                     {Filter{State: StateDegraded}, "a"},
		"no such state":             {Filter{State: "Odd"}, "a b c"},
		"namespace":                 {Filter{Namespace: "other"}, "c"},
		"search a reason":           {Filter{Search: "diskfull"}, "a"},
		"search both words":         {Filter{Search: "DEMO 16.9"}, "b"},
		"search what is not there":  {Filter{Search: "demo other"}, ""},
		"a page that there is not":  {Filter{Page: 99}, "a b c"},
		"a page before the first":   {Filter{Page: -1}, "a b c"},
		"everything at the same go": {Filter{Search: "o", Namespace: "demo", State: StateHealthy, Sort: "lag"}, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := FleetOf(fleet, c.filter)
			assert.Equal(t, c.want, names(got.Rows))
			assert.Equal(t, 3, got.All)
			assert.Equal(t, []string{"demo", "other"}, got.Namespaces)
		})
	}
}

func TestFleetOf_pages(t *testing.T) {
	t.Parallel()
	var fleet []*v1.PostgresCluster
	for n := range PageSize + 3 {
		fleet = append(fleet, cluster(fmt.Sprintf("db-%04d", n)))
	}
	first, last := FleetOf(fleet, Filter{}), FleetOf(fleet, Filter{Page: 2})
	assert.Len(t, first.Rows, PageSize)
	assert.Equal(t, "db-0500 db-0501 db-0502", names(last.Rows))
	assert.Equal(t, []int{2, PageSize + 1, PageSize + 3}, []int{last.Pages, last.First, last.Last})
	assert.Equal(t, PageSize+3, last.Counts[len(States)-1].Count)
}

func TestRowOf(t *testing.T) {
	t.Parallel()
	row := RowOf(cluster("db", phase(v1.PhaseUpgrading), upgradeAt(v1.UpgradeCatchUp)))
	assert.Equal(t, int64(4096), *row.Lag, "the greatest")
	assert.Equal(t, &UpgradeProgress{From: "16", To: "17", Phase: v1.UpgradeCatchUp, Step: 4, Steps: 10}, row.Upgrade)
	assert.Nil(t, RowOf(cluster("db", upgradeAt(v1.UpgradeDone))).Upgrade, "it is over")
	row = RowOf(&v1.PostgresCluster{})
	assert.Equal(t, "NotSeenYet", row.Reason)
	assert.Nil(t, row.Lag)
}

func TestUpgradeOf_steps(t *testing.T) {
	t.Parallel()
	line := func(c *v1.PostgresCluster) string {
		var words []string
		for _, s := range UpgradeOf(c, now).Steps {
			words = append(words, fmt.Sprintf("%s:%s", s.Phase, s.State))
		}
		return strings.Join(words, " ")
	}
	assert.Contains(t, line(cluster("db", upgradeAt(v1.UpgradeCatchUp))), "SeedStandby:done CatchUp:now RollStandbys:todo")
	assert.True(t, strings.HasSuffix(line(cluster("db", upgradeAt(v1.UpgradeDone))), "Retire:done Done:done"))
	assert.Equal(t, "Preflight:done Revert:done Failed:failed", line(cluster("db", upgradeAt(v1.UpgradeFailed))))
	assert.Equal(t, "Preflight:done Revert:now RolledBack:todo", line(cluster("db", upgradeAt(v1.UpgradeRevert))))
	assert.Contains(t, line(cluster("db", upgradeAt(v1.UpgradeRollback, switched))), "Observe:done Rollback:now Revert:todo RolledBack:todo")
	assert.Contains(t, line(cluster("db", upgradeAt(v1.UpgradeRolledBack, switched))), "Observe:done Rollback:done")
	assert.Nil(t, UpgradeOf(cluster("db"), now))
	for _, p := range append(forward, v1.UpgradeRollback, v1.UpgradeRevert, v1.UpgradeRolledBack, v1.UpgradeFailed) {
		assert.NotEmpty(t, explained[p], p)
		step, steps := place(&v1.UpgradeStatus{Phase: p})
		assert.True(t, step >= 1 && step <= steps, p)
	}
}

func TestUpgradeOf_window(t *testing.T) {
	t.Parallel()
	u := UpgradeOf(cluster("db", upgradeAt(v1.UpgradeObserve, switched)), now)
	require.NotNil(t, u.Window)
	assert.Equal(t, Window{Until: now.Add(45 * time.Minute), Left: "45 min", Percent: 75}, *u.Window)
	assert.Nil(t, UpgradeOf(cluster("db", upgradeAt(v1.UpgradeObserve, switched)), now.Add(time.Hour)).Window, "it is over")
	assert.Nil(t, UpgradeOf(cluster("db", upgradeAt(v1.UpgradeRetire, switched)), now).Window, "it is closed")
}

func TestUpgradeOf_findings(t *testing.T) {
	t.Parallel()
	u := UpgradeOf(cluster("db", upgradeAt(v1.UpgradePreflight, func(u *v1.UpgradeStatus) {
		u.Findings = []v1.UpgradeFinding{{Severity: "Fixed", Check: "a"}, {Severity: "Warning", Check: "b"}, {Severity: "Blocker", Check: "c"}}
	})), now)
	assert.Equal(t, []string{"c", "b", "a"}, []string{u.Findings[0].Check, u.Findings[1].Check, u.Findings[2].Check})
	assert.Equal(t, 1, u.Blockers)
}

func offered(c *v1.PostgresCluster) string {
	var list []string
	for _, a := range Actions(c, now) {
		list = append(list, string(a.Name))
	}
	return strings.Join(list, " ")
}

func TestActions(t *testing.T) {
	t.Parallel()
	manual := func(c *v1.PostgresCluster) { c.Spec.Upgrade.Switchover = v1.SwitchoverManual }
	for name, c := range map[string]struct {
		cluster *v1.PostgresCluster
		want    string
	}{
		"a cluster without backups": {cluster("db"), "switchover preflight upgrade"},
		"with backups":              {cluster("db", func(c *v1.PostgresCluster) { c.Spec.Backup = &v1.BackupSpec{} }), "switchover backup preflight upgrade"},
		"one instance":              {cluster("db", func(c *v1.PostgresCluster) { c.Status.Instances = c.Status.Instances[:1] }), "preflight upgrade"},
		"the newest version":        {cluster("db", func(c *v1.PostgresCluster) { c.Spec.Version = "18" }), "switchover"},
		"being deleted":             {cluster("db", func(c *v1.PostgresCluster) { c.DeletionTimestamp = at(0) }), ""},
		"suspended":                 {cluster("db", func(c *v1.PostgresCluster) { c.Spec.Suspend = true }), ""},
		"upgrading by itself":       {cluster("db", upgradeAt(v1.UpgradeCatchUp)), "rollback"},
		"upgrading by hand":         {cluster("db", manual, upgradeAt(v1.UpgradeAwaitSwitchover)), "continue rollback"},
		"approved already": {cluster("db", manual, upgradeAt(v1.UpgradeAwaitSwitchover), func(c *v1.PostgresCluster) {
			c.Annotations = map[string]string{naming.AnnotationUpgradeSwitchover: "now"}
		}), "rollback"},
		"in the window":        {cluster("db", manual, upgradeAt(v1.UpgradeObserve, switched)), "rollback"},
		"after the window":     {cluster("db", upgradeAt(v1.UpgradeRetire, switched)), ""},
		"being rolled back":    {cluster("db", upgradeAt(v1.UpgradeRollback, switched), func(c *v1.PostgresCluster) { c.Spec.Version = "16" }), ""},
		"a failed upgrade":     {cluster("db", upgradeAt(v1.UpgradeFailed)), "switchover retry preflight upgrade"},
		"called off, reverted": {cluster("db", upgradeAt(v1.UpgradeRolledBack), func(c *v1.PostgresCluster) { c.Spec.Version = "16" }), "switchover preflight upgrade"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, c.want, offered(c.cluster))
			for _, a := range Actions(c.cluster, now) {
				assert.NotEmpty(t, a.Costs, a.Name)
				assert.False(t, a.Has("no such choice"), a.Name)
				for _, choice := range a.Choices {
					assert.True(t, a.Has(choice.Value))
				}
			}
		})
	}
}

// arrows are the drawing's arrows in words.
func arrows(c *v1.PostgresCluster) string { return Draw(c, false).Description }

func TestDraw(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "db-1 is primary. db-2 follows db-1, 10 B behind. db-3 follows db-1, 4.0 KiB behind", arrows(cluster("db")))
	assert.Equal(t, "db-1 is primary. db-3 follows db-1, logical, 4.0 KiB behind. db-2 follows db-3, 10 B behind",
		arrows(cluster("db", upgradeAt(v1.UpgradeRollStandbys, func(u *v1.UpgradeStatus) { u.Seed, u.Rolled = "db-3", []string{"db-2"} }))))
	assert.Equal(t, "db-1 is primary. db-2 follows db-1, 10 B behind. db-3 follows db-1, logical, 4.0 KiB behind",
		arrows(cluster("db", upgradeAt(v1.UpgradeObserve, switched, func(u *v1.UpgradeStatus) { u.Seed, u.Origin = "db-1", "db-3" }))))
	assert.Equal(t, "db-1 is primary. db-2 is standby. db-3 is standby",
		arrows(cluster("db", func(c *v1.PostgresCluster) { c.Status.CurrentPrimary = "" })), "nobody is known to follow anybody")
	assert.Empty(t, Draw(&v1.PostgresCluster{}, false).Nodes)
	lost := cluster("db", func(c *v1.PostgresCluster) { c.Status.Instances[2].Role = "" })
	assert.Contains(t, arrows(lost), "db-3 is role unknown")
}

// TestDraw_nothingOverlaps: no box covers another, and all are inside, whichever way the drawing goes.
func TestDraw_nothingOverlaps(t *testing.T) {
	t.Parallel()
	c := cluster("db", upgradeAt(v1.UpgradeRollStandbys, func(u *v1.UpgradeStatus) { u.Seed, u.Rolled = "db-3", []string{"db-2", "db-5"} }), func(c *v1.PostgresCluster) {
		for n := 4; n <= 9; n++ {
			c.Status.Instances = append(c.Status.Instances, v1.InstanceStatus{Name: fmt.Sprintf("db-%d", n), Role: v1.RoleStandby})
		}
		c.Status.Instances[8].Role = ""
	})
	for _, narrow := range []bool{false, true} {
		d := Draw(c, narrow)
		require.Len(t, d.Nodes, 9)
		assert.Len(t, d.Edges, 7)
		for n, a := range d.Nodes {
			assert.True(t, a.X >= 0 && a.Y >= 0 && a.X+a.Width <= d.Width && a.Y+a.Height <= d.Height, a.Full)
			for _, b := range d.Nodes[n+1:] {
				apart := a.X+a.Width <= b.X || b.X+b.Width <= a.X || a.Y+a.Height <= b.Y || b.Y+b.Height <= a.Y
				assert.True(t, apart, "%s and %s overlap (narrow: %t)", a.Full, b.Full, narrow)
			}
		}
	}
}

func TestBackupsOf(t *testing.T) {
	t.Parallel()
	backup := func(name string, kind v1.BackupType, p v1.BackupPhase, ago time.Duration) v1.PostgresBackup {
		b := v1.PostgresBackup{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: *at(ago)}, Status: v1.PostgresBackupStatus{Phase: p, Type: kind}}
		if p == v1.BackupCompleted || p == v1.BackupFailed {
			b.Status.FinishedAt = at(ago)
		}
		return b
	}
	list := []v1.PostgresBackup{
		backup("old", v1.BackupFull, v1.BackupCompleted, 40*time.Hour), backup("failed", v1.BackupFull, v1.BackupFailed, 60*time.Hour),
		backup("new", v1.BackupIncremental, v1.BackupCompleted, 10*time.Hour), backup("running", "", v1.BackupRunning, time.Minute),
	}
	c := cluster("db", func(c *v1.PostgresCluster) {
		c.Spec.Backup = &v1.BackupSpec{}
		c.Status.FirstRecoverable, c.Status.LastArchived = at(40*time.Hour), at(time.Hour)
	})
	page := BackupsOf(c, list, now)
	assert.Equal(t, "running", page.List[0].Name)
	assert.Equal(t, "failed", page.List[3].Name)
	require.NotNil(t, page.Line)
	assert.Equal(t, "Every moment from 2026-11-27 20:00 UTC to 2026-11-29 11:00 UTC can be recovered.", page.Line.Sentence)
	require.Len(t, page.Line.Marks, 3, "what has not ended is no backup yet")
	for _, mark := range page.Line.Marks {
		assert.True(t, mark.X > 0 && mark.X < page.Line.Width, mark.Caption)
	}
	assert.Positive(t, page.Line.BarX)
	assert.Less(t, page.Line.BarX+page.Line.BarWidth, page.Line.Width, "what is not archived yet cannot be recovered")
	c.Status.FirstRecoverable = nil
	assert.Nil(t, BackupsOf(c, list, now).Line)
	c.Status.FirstRecoverable, c.Status.LastArchived = at(-time.Minute), nil
	assert.Nil(t, BackupsOf(c, nil, now).Line, "a clock that is ahead")
}

func TestWords(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		time.Second: "just now", 30 * time.Second: "30 s ago", 90 * time.Second: "1 min ago", 3*time.Hour + 5*time.Minute: "3 h 5 min ago",
		3 * time.Hour: "3 h ago", 30 * time.Hour: "30 h ago", 50 * time.Hour: "2 days ago", -30 * time.Minute: "in 30 min",
	} {
		assert.Equal(t, want, Ago(now.Add(-d), now))
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 16 << 20: "16 MiB", 5 << 40: "5.0 TiB"} {
		assert.Equal(t, want, Bytes(n))
	}
	assert.Equal(t, "…-db-2", shortened("a-very-long-prod-db-2", 6))
	assert.Equal(t, "short", shortened("short", 6))
	assert.Equal(t, "some…", cut("some words", 6))
}
