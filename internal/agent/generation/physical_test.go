package generation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agent/carry"
	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/agent/supervise"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/testing/servers"
)

// physical is a source, and the place of a seed that goes through pg_upgrade.
type physical struct {
	t        *testing.T
	source   *servers.Server
	target   *servers.Server
	place    *Place
	from, to int

	mu    sync.Mutex
	steps []string
	// at is called with each step.
	at func(step string)
}

func newPhysical(t *testing.T, from, to int, options ...string) *physical {
	t.Helper()
	servers.Bin(t, from)
	bin := servers.Bin(t, to)
	p := &physical{t: t, from: from, to: to, source: servers.NewServer(t, from, options...)}
	p.source.Exec("postgres", "SELECT pg_create_physical_replication_slot('pgsteward_db_2', true)")
	dir := servers.Dir(t)
	carried := filepath.Join(dir, "carried")
	manifest, err := carry.Copy(carry.Options{Root: "/", Major: from, To: carried})
	require.NoError(t, err)
	require.Empty(t, manifest.Missing)
	chown := func(path string) error { servers.Own(t, path); return nil }
	programs := datadir.Programs{
		Postgres: filepath.Join(bin, "postgres"), InitDB: filepath.Join(bin, "initdb"), BaseBackup: filepath.Join(bin, "pg_basebackup"),
	}
	programs.Version.Major = to
	p.place = &Place{
		Log: slog.New(slog.DiscardHandler), Children: &supervise.Children{Credential: servers.ServerUser(t)},
		Instance: "db-2", Source: "db-1",
		Upgrade: agentapi.Upgrade{ID: "a1", From: strconv.Itoa(from), To: strconv.Itoa(to), Seed: "db-2"},
		New:     datadir.NewVolume(dir, to, chown), Old: datadir.NewVolume(dir, from, chown),
		Programs: programs, Carried: carried, RunDirectory: dir, Port: 5999,
		Remote:      func(ctx context.Context, _, database string) (*pgx.Conn, error) { return open(ctx, p.source, database) },
		Conninfo:    func(_, database string) string { return p.source.Conninfo(database) },
		Replication: func(string) string { return p.source.Conninfo("postgres") },
		Local: func(ctx context.Context, database string) (*pgx.Conn, error) {
			if p.target == nil {
				return nil, errors.New("no server runs")
			}
			return open(ctx, p.target, database)
		},
		Progress: p.progress,
	}
	return p
}

// open opens a connection as the agent does.
func open(ctx context.Context, s *servers.Server, database string) (*pgx.Conn, error) {
	c, err := s.Open(ctx, database)
	if err == nil {
		_, err = c.Exec(ctx, "SET session_replication_role = replica; SET pgsteward.allow_ddl = on")
	}
	return c, err
}

func opened(s *servers.Server) opener {
	return func(ctx context.Context, database string) (*pgx.Conn, error) { return open(ctx, s, database) }
}

func (p *physical) progress(step string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.steps = append(p.steps, step)
	if p.at != nil {
		p.at(step)
	}
}

// fill makes roles, databases and tables of all kinds.
func (p *physical) fill() {
	for _, statement := range splitStatements(globals) {
		p.source.Exec("postgres", statement)
	}
	p.source.Exec("app", objects)
	p.source.Exec("Mixed Case", `CREATE TABLE "T" (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), v jsonb); INSERT INTO "T" (v) SELECT '{"a": 1}' FROM generate_series(1, 100)`)
}

// write writes to the source until the function that it returns is called.
func (p *physical) write() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var writing sync.WaitGroup
	c, other := p.source.Connect("app"), p.source.Connect("Mixed Case")
	writing.Go(func() { assert.NoError(p.t, writer(ctx, c)) })
	writing.Go(func() {
		for ctx.Err() == nil {
			_, err := other.Exec(ctx, `INSERT INTO "T" (v) VALUES ('{"b": 2}')`)
			assert.True(p.t, err == nil || ctx.Err() != nil, "%v", err)
		}
	})
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); writing.Wait() }) }
	p.t.Cleanup(stop)
	return stop
}

// startNew starts the new server.
func (p *physical) startNew() {
	p.t.Helper()
	p.target = servers.Existing(p.t, p.to, p.place.New.Dir(), p.place.RunDirectory)
	p.target.Start()
	p.place.Port = p.target.Port
}

// requireSame waits until everything has arrived, and compares all rows.
func (p *physical) requireSame() {
	t := p.t
	t.Helper()
	c := p.source.Connect("postgres")
	var end string
	require.NoError(t, c.QueryRow(t.Context(), "SELECT pg_current_wal_insert_lsn()::text").Scan(&end))
	require.Eventually(t, func() bool {
		var arrived bool
		err := c.QueryRow(t.Context(), "SELECT bool_and(confirmed_flush_lsn >= $1::pg_lsn) FROM pg_replication_slots WHERE starts_with(slot_name, $2)",
			end, naming.UpgradeSlots("a1")).Scan(&arrived)
		return err == nil && arrived
	}, long, often)
	m, err := ReadMarker(p.place.New)
	require.NoError(t, err)
	for database := range m.Databases {
		from, to := p.source.Connect(database), p.target.Connect(database)
		require.NoError(t, CopySequences(t.Context(), from, to))
		differences, err := servers.Compare(t.Context(), from, to)
		require.NoError(t, err)
		assert.Empty(t, differences, "database %s", database)
	}
}

var physicalMajors = [][2]int{{15, 17}, {17, 18}}

func TestPhysical(t *testing.T) {
	for _, majors := range physicalMajors {
		t.Run(fmt.Sprintf("%d to %d", majors[0], majors[1]), func(t *testing.T) {
			p := newPhysical(t, majors[0], majors[1], "--data-checksums")
			p.fill()
			stop := p.write()
			made, err := p.place.IsMade()
			require.NoError(t, err)
			assert.False(t, made)
			require.NoError(t, p.place.Make(t.Context()))
			made, err = p.place.IsMade()
			require.NoError(t, err)
			assert.True(t, made)
			require.NoError(t, p.place.Make(t.Context()), "it is there")
			m, err := ReadMarker(p.place.New)
			require.NoError(t, err)
			assert.Equal(t, agentapi.MethodPhysical, m.Method, m.Why)
			assert.NoDirExists(t, p.place.Old.Dir(), "it shares its files with the new one")

			p.startNew()
			require.NoError(t, p.place.Join(t.Context()))
			require.NoError(t, p.place.Join(t.Context()), "again, as after a crash")
			require.Eventually(t, func() bool {
				status, err := p.place.Look(t.Context())
				return err == nil && status.Streaming && status.Analyzed && status.Stage == agentapi.SeedFollowing &&
					status.LagBytes != nil && status.Problem == nil && status.NewSystem != "" && status.NewSystem != status.System
			}, long, often)
			stop()
			p.requireSame()
			testForgotten(t, p)
		})
	}
}

// testForgotten: nothing is left when all is taken back.
func testForgotten(t *testing.T, p *physical) {
	ask := func(s *servers.Server, query string) (text string) {
		t.Helper()
		require.NoError(t, s.Connect("app").QueryRow(t.Context(), query).Scan(&text), query)
		return text
	}
	assert.Equal(t, "f", ask(p.source, "SELECT relreplident::text FROM pg_class WHERE relname = 'nokey'"))
	assert.Equal(t, "0", ask(p.target, "SELECT count(*)::text FROM pg_stat_all_tables WHERE schemaname = 'public' AND n_live_tup > 0 AND last_analyze IS NULL"))
	for _, s := range []*servers.Server{p.target, p.source} { // the target first: its subscriptions use the source's slots
		require.NoError(t, Clean(t.Context(), opened(s), "a1"))
		require.NoError(t, Clean(t.Context(), opened(s), ""))
		require.NoError(t, Clean(t.Context(), opened(s), ""))
		assert.Equal(t, "0", ask(s, "SELECT ((SELECT count(*) FROM pg_subscription) + (SELECT count(*) FROM pg_publication) + (SELECT count(*) FROM pg_event_trigger WHERE evtname <> 'watch')"+
			" + (SELECT count(*) FROM pg_namespace WHERE nspname = 'pgsteward_upgrade') + (SELECT count(*) FROM pg_replication_slots WHERE slot_type = 'logical'))::text"))
		assert.Equal(t, "d", ask(s, "SELECT relreplident::text FROM pg_class WHERE relname = 'nokey'"))
	}
}

// TestPhysical_commit_at_the_position: a transaction that writes before the position and whose commit begins exactly there is neither in
// the copy nor lost; one that commits just before is in the copy, and does not come twice.
func TestPhysical_commit_at_the_position(t *testing.T) {
	p := newPhysical(t, 15, 17)
	p.source.Exec("postgres", "CREATE TABLE edge (what text)")
	m, err := p.place.takeUp()
	require.NoError(t, err)
	require.NoError(t, p.place.identify(t.Context(), m))
	m.Method = agentapi.MethodPhysical
	require.NoError(t, p.place.haveOldData(t.Context(), m))
	require.NoError(t, p.place.prepareSource(t.Context(), m)) // makes the slots; another position is chosen below

	c, writes := p.source.Connect("postgres"), p.source.Connect("postgres")
	_, err = writes.Exec(t.Context(), "CHECKPOINT") // so that nothing else writes
	require.NoError(t, err)
	_, err = writes.Exec(t.Context(), "INSERT INTO edge VALUES ('before')")
	require.NoError(t, err)
	tx, err := writes.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "INSERT INTO edge VALUES ('at')")
	require.NoError(t, err)
	require.NoError(t, c.QueryRow(t.Context(), "SELECT pg_current_wal_insert_lsn()::text").Scan(&m.Position))
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, writeBeyond(t.Context(), c))
	require.NoError(t, m.Write(p.place.New))

	require.NoError(t, p.place.Make(t.Context()))
	p.startNew()
	var rows string
	local := p.target.Connect("postgres")
	require.NoError(t, local.QueryRow(t.Context(), "SELECT string_agg(what, ',') FROM edge").Scan(&rows))
	assert.Equal(t, "before", rows)
	require.NoError(t, p.place.Join(t.Context()))
	p.requireSame()
}

// TestPhysical_idle: nobody writes.
func TestPhysical_idle(t *testing.T) {
	p := newPhysical(t, 15, 17)
	require.NoError(t, p.place.Make(t.Context()))
	p.startNew()
	require.NoError(t, p.place.Join(t.Context()))
	p.requireSame()
}

// TestPhysical_interrupted ends the work at the beginning of each of its steps, under writes, and begins again.
func TestPhysical_interrupted(t *testing.T) {
	p := newPhysical(t, 15, 17)
	p.fill()
	stop := p.write()
	seen := map[string]bool{}
	interrupted := func(do func(context.Context) error) {
		t.Helper()
		for range 40 {
			ctx, cancel := context.WithCancel(t.Context())
			p.mu.Lock()
			p.at = func(step string) {
				if kind, _, _ := strings.Cut(step, ","); !seen[kind] {
					seen[kind] = true
					cancel()
				}
			}
			p.mu.Unlock()
			err := do(ctx)
			cancel()
			if err == nil {
				return
			}
			require.ErrorIs(t, err, context.Canceled)
		}
		require.Fail(t, "it does not come to an end")
	}
	interrupted(p.place.Make)
	stop() // what has come together meanwhile is work enough: tables without a key are searched for each row
	p.startNew()
	interrupted(p.place.Join)
	t.Log(p.steps)
	assert.Greater(t, len(seen), 10)
	p.requireSame()
}

// TestPhysical_ends: what ends an attempt is said, and kept; the next attempt copies the data again.
func TestPhysical_ends(t *testing.T) {
	p := newPhysical(t, 15, 17)
	p.source.Exec("postgres", "CREATE TABLE t (id int PRIMARY KEY, kind regcollation); INSERT INTO t VALUES (1, '\"C\"')")
	m, err := p.place.takeUp()
	require.NoError(t, err)
	require.NoError(t, p.place.identify(t.Context(), m))
	method, why, err := p.place.choose(t.Context(), m)
	require.NoError(t, err)
	assert.Equal(t, agentapi.MethodLogical, method)
	assert.Contains(t, why, "t.kind")
	m.Method = agentapi.MethodPhysical // as if it had not been seen
	require.NoError(t, m.Write(p.place.New))
	var end *Over
	require.ErrorAs(t, p.place.Make(t.Context()), &end)
	assert.Equal(t, reasonConvert, end.Problem.Reason)
	assert.Contains(t, end.Problem.Message, "public.t.kind", "pg_upgrade's own words")
	assert.NotContains(t, end.Problem.Message, " ok;", "what went well is left out")
	assert.ErrorAs(t, p.place.Make(t.Context()), &end, "it is kept")
	status, err := p.place.Look(t.Context())
	require.NoError(t, err)
	assert.Equal(t, agentapi.SeedFailed, status.Stage)
	assert.Equal(t, end.Problem, *status.Problem)

	p.place.Upgrade.ID = "a2"
	p.source.Exec("postgres", "SET pgsteward.allow_ddl = on; DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (7)")
	require.NoError(t, p.place.Make(t.Context()))
	p.place.Source = "db-3"
	p.startNew()
	require.ErrorAs(t, p.place.Join(t.Context()), &end)
	assert.Contains(t, end.Problem.Message, "the primary was db-1 and is db-3 now")
}

// TestPhysical_slot_lost: an attempt ends when a slot is gone.
func TestPhysical_slot_lost(t *testing.T) {
	p := newPhysical(t, 15, 17)
	require.NoError(t, p.place.Make(t.Context()))
	p.startNew()
	require.NoError(t, p.place.Join(t.Context()))
	require.NoError(t, Clean(t.Context(), opened(p.source), "another"))
	var end *Over
	_, err := p.place.Look(t.Context())
	require.ErrorAs(t, err, &end)
	assert.Contains(t, end.Problem.Message, "the slot of database postgres on db-1 is gone")
	made, err := p.place.IsMade()
	require.NoError(t, err)
	assert.False(t, made)
}

// TestChoose: where pg_upgrade cannot be used the tables are copied, with the reason; unless the user insists.
func TestChoose(t *testing.T) {
	p := newPhysical(t, 15, 17)
	carried := p.place.Carried
	p.place.Carried = t.TempDir()
	m := &Marker{From: 15, To: 17, Source: "db-1"}
	method, why, err := p.place.choose(t.Context(), m)
	require.NoError(t, err)
	assert.Equal(t, agentapi.MethodLogical, method)
	assert.Equal(t, "there are no programs of the old image here", why)
	p.place.Upgrade.Method = agentapi.MethodPhysical
	_, _, err = p.place.choose(t.Context(), m)
	require.ErrorContains(t, err, "spec.upgrade.method is Physical, and cannot be: there are no programs")
	p.place.Carried = carried
	method, _, err = p.place.choose(t.Context(), m)
	require.NoError(t, err)
	assert.Equal(t, agentapi.MethodPhysical, method)

	// A database that is sorted by ICU: the version is compared.
	p.source.Exec("postgres", `CREATE TABLE names (name text COLLATE "de-x-icu" PRIMARY KEY)`)
	used, err := p.place.usedCollations(t.Context(), m)
	require.NoError(t, err)
	require.Len(t, used, 1)
	assert.Equal(t, "i", used[0].Provider)
	require.NoError(t, p.place.makeEmpty(t.Context(), m))
	here, err := p.place.collationsHere(t.Context())
	require.NoError(t, err)
	assert.Equal(t, used[0].Version != here["i "+used[0].Locale], func() bool {
		why, err := p.place.otherCollations(t.Context(), m)
		require.NoError(t, err)
		return why != ""
	}())
}
