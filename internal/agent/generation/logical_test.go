package generation

import (
	"context"
	"log/slog"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/agent/supervise"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/testing/servers"
)

const (
	// long bounds what copies data, often is how often something is looked at.
	long  = 6 * time.Minute
	often = 200 * time.Millisecond
)

// logicalCopy is a source and the place of a seed that copies it.
type logicalCopy struct {
	source *servers.Server
	target *servers.Server
	place  *Place
	marker *Marker

	mu    sync.Mutex
	steps []string
}

func newLogicalCopy(t *testing.T, from, to int, options ...string) *logicalCopy {
	t.Helper()
	bin := servers.Bin(t, to)
	l := &logicalCopy{source: servers.NewServer(t, from, options...)}
	dir := servers.Dir(t)
	chown := func(path string) error { servers.Own(t, path); return nil }
	l.marker = &Marker{ID: "a1", From: from, To: to, Source: "db-1", Method: agentapi.MethodLogical, Databases: map[string]uint32{}}
	children := &supervise.Children{Credential: servers.ServerUser(t)}
	programs := datadir.Programs{Postgres: filepath.Join(bin, "postgres"), InitDB: filepath.Join(bin, "initdb")}
	programs.Version.Major = to
	l.place = &Place{
		Log: slog.New(slog.DiscardHandler), Children: children, Instance: "db-2",
		Upgrade: agentapi.Upgrade{ID: "a1", From: strconv.Itoa(from), To: strconv.Itoa(to)},
		New:     datadir.NewVolume(dir, to, chown), Old: datadir.NewVolume(dir, from, chown),
		Programs: programs, RunDirectory: dir,
		Remote:   func(ctx context.Context, _, database string) (*pgx.Conn, error) { return l.source.Open(ctx, database) },
		Conninfo: func(_, database string) string { return l.source.Conninfo(database) },
		Progress: func(step string) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.steps = append(l.steps, step)
		},
	}
	return l
}

// prepare does on the source what is done there before the copy begins.
func (l *logicalCopy) prepare(t *testing.T) {
	t.Helper()
	c := l.source.Connect("postgres")
	rows, err := c.Query(t.Context(), "SELECT datname, oid FROM pg_database WHERE NOT datistemplate")
	require.NoError(t, err)
	var name string
	var oid uint32
	_, err = pgx.ForEachRow(rows, []any{&name, &oid}, func() error {
		l.marker.Databases[name] = oid
		return nil
	})
	require.NoError(t, err)
	for database := range l.marker.Databases {
		c := l.source.Connect(database)
		require.NoError(t, FixIdentities(t.Context(), c))
		_, err := c.Exec(t.Context(), "CREATE PUBLICATION "+naming.UpgradePublication+" FOR ALL TABLES")
		require.NoError(t, err)
		require.NoError(t, InstallDDLGuard(t.Context(), c))
	}
}

// begin makes the new system and starts its server.
func (l *logicalCopy) begin(t *testing.T) {
	t.Helper()
	require.NoError(t, l.place.makeLogical(t.Context(), l.marker))
	require.NoError(t, l.place.makeLogical(t.Context(), l.marker), "it is there")
	l.target = servers.Existing(t, l.marker.To, l.place.New.Dir(), l.place.RunDirectory)
	l.target.Start()
	l.place.Port, l.place.Local = l.target.Port, l.target.Open
}

// drain waits until the target has everything that the source has.
func (l *logicalCopy) drain(t *testing.T) {
	t.Helper()
	c := l.source.Connect("postgres")
	var end string
	require.NoError(t, c.QueryRow(t.Context(), "SELECT pg_current_wal_insert_lsn()::text").Scan(&end))
	require.Eventually(t, func() bool {
		var arrived bool
		err := c.QueryRow(t.Context(), "SELECT bool_and(confirmed_flush_lsn >= $1::pg_lsn) FROM pg_replication_slots WHERE slot_name LIKE 'pgsteward_upgrade_a1_%'", end).Scan(&arrived)
		return err == nil && arrived
	}, long, often)
}

// requireSame compares all rows and sequences of both sides.
func (l *logicalCopy) requireSame(t *testing.T) {
	t.Helper()
	for database := range l.marker.Databases {
		differences, err := servers.Compare(t.Context(), l.source.Connect(database), l.target.Connect(database))
		require.NoError(t, err)
		assert.Empty(t, differences, "database %s", database)
	}
}

const globals = `
	CREATE ROLE app LOGIN PASSWORD 'secret';
	CREATE ROLE "Read Only" NOLOGIN;
	CREATE ROLE nobody NOLOGIN;
	GRANT "Read Only" TO app;
	ALTER ROLE app SET work_mem = '5MB';
	CREATE DATABASE app OWNER app;
	ALTER DATABASE app SET statement_timeout = '1h';
	CREATE DATABASE "Mixed Case";
	COMMENT ON ROLE nobody IS 'SET transaction_timeout = 0;
CREATE ROLE nothing;';`

const objects = `
	CREATE EXTENSION citext;
	CREATE SCHEMA "Sales Dept" AUTHORIZATION app;
	CREATE TABLE "Sales Dept"."Order" ("Id" bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "Customer" citext, note text, twice bigint GENERATED ALWAYS AS (length(note) * 2) STORED);
	CREATE TABLE nokey (a int, b text);
	CREATE TABLE never (a int);
	CREATE SEQUENCE untouched START 77;
	CREATE SEQUENCE "Set" ; SELECT setval('"Set"', 1000, false);
	CREATE TABLE parent (id int PRIMARY KEY) ;
	CREATE TABLE child (id serial PRIMARY KEY, parent int REFERENCES parent ON DELETE CASCADE);
	CREATE TABLE parts (id int, at date, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
	CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM ('2026-01-01') TO ('2026-07-01');
	CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM ('2026-07-01') TO ('2027-01-01');
	CREATE UNLOGGED TABLE scratch (a int);
	CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.b = NEW.b || '!'; RETURN NEW; END $$;
	CREATE TRIGGER stamp BEFORE INSERT ON nokey FOR EACH ROW EXECUTE FUNCTION stamp();
	CREATE MATERIALIZED VIEW totals AS SELECT count(*) AS n FROM nokey;
	CREATE MATERIALIZED VIEW doubled AS SELECT n * 2 AS n FROM totals;
	CREATE MATERIALIZED VIEW later AS SELECT 1 WITH NO DATA;
	INSERT INTO "Sales Dept"."Order" ("Customer", note) SELECT 'C' || i, repeat('x', i) FROM generate_series(1, 300) i;
	INSERT INTO nokey SELECT i, 'n' || i FROM generate_series(1, 500) i;
	INSERT INTO parent SELECT generate_series(1, 50);
	INSERT INTO child (parent) SELECT generate_series(1, 50);
	INSERT INTO parts SELECT i, '2026-01-01'::date + i FROM generate_series(1, 300) i;
	REFRESH MATERIALIZED VIEW totals; REFRESH MATERIALIZED VIEW doubled;
	CREATE FUNCTION watch() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'the user''s own event trigger'; END $$;
	CREATE EVENT TRIGGER watch ON ddl_command_start WHEN TAG IN ('CREATE EXTENSION') EXECUTE FUNCTION watch();
	ALTER EXTENSION citext SET SCHEMA public;
	GRANT SELECT ON nokey TO "Read Only";`

// writer writes what logical replication has to carry, until it is stopped.
func writer(ctx context.Context, c *pgx.Conn) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for i := 1000; ctx.Err() == nil; i++ {
		<-ticker.C
		_, err := c.Exec(ctx, `BEGIN;
			INSERT INTO "Sales Dept"."Order" ("Customer", note) VALUES ('w', 'written');
			UPDATE nokey SET b = b || 'u' WHERE a % 100 = `+strconv.Itoa(i%100)+`;
			DELETE FROM nokey WHERE a = `+strconv.Itoa(i-1000)+`;
			INSERT INTO nokey VALUES (`+strconv.Itoa(i)+`, NULL);
			INSERT INTO parent VALUES (`+strconv.Itoa(i)+`); INSERT INTO child (parent) VALUES (`+strconv.Itoa(i)+`);
			DELETE FROM parent WHERE id = `+strconv.Itoa(i-5)+`;
			UPDATE parts SET at = at + 1 WHERE id = `+strconv.Itoa(1+i%300)+` AND at < '2026-12-30';
			SELECT nextval('"Set"');
			COMMIT`)
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

func TestLogicalCopy(t *testing.T) {
	for _, majors := range [][2]int{{15, 16}, {15, 17}, {16, 17}, {17, 18}} {
		t.Run(strconv.Itoa(majors[0])+" to "+strconv.Itoa(majors[1]), func(t *testing.T) {
			l := newLogicalCopy(t, majors[0], majors[1])
			l.source.Exec("postgres", "CREATE ROLE makesitself")
			for _, statement := range splitStatements(globals) {
				l.source.Exec("postgres", statement)
			}
			l.source.Exec("app", objects)
			l.source.Exec("Mixed Case", `CREATE TABLE "T" (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), v jsonb); INSERT INTO "T" (v) SELECT '{"a": 1}' FROM generate_series(1, 100)`)
			l.source.Exec("template1", "CREATE FUNCTION everywhere() RETURNS int LANGUAGE sql AS 'SELECT 1'")
			l.prepare(t)

			ctx, stop := context.WithTimeout(t.Context(), long)
			defer stop()
			var writing sync.WaitGroup
			writes := l.source.Connect("app")
			until, end := context.WithCancel(ctx)
			defer end()
			writing.Go(func() { assert.NoError(t, writer(until, writes)) })

			l.begin(t)
			require.NoError(t, l.place.copyLogical(ctx, l.marker))
			require.NoError(t, l.place.copyLogical(ctx, l.marker), "again, as after a crash")
			done, total, err := l.place.tables(ctx, l.marker)
			require.NoError(t, err)
			assert.Equal(t, total, done)
			assert.Greater(t, total, 8)
			end()
			writing.Wait()
			l.drain(t)
			for database := range l.marker.Databases {
				require.NoError(t, CopySequences(ctx, l.source.Connect(database), l.target.Connect(database)))
			}
			l.requireSame(t)
			checkCopy(t, l)
		})
	}
}

// checkCopy looks for what the comparison of rows does not see.
func checkCopy(t *testing.T, l *logicalCopy) {
	t.Helper()
	app := l.target.Connect("app")
	ask := func(query string) (text string) {
		t.Helper()
		require.NoError(t, app.QueryRow(t.Context(), query).Scan(&text), query)
		return text
	}
	assert.Equal(t, "true", ask("SELECT (rolcanlogin AND rolpassword LIKE 'SCRAM-SHA-256%')::text FROM pg_authid WHERE rolname = 'app'"))
	assert.Equal(t, "true", ask("SELECT pg_has_role('app', 'Read Only', 'MEMBER')::text"))
	assert.Equal(t, "{work_mem=5MB}", ask("SELECT setconfig::text FROM pg_db_role_setting WHERE setrole = 'app'::regrole AND setdatabase = 0"))
	assert.Equal(t, "app", ask("SELECT datdba::regrole::text FROM pg_database WHERE datname = 'app'"))
	assert.Equal(t, "true", ask("SELECT has_table_privilege('Read Only', 'nokey', 'SELECT')::text"))
	assert.Equal(t, "true", ask("SELECT ((SELECT n FROM doubled) = 2 * (SELECT n FROM totals))::text"))
	assert.Equal(t, "false", ask("SELECT relispopulated::text FROM pg_class WHERE relname = 'later'"))
	assert.Equal(t, "f", ask("SELECT relreplident::text FROM pg_class WHERE relname = 'nokey'"))
	assert.Equal(t, "", ask("SELECT coalesce(string_agg(evtname, ','), '') FROM pg_event_trigger WHERE evtname <> 'watch'"))
	template := l.target.Connect("template1")
	var one int
	require.NoError(t, template.QueryRow(t.Context(), "SELECT everywhere()").Scan(&one))

	// What was remembered came along, so that it can be put back there.
	require.NoError(t, RestoreIdentities(t.Context(), app))
	assert.Equal(t, "d", ask("SELECT relreplident::text FROM pg_class WHERE relname = 'nokey'"))
}

// A crash may be anywhere: the copy is broken off at each of its steps in turn, and goes on from there.
func TestLogicalCopy_resumed(t *testing.T) {
	l := newLogicalCopy(t, 15, servers.Newest(t, 17))
	for _, statement := range splitStatements(globals) {
		l.source.Exec("postgres", statement)
	}
	l.source.Exec("app", objects)
	l.source.Exec("postgres", "CREATE DATABASE model IS_TEMPLATE true")
	l.source.Exec("model", "CREATE TABLE given (a int); INSERT INTO given VALUES (1)")
	l.prepare(t)
	l.begin(t)
	for breakAt := 1; ; breakAt++ {
		ctx, cancel := context.WithTimeout(t.Context(), long)
		steps := 0
		l.place.Progress = func(string) {
			if steps++; steps == breakAt {
				cancel()
			}
		}
		err := l.place.copyLogical(ctx, l.marker)
		cancel()
		if err == nil {
			assert.Greater(t, breakAt, 8)
			break
		}
		require.ErrorIs(t, err, context.Canceled)
	}
	l.source.Exec("app", "INSERT INTO nokey VALUES (4711, 'afterwards')")
	l.drain(t)
	for database := range l.marker.Databases {
		require.NoError(t, CopySequences(t.Context(), l.source.Connect(database), l.target.Connect(database)))
	}
	l.requireSame(t)
	assert.Equal(t, "1", text(t, l.target.Connect("model"), "SELECT count(*)::text FROM given"))
	assert.Equal(t, "0", text(t, l.source.Connect("postgres"), "SELECT count(*)::text FROM pg_replication_slots WHERE slot_name LIKE 'pg\\_%\\_sync\\_%'"))
}

func TestLogicalCopy_refused(t *testing.T) {
	l := newLogicalCopy(t, 15, servers.Newest(t, 17))
	if l.marker.To < 17 {
		t.Skip("nothing that PostgreSQL 17 does not have any more")
	}
	l.source.Exec("postgres", "CREATE EXTENSION adminpack; CREATE VIEW written AS SELECT buffers_backend FROM pg_stat_bgwriter")
	l.prepare(t)
	l.begin(t)
	var end *Over
	require.ErrorAs(t, l.place.copyLogical(t.Context(), l.marker), &end)
	assert.Equal(t, reasonExtension, end.Problem.Reason)
	assert.Contains(t, end.Problem.Message, "adminpack (database postgres)")

	c := l.source.Connect("postgres")
	_, err := c.Exec(t.Context(), "SET pgsteward.allow_ddl = on; DROP EXTENSION adminpack")
	require.NoError(t, err)
	require.ErrorAs(t, l.place.copyLogical(t.Context(), l.marker), &end)
	assert.Equal(t, reasonSchema, end.Problem.Reason)
	assert.Contains(t, end.Problem.Message, "buffers_backend")
}

// TestLogicalCopy_open: a table of a transaction that was open when the source was prepared is carried over like any other, and its rows can be updated.
func TestLogicalCopy_open(t *testing.T) {
	l := newLogicalCopy(t, 15, servers.Newest(t, 17))
	l.place.Remote = func(ctx context.Context, _, database string) (*pgx.Conn, error) { return open(ctx, l.source, database) }
	require.NoError(t, l.place.New.Prepare())
	client := l.source.Connect("postgres")
	_, err := client.Exec(t.Context(), "BEGIN; CREATE TABLE late (a int); INSERT INTO late VALUES (1)")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- l.place.prepareSource(context.WithoutCancel(t.Context()), l.marker) }()
	looks := l.source.Connect("postgres")
	require.Eventually(t, func() bool {
		var waits bool
		err := looks.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)").Scan(&waits)
		return err == nil && waits || len(done) > 0
	}, long, often)
	_, err = client.Exec(t.Context(), "COMMIT")
	require.NoError(t, err)
	require.NoError(t, <-done)
	assert.Equal(t, "f", text(t, looks, "SELECT relreplident::text FROM pg_class WHERE relname = 'late'"))
	assert.Equal(t, "0", text(t, looks, "SELECT count(*)::text FROM pg_replication_slots"), "the subscription makes its own")

	l.begin(t)
	require.NoError(t, l.place.copyLogical(t.Context(), l.marker))
	_, err = client.Exec(t.Context(), "UPDATE late SET a = 2")
	require.NoError(t, err)
	l.drain(t)
	assert.Equal(t, "2", text(t, l.target.Connect("postgres"), "SELECT a::text FROM late"))
}

// TestLook_copying: while tables are copied nobody reads from the seed's physical slot, which keeps no WAL on the source meanwhile.
func TestLook_copying(t *testing.T) {
	l := newLogicalCopy(t, 15, servers.Newest(t, 17))
	l.begin(t)
	l.marker.Stage = agentapi.SeedCopying
	require.NoError(t, l.marker.Write(l.place.New))
	l.source.Exec("postgres", "SELECT pg_create_physical_replication_slot('pgsteward_db_2', true)")
	for range 6 { // of 16 MiB each
		l.source.Exec("postgres", "SELECT pg_logical_emit_message(false, 'test', 'x')")
		l.source.Exec("postgres", "SELECT pg_switch_wal()")
	}
	l.source.Exec("postgres", "CHECKPOINT")
	status, err := l.place.Look(t.Context())
	require.NoError(t, err)
	assert.Equal(t, agentapi.SeedCopying, status.Stage)
	assert.Equal(t, "true", text(t, l.source.Connect("postgres"), "SELECT (pg_current_wal_flush_lsn() - restart_lsn < 1000000)::text FROM pg_replication_slots"))
}
