//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// boundUpgrade is for a major upgrade of little data, up to the switchover, or back; or from there to its end. It needs about a minute, and
// five where compilers keep a small machine busy.
const boundUpgrade = 8 * time.Minute

// content is what an application has: keys and none, sequences, text, a foreign key, an index on an expression, a view, partitions.
const content = `
CREATE TABLE customers (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE, since timestamptz DEFAULT now(), data jsonb);
CREATE TABLE orders (id serial PRIMARY KEY, customer bigint REFERENCES customers, amount numeric(10,2), note text);
CREATE TABLE log (at timestamptz, line text);
CREATE TABLE parts (day date, n integer) PARTITION BY RANGE (day);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM ('2026-01-01') TO ('2026-07-01');
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM ('2026-07-01') TO ('2027-01-01');
CREATE INDEX ON customers (lower(name));
CREATE VIEW totals AS SELECT customer, sum(amount) AS total FROM orders GROUP BY customer;
CREATE FUNCTION double(n integer) RETURNS integer LANGUAGE sql AS 'SELECT 2 * n';
INSERT INTO customers (name, data) SELECT 'customer ' || i, jsonb_build_object('i', i, 'text', repeat(chr(65 + i % 26), 20)) FROM generate_series(1, 2000) i;
INSERT INTO orders (customer, amount, note) SELECT 1 + i % 2000, i / 7.0, CASE WHEN i % 3 = 0 THEN 'note ' || i END FROM generate_series(1, 10000) i;
INSERT INTO log SELECT timestamptz '2026-01-01' + i * interval '1 minute', 'line ' || i % 50 FROM generate_series(1, 1000) i;
INSERT INTO parts SELECT date '2026-01-01' + i % 360, i FROM generate_series(1, 1000) i;`

// contentSum is one line that differs if anything of the content does.
const contentSum = `SELECT concat_ws(' ',
	(SELECT md5(string_agg(c::text, ',' ORDER BY id)) FROM customers c), (SELECT md5(string_agg(o::text, ',' ORDER BY id)) FROM orders o),
	(SELECT md5(string_agg(l::text, ',' ORDER BY l::text)) FROM log l), (SELECT md5(string_agg(p::text, ',' ORDER BY n)) FROM parts p),
	(SELECT md5(string_agg(t::text, ',' ORDER BY customer)) FROM totals t), double(21))`

// upgraded is an application on a cluster that goes from one version to another and back.
type upgraded struct {
	cluster
	writer writer
	sum    string
}

// startUpgraded makes a cluster with content, and an application that writes.
func startUpgraded(t *testing.T, version string, replicas int32, upgrade v1.UpgradeSpec) upgraded {
	t.Helper()
	namespace := newNamespace(t)
	object := newCluster(namespace, "db", version, replicas)
	object.Spec.Upgrade = upgrade
	c := create(t, object)
	startClient(t, namespace)
	c.waitReady(t)
	u := upgraded{cluster: c}
	c.sql(t, naming.ServiceRW(c.name), content)
	u.sum = c.sql(t, naming.ServiceRW(c.name), contentSum)
	u.writer = startWriter(t, c)
	c.sql(t, naming.ServiceRW(c.name), "ALTER TABLE written ADD COLUMN at timestamptz DEFAULT clock_timestamp()")
	u.writer.waitWritten(t, 5)
	return u
}

// to changes the version and waits until the upgrade is in that phase; it must not be in any of the others before. It returns the
// phases that it was seen in.
func (u upgraded) to(t *testing.T, version string, phase v1.UpgradePhase, not ...v1.UpgradePhase) []v1.UpgradePhase {
	t.Helper()
	generation := u.get(t).Generation
	u.patch(t, func(spec *v1.PostgresClusterSpec) { spec.Version = version })
	return u.waitPhase(t, phase, generation, not...)
}

func (u upgraded) waitPhase(t *testing.T, phase v1.UpgradePhase, after int64, not ...v1.UpgradePhase) []v1.UpgradePhase {
	t.Helper()
	var seen []v1.UpgradePhase
	began := time.Now()
	last := ""
	for {
		object := u.get(t)
		if s := object.Status.Upgrade; s != nil && object.Status.ObservedGeneration > after {
			if len(seen) == 0 || seen[len(seen)-1] != s.Phase {
				seen = append(seen, s.Phase)
				t.Logf("%5.1f s: %s: %s", time.Since(began).Seconds(), s.Phase, s.Message)
			}
			if s.Phase == phase {
				t.Logf("MEASURED: from %s to %s: %s after %.0f s, %d instances, %s", s.From, s.To, phase, time.Since(began).Seconds(), len(object.Status.Instances), s.Method)
				return seen
			}
			last = fmt.Sprintf("%s: %s (last failure: %q)", s.Phase, s.Message, s.LastFailure)
			require.NotContains(t, not, s.Phase, last)
		}
		require.Less(t, time.Since(began), boundUpgrade, "the upgrade is not in phase %s: %s", phase, last)
		time.Sleep(tick / 5)
	}
}

// requireServes: that version has the writes, with the whole content.
func (u upgraded) requireServes(t *testing.T, version string) {
	t.Helper()
	eventually(t, boundSettle, "PostgreSQL "+version+" serves", func(collect *assert.CollectT) {
		require.True(collect, strings.HasPrefix(u.get(collect).Status.Version, version+"."), "status.version is %s", u.get(collect).Status.Version)
		require.Equal(collect, version, u.sql(collect, naming.ServiceRW(u.name), "SELECT current_setting('server_version_num')::int / 10000"))
	})
	require.Equal(t, u.sum, u.sql(t, naming.ServiceRW(u.name), contentSum))
	u.writer.waitWritten(t, 5)
}

// requirePause: the status says that writes paused for some seconds at most; it is reported, beside what the application saw.
func (u upgraded) requirePause(t *testing.T, what string) {
	t.Helper()
	u.requirePauseWithin(t, what, 10*time.Second)
}

func (u upgraded) requirePauseWithin(t *testing.T, what string, most time.Duration) {
	t.Helper()
	s := u.get(t).Status.Upgrade
	pause, err := time.ParseDuration(s.LastWritePause)
	require.NoError(t, err, "lastWritePause")
	require.Positive(t, pause)
	require.Less(t, pause, most)
	gap := u.sql(t, naming.ServiceRW(u.name), "SELECT max(gap)::text FROM (SELECT at - lag(at) OVER (ORDER BY at) AS gap FROM written) g")
	t.Logf("MEASURED: %s: %s paused writes for %s; the longest pause that the application has seen: %s", what, s.Method, pause, gap)
}

// requireClean: nothing of the upgrade is left on the primary.
func (u upgraded) requireClean(t *testing.T) {
	t.Helper()
	for what, query := range map[string]string{
		"publications":  "SELECT count(*) FROM pg_publication",
		"subscriptions": "SELECT count(*) FROM pg_subscription",
		"logical slots": "SELECT count(*) FROM pg_replication_slots WHERE slot_type = 'logical'",
		"triggers":      "SELECT count(*) FROM pg_event_trigger",
		"schemas":       "SELECT count(*) FROM pg_namespace WHERE nspname = '" + naming.UpgradeSchema + "'",
		"identities":    "SELECT count(*) FROM pg_class WHERE relreplident = 'f'",
		"roles":         "SELECT count(*) FROM pg_roles WHERE rolname = '" + naming.UpgradeUser + "'",
	} {
		eventually(t, boundSettle, "no "+what+" are left", func(collect *assert.CollectT) {
			require.Equal(collect, "0", u.superuserIn(collect, u.primaryPod(collect), "app", query), what)
		})
	}
	u.sql(t, naming.ServiceRW(u.name), "CREATE TABLE afterwards (id serial PRIMARY KEY); DROP TABLE afterwards")
}

// requireSequences: sequences go on after what they gave out before.
func (u upgraded) requireSequences(t *testing.T) {
	t.Helper()
	id := u.sql(t, naming.ServiceRW(u.name), "INSERT INTO customers (name) VALUES ('new') RETURNING id")
	n, err := strconv.Atoi(id)
	require.NoError(t, err)
	require.Greater(t, n, 2000)
	u.sql(t, naming.ServiceRW(u.name), "DELETE FROM customers WHERE name = 'new'")
}

// TestUpgrade: 15 → 17 while an application writes, back within the window, and over again for good: no row is lost.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	u := startUpgraded(t, "15", 3, v1.UpgradeSpec{})
	primary := u.get(t).Status.CurrentPrimary

	t.Run("there", func(t *testing.T) {
		seen := u.to(t, "17", v1.UpgradeObserve, v1.UpgradeRevert, v1.UpgradeFailed)
		require.Contains(t, seen, v1.UpgradeSeedStandby)
		u.requireServes(t, "17")
		u.requirePause(t, "15 to 17")
		s := u.get(t).Status
		require.Equal(t, string(v1.UpgradePhysical), s.Upgrade.Method, s.Upgrade.MethodReason)
		require.Equal(t, primary, s.Upgrade.Origin)
		require.NotEqual(t, primary, s.CurrentPrimary)
		require.NotNil(t, s.Upgrade.RollbackUntil)
		require.NotEmpty(t, u.events(t, v1.ReasonUpgradeSwitchedOver))
		require.True(t, apimeta.IsStatusConditionTrue(s.Conditions, v1.ConditionReady), "it serves: %v", apimeta.FindStatusCondition(s.Conditions, v1.ConditionReady))
		_, err := u.trySQL(naming.ServiceRW(u.name), "", "sslmode=require", "CREATE TABLE meanwhile (id integer)")
		require.ErrorContains(t, err, "is refused during the major upgrade")
		u.requireSequences(t)
	})
	t.Run("back", func(t *testing.T) {
		u.to(t, "15", v1.UpgradeRolledBack, v1.UpgradeRetire, v1.UpgradeDone, v1.UpgradeFailed)
		u.requireServes(t, "15")
		u.requirePause(t, "17 back to 15")
		u.requireSequences(t)
		u.waitSound(t)
		u.requireOnePrimary(t)
		u.requireClean(t)
	})
	t.Run("again, for good", func(t *testing.T) {
		u.patch(t, func(spec *v1.PostgresClusterSpec) { spec.Upgrade.RollbackWindow = "5s" })
		u.to(t, "17", v1.UpgradeDone, v1.UpgradeRevert, v1.UpgradeFailed)
		u.requireDone(t, "17")
	})
	u.writer.stop(t)
	for _, refused := range u.writer.requireKept(t) {
		t.Log("refused: ", refused)
	}
}

// requireDone: all instances run that version, and nothing reminds of the one before.
func (u upgraded) requireDone(t *testing.T, version string) {
	t.Helper()
	u.requireServes(t, version)
	u.requireSequences(t)
	u.waitSound(t)
	u.requireOnePrimary(t)
	u.requireClean(t)
	for _, i := range u.get(t).Status.Instances {
		require.True(t, strings.HasPrefix(i.Version, version+"."), "%s runs %s", i.Name, i.Version)
	}
	for name, pod := range u.pods(t) {
		require.Equal(t, postgresImage(t, version), pod.Spec.Containers[0].Image, name)
		eventually(t, boundSettle, name+" has only data of "+version, func(collect *assert.CollectT) {
			out, err := inPod(u.namespace, name, naming.ContainerPostgres, "", "ls", naming.PathData+"/pgdata")
			require.NoError(collect, err)
			require.Equal(collect, []string{version}, strings.Fields(out), name)
		})
	}
	require.NotEmpty(t, u.events(t, v1.ReasonUpgraded))
}

// TestUpgradeLogical: where the old image has no programs for pg_upgrade, the tables are copied.
func TestUpgradeLogical(t *testing.T) {
	t.Parallel()
	u := startUpgraded(t, "16", 3, v1.UpgradeSpec{RollbackWindow: "5s"})
	seen := u.to(t, "17", v1.UpgradeDone, v1.UpgradeRevert, v1.UpgradeFailed)
	require.Contains(t, seen, v1.UpgradeObserve)
	require.Equal(t, string(v1.UpgradeLogical), u.get(t).Status.Upgrade.Method)
	require.Contains(t, u.get(t).Status.Upgrade.MethodReason, "the old image has no")
	u.requirePause(t, "16 to 17")
	u.requireDone(t, "17")
	u.writer.stop(t)
	for _, refused := range u.writer.requireKept(t) {
		t.Log("refused: ", refused)
	}
}

// TestUpgradeInPlace: all is carried over by pg_upgrade while writes are paused, also what logical replication cannot carry: no row is lost, and
// there is no way back.
func TestUpgradeInPlace(t *testing.T) {
	t.Parallel()
	u := startUpgraded(t, "15", 3, v1.UpgradeSpec{Method: v1.UpgradeInPlace})
	primary := u.get(t).Status.CurrentPrimary
	oid := u.superuserIn(t, u.primaryPod(t), "app", "SELECT lo_from_bytea(0, 'large')")
	u.sql(t, naming.ServiceRW(u.name), "CREATE UNLOGGED TABLE fleeting (n integer); INSERT INTO fleeting VALUES (1)")

	u.to(t, "17", v1.UpgradeRetire, v1.UpgradeRollStandbys, v1.UpgradeRevert, v1.UpgradeFailed)
	u.requireServes(t, "17")
	u.requirePauseWithin(t, "15 to 17, in place", 3*time.Minute)
	s := u.get(t).Status
	require.Equal(t, string(v1.UpgradeInPlace), s.Upgrade.Method, s.Upgrade.MethodReason)
	require.NotEqual(t, primary, s.CurrentPrimary)
	for _, check := range []string{"InPlace", "UnloggedTables"} {
		require.True(t, slices.ContainsFunc(s.Upgrade.Findings, func(f v1.UpgradeFinding) bool { return f.Check == check }), "%s: %v", check, s.Upgrade.Findings)
	}
	require.Equal(t, "large", u.superuserIn(t, u.primaryPod(t), "app", "SELECT convert_from(lo_get("+oid+"), 'UTF8')"))
	require.Equal(t, "0", u.sql(t, naming.ServiceRW(u.name), "SELECT count(*) FROM fleeting"), "its rows were never on a standby")
	u.waitPhase(t, v1.UpgradeDone, 0, v1.UpgradeRevert, v1.UpgradeFailed)
	u.requireDone(t, "17")
	u.writer.stop(t)
	for _, refused := range u.writer.requireKept(t) {
		t.Log("refused: ", refused)
	}
}

// TestUpgradeManual: caught up, it waits for a word.
func TestUpgradeManual(t *testing.T) {
	t.Parallel()
	u := startUpgraded(t, "15", 2, v1.UpgradeSpec{Switchover: v1.SwitchoverManual, RollbackWindow: "0"})
	u.to(t, "17", v1.UpgradeAwaitSwitchover, v1.UpgradeRevert, v1.UpgradeFailed)
	never(t, 10*time.Second, func() { require.Equal(t, v1.UpgradeAwaitSwitchover, u.get(t).Status.Upgrade.Phase) })
	require.Contains(t, u.get(t).Status.Upgrade.Message, naming.AnnotationUpgradeSwitchover)
	u.requireServes(t, "15")
	u.annotate(t, naming.AnnotationUpgradeSwitchover, "now")
	u.waitPhase(t, v1.UpgradeDone, 0, v1.UpgradeRevert, v1.UpgradeFailed)
	u.requirePause(t, "15 to 17, two instances")
	u.requireDone(t, "17")
	require.NotContains(t, u.get(t).Annotations, naming.AnnotationUpgradeSwitchover)
	u.writer.stop(t)
	for _, refused := range u.writer.requireKept(t) {
		t.Log("refused: ", refused)
	}
}

// TestUpgradeSingle: one instance has a second one beside it for as long as the upgrade lasts, and so goes there, back, and there again
// for good like any other: no row is lost.
func TestUpgradeSingle(t *testing.T) {
	t.Parallel()
	u := startUpgraded(t, "15", 1, v1.UpgradeSpec{})
	primary := u.get(t).Status.CurrentPrimary

	t.Run("there", func(t *testing.T) {
		u.to(t, "17", v1.UpgradeObserve, v1.UpgradeRevert, v1.UpgradeFailed)
		u.requireServes(t, "17")
		u.requirePause(t, "15 to 17, one instance")
		object := u.get(t)
		require.True(t, object.Status.Upgrade.Surge)
		require.EqualValues(t, 1, *object.Spec.Replicas)
		require.EqualValues(t, 2, object.Status.Replicas)
		require.NotEqual(t, primary, object.Status.CurrentPrimary)
		require.Equal(t, v1.PhaseUpgrading, object.Status.Phase)
		require.True(t, apimeta.IsStatusConditionTrue(object.Status.Conditions, v1.ConditionReady), "it serves: %v", object.Status.Conditions)
	})
	t.Run("back", func(t *testing.T) {
		u.to(t, "15", v1.UpgradeRolledBack, v1.UpgradeRetire, v1.UpgradeDone, v1.UpgradeFailed)
		u.requireServes(t, "15")
		u.requireAlone(t)
		require.Equal(t, primary, u.get(t).Status.CurrentPrimary)
		u.requireClean(t)
	})
	t.Run("again, for good", func(t *testing.T) {
		u.patch(t, func(spec *v1.PostgresClusterSpec) { spec.Upgrade.RollbackWindow = "5s" })
		u.to(t, "17", v1.UpgradeDone, v1.UpgradeRevert, v1.UpgradeFailed)
		u.requireAlone(t)
		u.requireDone(t, "17")
		require.NotEqual(t, primary, u.get(t).Status.CurrentPrimary)
		for _, instance := range []string{primary, u.get(t).Status.CurrentPrimary} {
			u.requireVolume(t, naming.DataVolume(instance), true)
		}
	})
	u.writer.stop(t)
	for _, refused := range u.writer.requireKept(t) {
		t.Log("refused: ", refused)
	}
}

// requireAlone: the cluster has one instance, which is its primary, and a budget no more that would keep its node from being drained.
func (u upgraded) requireAlone(t *testing.T) {
	t.Helper()
	eventually(t, boundSettle, "one instance is left", func(collect *assert.CollectT) {
		object := u.get(collect)
		require.Len(collect, u.pods(collect), 1)
		require.Len(collect, object.Status.Instances, 1)
		require.Equal(collect, object.Status.CurrentPrimary, object.Status.Instances[0].Name)
		require.NotContains(collect, u.children(collect), "PodDisruptionBudget/"+naming.DisruptionBudget(u.name))
	})
	u.waitSound(t)
	u.requireOnePrimary(t)
}

// TestUpgradeBadInput: what cannot be is refused at once, or waits with the reason, and the cluster serves on as it was.
func TestUpgradeBadInput(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	object := newCluster(namespace, "db", "16", 2)
	object.Spec.Image = postgresImage(t, "16")
	c := create(t, object)
	startClient(t, namespace)
	c.waitReady(t)
	c.waitServed(t, "before")
	uids := c.uids(t)
	served := func(t *testing.T, what string) {
		t.Helper()
		c.waitServed(t, what)
		require.Equal(t, uids, c.uids(t), "no Pod is made anew")
	}
	set := func(what string) error {
		_, err := kubectl(t.Context(), "", "-n", namespace, "patch", "pgc", "db", "--type=merge", "-p", `{"spec":{`+what+`}}`)
		return err
	}

	t.Run("refused at once", func(t *testing.T) {
		for what, words := range map[string]string{
			`"version":"19"`:                       `spec.version: Unsupported value: "19"`,
			`"version":"15"`:                       "cannot go down from 16 to 15",
			`"version":17`:                         "spec.version",
			`"upgrade":{"rollbackWindow":"a day"}`: "spec.upgrade.rollbackWindow",
			`"upgrade":{"maxWritePause":"2m"}`:     "must be from 1s to 60s, not 2m",
		} {
			require.ErrorContains(t, set(what), words, what)
		}
		served(t, "refused")
	})
	t.Run("a blocker", func(t *testing.T) {
		oid := c.superuserIn(t, c.primaryPod(t), "app", "SELECT lo_from_bytea(0, 'large')")
		require.NoError(t, set(`"version":"17","image":null`))
		c.waitPreflight(t, v1.ReasonUpgradeBlocked, "large objects")
		c.waitDegraded(t, v1.ReasonUpgradeBlocked, "large objects")
		findings := c.get(t).Status.Upgrade.Findings
		require.True(t, slices.ContainsFunc(findings, func(f v1.UpgradeFinding) bool { return f.Check == "LargeObjects" && f.Database == "app" }), findings)
		served(t, "blocker")
		c.superuserIn(t, c.primaryPod(t), "app", "SELECT lo_unlink("+oid+")")
		require.NoError(t, set(`"version":"16","image":"`+object.Spec.Image+`"`))
		c.waitUpgrade(t, v1.UpgradeRolledBack)
		c.waitSound(t)
		served(t, "unblocked")
	})
	t.Run("an image of another version", func(t *testing.T) {
		require.NoError(t, set(`"version":"17","image":"`+postgresImage(t, "18")+`"`))
		c.waitUpgrade(t, v1.UpgradeFailed)
		s := c.get(t).Status.Upgrade
		require.Contains(t, s.LastFailure, "17", s.Message)
		require.Contains(t, s.LastFailure, "18", s.Message)
		c.waitDegraded(t, v1.ReasonUpgradeFailed, "The cluster is as it was", s.LastFailure)
		c.waitServed(t, "other-image")
		require.NoError(t, set(`"version":"16","image":"`+object.Spec.Image+`"`))
		c.waitSound(t)
		c.waitRows(t, naming.ServiceRO(c.name), "before", "refused", "blocker", "unblocked", "other-image")
		c.requireOnePrimary(t)
	})
	t.Run("one instance", func(t *testing.T) {
		require.NoError(t, set(`"replicas":1`))
		c.waitReady(t)
		oid := c.superuserIn(t, c.primaryPod(t), "app", "SELECT lo_from_bytea(0, 'large')")
		require.NoError(t, set(`"version":"17","image":null`))
		c.waitPreflight(t, v1.ReasonUpgradeBlocked, "large objects")
		c.waitServed(t, "one")
		require.Len(t, c.pods(t), 1, "no instance is added before that is mended")
		c.superuserIn(t, c.primaryPod(t), "app", "SELECT lo_unlink("+oid+")")
		require.NoError(t, set(`"version":"16","image":"`+object.Spec.Image+`"`))
		c.waitUpgrade(t, v1.UpgradeRolledBack)
	})
}

// waitUpgrade waits until the major upgrade is in that phase.
func (c cluster) waitUpgrade(t *testing.T, phase v1.UpgradePhase) {
	t.Helper()
	eventually(t, boundUpgrade, "the upgrade is "+string(phase), func(collect *assert.CollectT) {
		object := c.get(collect)
		require.Equal(collect, object.Generation, object.Status.ObservedGeneration)
		require.NotNil(collect, object.Status.Upgrade)
		require.Equal(collect, phase, object.Status.Upgrade.Phase, object.Status.Upgrade.Message)
	})
}

// waitPreflight waits until the condition UpgradePreflight says that the upgrade has not begun, for that reason and in these words.
func (c cluster) waitPreflight(t *testing.T, reason string, words ...string) {
	t.Helper()
	eventually(t, boundSettle, "the upgrade waits: "+reason, func(collect *assert.CollectT) {
		condition := apimeta.FindStatusCondition(c.get(collect).Status.Conditions, v1.ConditionUpgradePreflight)
		require.NotNil(collect, condition)
		require.NotEqual(collect, metav1.ConditionTrue, condition.Status)
		require.Equal(collect, reason, condition.Reason, condition.Message)
		for _, word := range words {
			require.Contains(collect, condition.Message, word)
		}
	})
}
