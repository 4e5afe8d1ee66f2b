package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/testing/servers"
)

const (
	plenty  = 1 << 40
	blocker = agentapi.SeverityBlocker
	warning = agentapi.SeverityWarning
	fixed   = agentapi.SeverityFixed
)

// someServer is a server of the newest major before 18 on this machine.
func someServer(t *testing.T) *servers.Server {
	t.Helper()
	return servers.NewServer(t, servers.Newest(t, 17))
}

// find is the finding of a check; nil if there is none.
func find(findings []agentapi.Finding, check string) *agentapi.Finding {
	i := slices.IndexFunc(findings, func(f agentapi.Finding) bool { return f.Check == check })
	if i < 0 {
		return nil
	}
	return &findings[i]
}

// trouble is one thing that an upgrade does not carry, and what is to be said of it.
type trouble struct {
	check    string
	make     string
	severity agentapi.Severity
	objects  []string
}

var troubles = []trouble{
	{"LargeObjects", `SELECT lo_create(4711)`, blocker, []string{"4711"}},
	{"ReplicaIdentity", `CREATE TABLE "No Key" (a int); CREATE TABLE nothing (a int PRIMARY KEY); ALTER TABLE nothing REPLICA IDENTITY NOTHING`, fixed,
		[]string{`public."No Key"`, "public.nothing"}},
	{"ReplicaIdentity", `CREATE TABLE deferred (a int PRIMARY KEY DEFERRABLE)`, fixed, []string{"public.deferred"}},
	{"SlowUpdates", `CREATE TABLE big (a int) WITH (autovacuum_enabled = off); INSERT INTO big SELECT generate_series(1, 100001); ANALYZE big`, warning, []string{"public.big"}},
	{"NoEquality", `CREATE DOMAIN place AS point; CREATE TYPE pair AS (a int, b xml); CREATE TABLE incomparable (a json, b place[], c text, d varchar, e int4range, f pair, g int[], h regclass)`, blocker,
		[]string{"public.incomparable.a (json)", "public.incomparable.b (point)", "public.incomparable.f (xml)"}},
	{"Triggers", `CREATE TABLE watched (a int PRIMARY KEY); CREATE TRIGGER always BEFORE UPDATE ON watched FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger();
		ALTER TABLE watched ENABLE ALWAYS TRIGGER always`, blocker, []string{"always on public.watched"}},
	{"ForcedRowSecurity", `CREATE ROLE somebody; CREATE TABLE forced (a int PRIMARY KEY); ALTER TABLE forced OWNER TO somebody; ALTER TABLE forced ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY`, blocker,
		[]string{"public.forced"}},
	{"UnloggedTables", `CREATE UNLOGGED TABLE scratch (a int)`, warning, []string{"public.scratch"}},
	{"UnloggedReferences", `CREATE TABLE kept (a int PRIMARY KEY); CREATE UNLOGGED TABLE refers (a int REFERENCES kept)`, blocker, []string{"public.refers → public.kept"}},
	{"MaterializedViews", `CREATE MATERIALIZED VIEW totals AS SELECT 1; CREATE MATERIALIZED VIEW later AS SELECT 1 WITH NO DATA`, warning, []string{"public.totals"}},
	{"TransactionIDs", `CREATE TABLE outbox (a int PRIMARY KEY, tx xid8)`, warning, []string{"public.outbox.tx (xid8)"}},
	{"GeneratedColumns", `CREATE TABLE generated (a int, b int GENERATED ALWAYS AS (a + 1) STORED)`, blocker, []string{"public.generated"}},
	{"GeneratedKey", `CREATE TABLE keyed (a int, b int GENERATED ALWAYS AS (a + 1) STORED PRIMARY KEY)`, blocker, []string{"public.keyed"}},
	{"Libraries", `CREATE FUNCTION mine() RETURNS trigger LANGUAGE c AS '$libdir/refint', 'check_primary_key'`, warning, []string{"public.mine()"}},
	{"SystemViews", `CREATE VIEW busy AS SELECT pid FROM pg_stat_activity`, warning, []string{"public.busy"}},
	{"RegTypes", `CREATE TABLE numbers (a int PRIMARY KEY, b regproc[], c regclass)`, warning, []string{"public.numbers.b (regproc)"}},
	{"InheritedNotNull", `CREATE TABLE parent (a int); CREATE TABLE child () INHERITS (parent); ALTER TABLE ONLY parent ALTER a SET NOT NULL`, warning, []string{"public.child.a"}},
	// An earlier attempt's copy of tables was broken off: its slots are ours to remove.
	{"LogicalSlots", `CREATE ROLE pgsteward_upgrade SUPERUSER; ALTER ROLE pgsteward_upgrade SET pgsteward.seeds = '41 42'; SELECT pg_create_logical_replication_slot('pg_16400_sync_16384_42', 'pgoutput');
		SELECT pg_create_logical_replication_slot('theirs', 'pgoutput'); SELECT pg_create_logical_replication_slot('pgsteward_upgrade_a1_5', 'pgoutput')`, blocker, []string{"theirs (app)"}},
	{"PhysicalSlots", `SELECT pg_create_physical_replication_slot('archive'); SELECT pg_create_physical_replication_slot('pgsteward_db_2')`, warning, []string{"archive"}},
	{"Subscriptions", `CREATE SUBSCRIPTION feed CONNECTION 'host=nowhere' PUBLICATION p WITH (connect = false)`, blocker, []string{"feed (app)"}},
	{"AlterSystem", `ALTER SYSTEM SET work_mem = '5MB'`, warning, []string{"work_mem"}},
	{"MD5Passwords", `CREATE ROLE old PASSWORD 'md5aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'`, warning, []string{"old"}},
	{"TwoPhaseCommit", ``, warning, []string{"max_prepared_transactions = 5"}},
}

func TestCheck(t *testing.T) {
	server := someServer(t)
	server.Exec("postgres", "CREATE DATABASE app")
	in := Input{From: 17, To: 18, FreeBytes: plenty}
	before, err := Check(t.Context(), server.Open, in)
	require.NoError(t, err)
	require.Len(t, before, 1, "an empty server has nothing that does not go over: %v", before)

	for _, trouble := range troubles {
		for _, statement := range servers.Statements(trouble.make) {
			server.Exec("app", statement)
		}
	}
	findings, err := Check(t.Context(), server.Open, in)
	require.NoError(t, err)
	for _, trouble := range troubles {
		found := find(findings, trouble.check)
		if assert.NotNil(t, found, trouble.check) {
			assert.Equal(t, trouble.severity, found.Severity, trouble.check)
			assert.NotEmpty(t, found.Message)
			for _, object := range trouble.objects {
				assert.Contains(t, found.Objects, object, trouble.check)
			}
		}
	}
	for _, name := range []string{"NoEquality", "MaterializedViews", "LogicalSlots", "PhysicalSlots", "RegTypes", "InheritedNotNull"} {
		if found := find(findings, name); assert.NotNil(t, found, name) {
			i := slices.IndexFunc(troubles, func(t trouble) bool { return t.check == name })
			assert.Equal(t, troubles[i].objects, found.Objects, "nothing else")
		}
	}
	assert.Equal(t, "app", find(findings, "LargeObjects").Database)
	assert.Equal(t, blocker, findings[0].Severity, "blockers come first")
	checkMethods(t, server)
}

// TestCheck_functions: before 16, what users put into constraints and the like would run as a superuser on the way back.
func TestCheck_functions(t *testing.T) {
	server := someServer(t)
	server.Exec("postgres", strings.Join([]string{
		"CREATE ROLE clerk", "GRANT CREATE ON SCHEMA public TO clerk", "SET ROLE clerk",
		"CREATE FUNCTION checked(int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN true; END'",
		"CREATE FUNCTION computed(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 1; END'",
		"CREATE FUNCTION indexed(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 1; END'",
		"CREATE FUNCTION typed(int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN true; END'",
		"CREATE FUNCTION harmless(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 1; END'",
		"CREATE DOMAIN small AS int CHECK (typed(VALUE))",
		"CREATE TABLE t (a int CHECK (checked(a)), b int GENERATED ALWAYS AS (computed(a)) STORED, c int DEFAULT harmless(1))",
		"CREATE INDEX ON t (indexed(a))", "CREATE VIEW v AS SELECT harmless(a) FROM t",
		"RESET ROLE", "CREATE FUNCTION ours(int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN true; END'", "CREATE TABLE u (a int CHECK (ours(a)))",
	}, "; "))
	for name, in := range map[string]Input{
		"there is no way back":             {From: 15, To: 17, OneWay: true},
		"it writes as the tables' owners":  {From: 16, To: 17},
		"nothing follows after pg_upgrade": {From: 15, To: 17, Method: agentapi.MethodInPlace},
	} {
		in.FreeBytes = plenty
		findings, err := Check(t.Context(), server.Open, in)
		require.NoError(t, err)
		assert.Nil(t, find(findings, "OwnersFunctions"), name)
	}
	findings, err := Check(t.Context(), server.Open, Input{From: 15, To: 17, FreeBytes: plenty})
	require.NoError(t, err)
	found := find(findings, "OwnersFunctions")
	require.NotNil(t, found)
	assert.Equal(t, blocker, found.Severity)
	assert.ElementsMatch(t, []string{"public.checked(integer)", "public.computed(integer)", "public.indexed(integer)", "public.typed(integer)"}, found.Objects)
}

// TestCheck_names: what users have under names of ours, by which they could have a superuser run their code, and what is ours.
func TestCheck_names(t *testing.T) {
	server := someServer(t)
	in := Input{From: 16, To: 17, FreeBytes: plenty}
	objects := func() []string {
		findings, err := Check(t.Context(), server.Open, in)
		require.NoError(t, err)
		var all []string
		for _, found := range findings {
			if found.Check == "ReservedNames" {
				assert.Equal(t, blocker, found.Severity)
				all = append(all, found.Objects...)
			}
		}
		return all
	}
	server.Exec("postgres", `CREATE ROLE pgsteward_upgrade SUPERUSER; CREATE SCHEMA pgsteward_upgrade;
		CREATE TABLE pgsteward_upgrade.replica_identities (a int PRIMARY KEY); CREATE PUBLICATION pgsteward_upgrade FOR ALL TABLES`)
	assert.Empty(t, objects(), "an attempt before this one")
	server.Exec("postgres", `DROP SCHEMA pgsteward_upgrade CASCADE; DROP PUBLICATION pgsteward_upgrade; DROP ROLE pgsteward_upgrade;
		CREATE ROLE clerk CREATEROLE; GRANT CREATE ON DATABASE postgres TO clerk; SET ROLE clerk; CREATE ROLE pgsteward_upgrade;
		CREATE SCHEMA pgsteward_upgrade; CREATE TABLE pgsteward_upgrade.replica_identities (a int);
		CREATE FUNCTION pgsteward_upgrade.refuse_ddl() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'; CREATE PUBLICATION pgsteward_upgrade`)
	assert.ElementsMatch(t, []string{
		"role pgsteward_upgrade", "schema pgsteward_upgrade of clerk", "relation pgsteward_upgrade.replica_identities of clerk",
		"function pgsteward_upgrade.refuse_ddl() of clerk", "publication pgsteward_upgrade of clerk",
	}, objects())
}

// checkMethods looks at the same server with other ways to upgrade.
func checkMethods(t *testing.T, server *servers.Server) {
	t.Helper()
	inPlace, err := Check(t.Context(), server.Open, Input{From: 17, To: 18, Method: agentapi.MethodInPlace, FreeBytes: plenty})
	require.NoError(t, err)
	assert.Nil(t, find(inPlace, "LargeObjects"))
	assert.Equal(t, blocker, find(inPlace, "LogicalSlots").Severity, "a standby, which is what is converted, does not have them")
	assert.Equal(t, agentapi.SeverityWarning, find(inPlace, "SubscriptionsInPlace").Severity, "pg_upgrade carries them from 17 on")
	assert.Equal(t, blocker, find(inPlace, "RegTypes").Severity)
	logical, err := Check(t.Context(), server.Open, Input{From: 17, To: 18, Method: agentapi.MethodLogical, FreeBytes: 1})
	require.NoError(t, err)
	assert.Nil(t, find(logical, "RegTypes"))
	assert.Equal(t, blocker, find(logical, "Space").Severity)
	obstacles, err := Obstacles(t.Context(), server.Open, Input{From: 15, To: 17})
	require.NoError(t, err)
	assert.Len(t, obstacles, 1)
	assert.NotNil(t, find(obstacles, "RegTypes"))
}

func TestCheck_server(t *testing.T) {
	server := someServer(t)
	for _, statement := range []string{
		"CREATE DATABASE closed ALLOW_CONNECTIONS false", "CREATE DATABASE broken", "UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'broken'",
		"CREATE ROLE somebody", "CREATE DATABASE app", "ALTER ROLE somebody SET custom.thing = 'x'",
	} {
		server.Exec("postgres", statement)
	}
	server.Exec("app", "CREATE TABLE t (a int); BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'left'")
	for i := range 12 {
		server.Exec("app", fmt.Sprintf("CREATE UNLOGGED TABLE u%02d ()", i))
	}
	in := Input{From: 15, To: 17, FreeBytes: 300 << 20, Parameters: map[string]string{"Old_Snapshot_Threshold": "1h", "work_mem": "4MB"}}
	_, err := Check(t.Context(), server.Open, in)
	require.Error(t, err, "what cannot be looked at is not taken for well") // nobody can connect to a broken database
	server.Exec("postgres", "UPDATE pg_database SET datallowconn = false WHERE datname = 'broken'")

	findings, err := Check(t.Context(), server.Open, in)
	require.NoError(t, err)
	assert.Equal(t, []string{"closed"}, find(findings, "DatabaseRefusesConnections").Objects)
	assert.Equal(t, []string{"broken"}, find(findings, "InvalidDatabase").Objects)
	assert.Contains(t, find(findings, "PreparedTransactions").Objects[0], "'left' (app")
	assert.Equal(t, []string{"Old_Snapshot_Threshold"}, find(findings, "RemovedParameters").Objects)
	assert.Contains(t, find(findings, "RemovedParameters").Message, "spec.postgresql.parameters")
	assert.Equal(t, blocker, find(findings, "Space").Severity)
	assert.Contains(t, find(findings, "Space").Message, "which has 300 MiB: raise spec.storage.size")
	unlogged := find(findings, "UnloggedTables")
	assert.Len(t, unlogged.Objects, 10)
	assert.Equal(t, 2, unlogged.More)

	_, err = Check(t.Context(), server.Open, Input{From: 16, To: 17, FreeBytes: plenty})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Check(ctx, server.Open, in)
	require.Error(t, err)
}

func TestRemoved(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"promote_trigger_file", "vacuum_defer_cleanup_age"}, removed(Input{From: 15, To: 16}))
	assert.Empty(t, removed(Input{From: 17, To: 18}))
	assert.Equal(t, []string{"db_user_namespace", "old_snapshot_threshold", "trace_recovery_messages"}, removed(Input{From: 16, To: 18}))
}

func TestLacksColumnVersions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		to      int
		version string
		want    answer
	}{
		{17, "17.12", no}, {17, "", no}, {18, "18.6", yes}, {18, "18.0", yes}, {18, "18.7", maybe}, {18, "", maybe}, {18, "18beta1", maybe},
		{18, "17.12", maybe},
	} {
		assert.Equal(t, c.want, lacksColumnVersions(Input{From: 17, To: c.to, ToVersion: c.version}), "%d %q", c.to, c.version)
	}
}

// TestCheck_columnVersions: what a server notes with columns is told if the new one may refuse it, and it blocks if that is known.
func TestCheck_columnVersions(t *testing.T) {
	server := someServer(t)
	server.Exec("postgres", "CREATE TABLE marked (a int PRIMARY KEY)")
	server.Exec("postgres", "UPDATE pg_attribute SET attoptions = '{pg_attver=1}' WHERE attrelid = 'marked'::regclass AND attnum = 1")
	for version, severity := range map[string]agentapi.Severity{"18.6": blocker, "18.7": warning, "": warning} {
		findings, err := Check(t.Context(), server.Open, Input{From: 17, To: 18, ToVersion: version, FreeBytes: plenty})
		require.NoError(t, err)
		if found := find(findings, "ColumnVersions"); assert.NotNil(t, found, version) {
			assert.Equal(t, severity, found.Severity, version)
			assert.Contains(t, found.Objects, "public.marked")
			assert.Contains(t, found.Message, "18.6")
		}
	}
	findings, err := Check(t.Context(), server.Open, Input{From: 16, To: 17, ToVersion: "17.12", FreeBytes: plenty})
	require.NoError(t, err)
	assert.Nil(t, find(findings, "ColumnVersions"))
}
