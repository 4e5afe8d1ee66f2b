package generation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/postgres"
	"github.com/pgsteward/pgsteward/internal/testing/servers"
)

// move is a switch of which is noted what it did; stop comes before the server is stopped, and close when clients were kept out or let in.
type move struct {
	*Switch
	handedOver bool
	// unheard is what handing over says, if it fails.
	unheard  error
	unmarked bool
	closed   []bool
	stop     func()
	close    func()
	// confirm is what the API server says, by how often it was asked before.
	confirm   func(asked int) error
	confirmed int
	// announced is how often the target was told that the writes come.
	announced int
}

func newMove(t *testing.T, l *logicalCopy) *move {
	t.Helper()
	m := &move{stop: func() {}, close: func() {}, confirm: func(int) error { return nil }}
	m.Switch = &Switch{
		Log: slog.New(slog.DiscardHandler), ID: "a1", Target: "db-2", MaxPause: time.Minute, Local: opened(l.source), Remote: opened(l.target),
		Close: func(_ context.Context, now bool) error {
			m.closed = append(m.closed, now)
			m.close()
			return nil
		},
		Confirm: func(context.Context) error { m.confirmed++; return m.confirm(m.confirmed - 1) },
		Stop: func(context.Context) error {
			m.stop()
			l.source.Stop()
			return nil
		},
		NextXID: func() (uint64, error) {
			content, err := os.ReadFile(filepath.Join(l.source.Data, postgres.ControlFile))
			require.NoError(t, err)
			control, err := postgres.ParseControl(content)
			require.True(t, control.StoppedCleanly())
			return control.NextXID, err
		},
		Mark: func(map[string]string) error { return nil }, Unmark: func() error { m.unmarked = true; return nil },
		HandOver: func(context.Context) error {
			m.handedOver = m.unheard == nil
			return m.unheard
		},
		Announce: func(context.Context) time.Time { m.announced++; return time.Time{} },
	}
	return m
}

func (m *move) run(t *testing.T) error {
	t.Helper()
	_, err := m.Run(t.Context())
	return err
}

// TestSwitch: the writes are given away only if nothing was written when everything was seen to have arrived. Who was let in before
// clients were kept out is not seen before it has proved who it is.
func TestSwitch(t *testing.T) {
	l := newLogicalCopy(t, 15, servers.Newest(t, 17))
	l.source.Exec("postgres", "CREATE TABLE t (a int PRIMARY KEY)")
	l.prepare(t)
	l.begin(t)
	require.NoError(t, l.place.copyLogical(t.Context(), l.marker))
	l.source.Exec("postgres", "INSERT INTO t VALUES (1)")

	late := l.source.Connect("postgres")
	_, err := late.Exec(t.Context(), "SET application_name = 'pgsteward late'") // it is not ended
	require.NoError(t, err)
	m := newMove(t, l)
	m.stop = func() {
		_, err := late.Exec(t.Context(), "INSERT INTO t VALUES (2)")
		require.NoError(t, err)
	}
	require.ErrorContains(t, m.run(t), "1 transactions began at the last moment")
	assert.False(t, m.handedOver)
	assert.Equal(t, []bool{true, false}, m.closed, "clients may come again")

	l.source.Start()
	l.drain(t)
	m = newMove(t, l)
	m.unheard = fmt.Errorf("%w: timeout", ErrUnknown)
	require.ErrorIs(t, m.run(t), ErrUnknown)
	assert.False(t, m.unmarked)
	const enabled = "SELECT bool_or(subenabled)::text FROM pg_subscription"
	assert.Equal(t, "false", text(t, l.target.Connect("postgres"), enabled), "nothing is undone")

	l.source.Start()
	l.target.Exec("postgres", "ALTER SUBSCRIPTION "+naming.UpgradeSlot("a1", l.marker.Databases["postgres"])+" ENABLE") // as Join does
	l.drain(t)
	m = newMove(t, l)
	m.unheard = errors.New("refused")
	require.ErrorContains(t, m.run(t), "refused")
	assert.True(t, m.unmarked)
	assert.Equal(t, "true", text(t, l.target.Connect("postgres"), enabled))

	l.source.Start()
	l.drain(t)
	m = newMove(t, l)
	require.NoError(t, m.run(t))
	assert.True(t, m.handedOver)
	assert.Equal(t, "2", text(t, l.target.Connect("postgres"), "SELECT count(*)::text FROM t"))
	assert.Equal(t, 1, m.announced)
	assert.Equal(t, "false", text(t, l.target.Connect("postgres"), "SELECT subenabled::text FROM pg_subscription WHERE subname = '"+naming.UpgradeSlot("a1", l.marker.Databases["postgres"])+"'"))
}

// hang is somebody who asks for WAL and never says that it has come.
func hang(t *testing.T, server *servers.Server) *pgconn.PgConn {
	t.Helper()
	c, err := pgconn.Connect(t.Context(), server.Conninfo("postgres")+" sslmode=disable replication=true application_name=db-3")
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	system, err := c.Exec(t.Context(), "IDENTIFY_SYSTEM").ReadAll()
	require.NoError(t, err)
	c.Frontend().SendQuery(&pgproto3.Query{String: "START_REPLICATION PHYSICAL " + string(system[0].Rows[0][2])})
	require.NoError(t, c.Frontend().Flush())
	for {
		message, err := c.ReceiveMessage(t.Context())
		require.NoError(t, err)
		if _, begun := message.(*pgproto3.CopyBothResponse); begun {
			return c
		}
	}
}

// TestSwitch_senders: who receives WAL from the old server and hangs is seen before the pause, and does not make it longer if he begins to in it.
func TestSwitch_senders(t *testing.T) {
	l := newLogicalCopy(t, 15, servers.Newest(t, 17))
	l.source.Exec("postgres", "CREATE TABLE t (a int PRIMARY KEY)")
	l.prepare(t)
	l.begin(t)
	require.NoError(t, l.place.copyLogical(t.Context(), l.marker))
	l.drain(t)

	hung := hang(t, l.source)
	m := newMove(t, l)
	require.ErrorContains(t, m.run(t), "WAL senders would hold up the shutdown, since what they send is not confirmed within 15s: db-3 (pid ")
	assert.Empty(t, m.closed)
	require.NoError(t, hung.Close(t.Context()))
	l.source.Exec("postgres", "SELECT pg_terminate_backend(pid) FROM pg_stat_replication WHERE application_name = 'db-3'")

	m = newMove(t, l)
	m.close = func() { hang(t, l.source) }
	var began time.Time
	m.stop = func() { began = time.Now() }
	stop := m.Stop
	m.Stop = func(ctx context.Context) error {
		err := stop(ctx)
		assert.Less(t, time.Since(began), long/10, "the shutdown waits for nobody")
		return err
	}
	require.NoError(t, m.run(t))
	assert.True(t, m.handedOver)
}

// A checkpoint may take longer than what bounds our statements.
func TestSwitch_checkpoint(t *testing.T) {
	server := servers.NewServer(t, 15)
	server.Exec("postgres", "CREATE TABLE t AS SELECT generate_series(1, 100000) AS a")
	c := server.Connect("postgres")
	_, err := c.Exec(t.Context(), "SET statement_timeout = 1")
	require.NoError(t, err)
	require.NoError(t, checkpoint(t.Context(), c))
}

// TestSwitch_refused: what would not be on the other side is seen before writes are paused, or while they are, and nothing is given away.
func TestSwitch_refused(t *testing.T) {
	l := newLogicalCopy(t, 15, servers.Newest(t, 17))
	l.source.Exec("postgres", "CREATE TABLE t (a int PRIMARY KEY)")
	l.prepare(t)
	l.begin(t)
	require.NoError(t, l.place.copyLogical(t.Context(), l.marker))
	subscription := naming.UpgradeSlot("a1", l.marker.Databases["postgres"])
	refused := func(m *move, why string, closed ...bool) {
		t.Helper()
		require.ErrorContains(t, m.run(t), why)
		assert.False(t, m.handedOver)
		assert.Equal(t, closed, m.closed)
		l.drain(t) // it follows again
	}

	// A superuser made a table on both sides, as the guard's hint says.
	for _, server := range []*servers.Server{l.source, l.target} {
		server.Exec("postgres", `SET pgsteward.allow_ddl = on; CREATE TABLE "Made" (a int PRIMARY KEY, b text)`)
	}
	l.source.Exec("postgres", `INSERT INTO "Made" VALUES (1)`)
	refused(newMove(t, l), `does not follow "public"."Made" of database postgres, so that rows would be missing there: as a superuser in that database of db-2, `+
		`ALTER SUBSCRIPTION "`+subscription+`" REFRESH PUBLICATION`)
	l.target.Exec("postgres", `ALTER SUBSCRIPTION "`+subscription+`" REFRESH PUBLICATION`)
	require.NoError(t, l.place.awaitTables(t.Context(), l.marker))

	l.source.Exec("postgres", "SELECT lo_create(4711)")
	refused(newMove(t, l), "database postgres has large objects, which are not carried over and would be lost: 4711")
	l.source.Exec("postgres", "SELECT lo_unlink(4711)")
	late := func(statement string) *move { // it is the last that a client did
		m := newMove(t, l)
		m.close = func() {
			if len(m.closed) == 1 {
				l.source.Exec("postgres", statement)
			}
		}
		return m
	}
	refused(late("SELECT lo_create(4712)"), "would be lost: 4712", true, false)
	l.source.Exec("postgres", "SELECT lo_unlink(4712)")
	refused(late("CREATE DATABASE made"), "database made was made meanwhile", true, false)
	l.source.Exec("postgres", "DROP DATABASE made")

	// The Lease could not be moved: seen before writes are paused, or before the server is stopped.
	for asked, closed := range [][]bool{nil, {true, false}} {
		m := newMove(t, l)
		m.stop = func() { t.Error("it is not stopped") }
		m.confirm = func(n int) error {
			if n == asked {
				return errors.New("connection refused")
			}
			return nil
		}
		refused(m, "the Lease cannot be moved just now: connection refused", closed...)
	}

	l.source.Exec("postgres", `INSERT INTO "Made" VALUES (2)`)
	m := late("CREATE ROLE newcomer LOGIN PASSWORD 'one'")
	require.NoError(t, m.run(t))
	assert.True(t, m.handedOver)
	assert.Equal(t, "2", text(t, l.target.Connect("postgres"), `SELECT count(*)::text FROM "Made"`))
	assert.Equal(t, "true", text(t, l.target.Connect("postgres"), "SELECT (rolcanlogin AND rolpassword IS NOT NULL)::text FROM pg_authid WHERE rolname = 'newcomer'"))
}
