package generation

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// inPlace is a seed that is made while the source is stopped, and the move of the writes to it.
type inPlace struct {
	*physical
	move    *Offline
	stopped atomic.Pointer[string]
	made    chan error
	closed  []bool
	marks   int
	system  string
	// lease is why that cannot be moved; nil: it can.
	lease error
}

func newInPlace(t *testing.T) *inPlace {
	t.Helper()
	i := &inPlace{physical: newPhysical(t, 15, 17), made: make(chan error, 1)}
	i.place.Upgrade.Method = agentapi.MethodInPlace
	i.place.Stopped = func() string {
		if at := i.stopped.Load(); at != nil {
			return *at
		}
		return ""
	}
	i.move = &Offline{
		Log: slog.New(slog.DiscardHandler), Target: "db-2", MaxPause: long, Local: opened(i.source),
		Ask: func(ctx context.Context) (agentapi.SeedStatus, string, error) {
			status, err := i.place.Look(ctx)
			if i.target == nil {
				return status, "", err
			}
			return status, status.NewSystem, err
		},
		Tell:    func(_ context.Context, position string) error { i.stopped.Store(&position); return nil },
		Confirm: func(context.Context) error { return i.lease },
		Close:   func(_ context.Context, closed bool) error { i.closed = append(i.closed, closed); return nil },
		Stop:    func(context.Context) error { i.source.Stop(); return nil },
		Stopped: func() (string, error) {
			content, err := os.ReadFile(filepath.Join(i.source.Data, postgres.ControlFile))
			require.NoError(t, err)
			control, err := postgres.ParseControl(content)
			require.True(t, control.StoppedCleanly())
			return control.Position.LSN.String(), err
		},
		Mark:     func() error { i.marks++; return nil },
		Unmark:   func() error { i.marks = 0; return nil },
		HandOver: func(_ context.Context, system string) error { i.system = system; return nil },
	}
	return i
}

// begin makes the seed, beside the test, until it streams closely.
func (i *inPlace) begin() {
	i.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { i.made <- i.place.Make(ctx); close(ended) }()
	i.t.Cleanup(func() { cancel(); <-ended })
	i.awaitStreaming()
}

// awaitStreaming waits until the seed streams closely.
func (i *inPlace) awaitStreaming() {
	i.t.Helper()
	require.Eventually(i.t, func() bool {
		status, err := i.place.Look(i.t.Context())
		return err == nil && status.Stage == agentapi.SeedStreaming && status.Streaming && status.LagBytes != nil && *status.LagBytes < 1<<20
	}, long, often)
}

// TestInPlace: what was committed until the source stopped is in the new data, and nothing has to follow; also what logical replication
// does not carry.
func TestInPlace(t *testing.T) {
	i := newInPlace(t)
	i.fill()
	i.source.Exec("app", "SELECT lo_from_bytea(4711, 'large')")
	i.begin()
	i.source.Exec("app", "CREATE TABLE late AS SELECT 7 AS n")
	late := i.source.Connect("postgres")
	_, err := late.Exec(t.Context(), "SET application_name = 'pgsteward late'") // it is not ended
	require.NoError(t, err)
	stop := i.move.Stop
	i.move.Stop = func(ctx context.Context) error {
		_, err := late.Exec(t.Context(), "CREATE TABLE last AS SELECT 8 AS n")
		require.NoError(t, err)
		return stop(ctx)
	}
	moved := make(chan error, 1)
	go func() { _, err := i.move.Run(t.Context()); moved <- err }()
	select {
	case err := <-i.made:
		require.NoError(t, err)
	case err := <-moved:
		require.NoError(t, err)
	case <-time.After(long):
		require.Fail(t, "the seed is not made", "%v", i.steps)
	}
	made, err := i.place.IsMade()
	require.NoError(t, err)
	assert.True(t, made)
	require.NoError(t, i.place.Make(t.Context()), "it is there, and the source is asked nothing")
	assert.Empty(t, i.system, "the writes are not given away before all is done")
	i.startNew()
	require.NoError(t, i.place.Join(t.Context()))
	require.NoError(t, i.place.Join(t.Context()), "again, as after a crash")
	require.NoError(t, <-moved)
	assert.NotEmpty(t, i.system)
	assert.Equal(t, 1, i.marks)
	assert.Equal(t, []bool{true}, i.closed)
	for database, query := range map[string]string{
		"app":      "SELECT n::text || convert_from(lo_get(4711), 'UTF8') FROM late",
		"postgres": "SELECT n::text || 'large' FROM last",
	} {
		assert.Contains(t, []string{"7large", "8large"}, text(t, i.target.Connect(database), query))
	}
	require.NoError(t, AnalyzeAll(t.Context(), opened(i.target)))
	assert.Equal(t, "0", text(t, i.target.Connect("app"), "SELECT count(*)::text FROM pg_stat_all_tables WHERE schemaname = 'public' AND n_live_tup > 0 AND last_analyze IS NULL"))
}

// TestInPlace_refused: what keeps the seed from being made is said, the source may go on, and a seed that was made of what there was once is
// never given the writes.
func TestInPlace_refused(t *testing.T) {
	i := newInPlace(t)
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	_, err := i.move.Run(ctx)
	require.ErrorContains(t, err, "db-2 does not follow closely")
	assert.Empty(t, i.closed, "nothing is paused for that")

	i.begin()
	i.source.Exec("postgres", "CREATE TABLE odd (kind regcollation)") // not there when the seed looked
	_, err = i.move.Run(ctx)
	require.ErrorContains(t, err, "public.odd.kind", "pg_upgrade's own words")
	assert.Equal(t, []bool{true, false}, i.closed, "clients may come again")
	assert.Empty(t, i.system)
	assert.Zero(t, i.marks)
	require.Error(t, <-i.made)

	i.source.Start()
	i.place.Upgrade.ID = "a2"
	i.stopped.Store(nil)
	i.source.Exec("postgres", "DROP TABLE odd")
	i.begin()
	i.move.Ask = func(context.Context) (agentapi.SeedStatus, string, error) {
		small := int64(0)
		if i.closed[len(i.closed)-1] {
			return agentapi.SeedStatus{Stage: agentapi.SeedFollowing, Position: "0/1"}, "123", nil
		}
		return agentapi.SeedStatus{Stage: agentapi.SeedStreaming, Streaming: true, LagBytes: &small}, "", nil
	}
	_, err = i.move.Run(ctx)
	require.ErrorContains(t, err, "db-2 was made of what there was at 0/1, while PostgreSQL has stopped at")
	assert.Empty(t, i.system)
}

// TestInPlace_checked: what pg_upgrade refuses is found while the source serves, also what came after the method was chosen.
func TestInPlace_checked(t *testing.T) {
	i := newInPlace(t)
	i.at = func(step string) {
		if step == "copying the data of db-1 to begin with" {
			i.source.Exec("postgres", "CREATE TABLE odd (kind regcollation)")
		}
	}
	err := i.place.Make(t.Context())
	var end *Over
	require.ErrorAs(t, err, &end)
	assert.Equal(t, reasonConvert, end.Problem.Reason)
	assert.Contains(t, end.Problem.Message, "public.odd.kind", "pg_upgrade's own words")
	assert.NotContains(t, i.steps, "streaming until db-1 stops")
	status, err := i.place.Look(t.Context())
	require.NoError(t, err)
	assert.Equal(t, agentapi.SeedFailed, status.Stage)
}

// TestInPlace_resumed: the seed's agent is started anew while the source is stopped, at each stage: it goes on with what is on its volume, but
// not when pg_upgrade had begun.
func TestInPlace_resumed(t *testing.T) {
	i := newInPlace(t)
	i.source.Exec("postgres", "CREATE TABLE t AS SELECT 7 AS n")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	i.at = func(step string) {
		if step == "streaming until db-1 stops" {
			cancel()
		}
	}
	require.ErrorIs(t, i.place.Make(ctx), context.Canceled, "%v", i.steps)
	i.source.Exec("postgres", "INSERT INTO t VALUES (8)")

	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	i.at = func(step string) {
		if strings.HasPrefix(step, "replaying to") {
			cancel()
		}
	}
	made := make(chan error, 1)
	go func() { made <- i.place.Make(ctx) }()
	i.awaitStreaming()
	i.source.Stop() // which waits until the seed has everything
	position, err := i.move.Stopped()
	require.NoError(t, err)
	i.stopped.Store(&position)
	require.ErrorIs(t, <-made, context.Canceled, "%v", i.steps)

	i.stopped.Store(nil) // it was told, and knows from its volume
	i.at = nil
	require.NoError(t, i.place.Make(t.Context()))
	i.startNew()
	require.NoError(t, i.place.Join(t.Context()))
	assert.Equal(t, "15", text(t, i.target.Connect("postgres"), "SELECT sum(n)::text FROM t"))
	status, err := i.place.Look(t.Context())
	require.NoError(t, err)
	assert.Equal(t, agentapi.SeedFollowing, status.Stage)
	assert.Equal(t, position, status.Position)
}

// TestInPlace_interrupted: a seed that was ended while pg_upgrade ran ends the attempt, and so does one that has not received everything.
func TestInPlace_interrupted(t *testing.T) {
	i := newInPlace(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	i.at = func(step string) {
		switch step {
		case "streaming until db-1 stops":
			i.source.Stop()
			position, err := i.move.Stopped()
			assert.NoError(t, err)
			i.stopped.Store(&position)
		case "converting with pg_upgrade":
			cancel()
		}
	}
	require.ErrorIs(t, i.place.Make(ctx), context.Canceled, "%v", i.steps)
	i.at = nil
	require.ErrorContains(t, i.place.Make(t.Context()), "pg_upgrade was interrupted")

	i.source.Start()
	i.place.Upgrade.ID = "a2"
	i.at = func(step string) {
		if step == "streaming until db-1 stops" {
			i.source.Stop()
			beyond := "F/0"
			i.stopped.Store(&beyond)
		}
	}
	require.ErrorContains(t, i.place.Make(t.Context()), "not everything that db-1 wrote before it stopped at F/0 has come")
}

// TestInPlace_bounds: the source starts again when its bound has passed, or the Lease could not be moved.
func TestInPlace_bounds(t *testing.T) {
	i := newInPlace(t)
	small := int64(0)
	i.move.Ask = func(context.Context) (agentapi.SeedStatus, string, error) {
		return agentapi.SeedStatus{Stage: agentapi.SeedStreaming, Streaming: true, LagBytes: &small}, "", nil
	}
	i.move.Stop = func(context.Context) error { return nil }
	i.move.Stopped = func() (string, error) { return "0/2", nil }
	i.move.MaxPause = time.Second
	pause, err := i.move.Run(t.Context())
	require.ErrorContains(t, err, "db-2 was not converted within 1s, for which PostgreSQL may be stopped")
	assert.GreaterOrEqual(t, pause, time.Second)
	assert.Equal(t, []bool{true, false}, i.closed, "clients may come again")
	assert.Empty(t, i.system)

	i.closed, i.lease = nil, errors.New("no API server")
	_, err = i.move.Run(t.Context())
	require.ErrorContains(t, err, "the Lease cannot be moved just now: no API server")
	assert.Empty(t, i.closed, "nothing is paused for that")
}

// TestInPlace_paused: a standby whose replay stands still, as when a parameter of the source was raised above its own, is not close, and the source
// is not stopped for it.
func TestInPlace_paused(t *testing.T) {
	i := newInPlace(t)
	i.begin()
	c, err := i.place.dialOld(t.Context())
	require.NoError(t, err)
	_, err = c.Exec(t.Context(), "SELECT pg_wal_replay_pause()")
	require.NoError(t, err)
	closeConn(c)
	i.source.Exec("postgres", "CREATE TABLE more (n integer)")
	require.Eventually(t, func() bool {
		status, err := i.place.Look(t.Context())
		return err == nil && !status.Streaming
	}, long, often)
	_, err = i.move.Run(t.Context())
	require.ErrorContains(t, err, "db-2 does not follow closely")
	assert.Empty(t, i.closed)
}
