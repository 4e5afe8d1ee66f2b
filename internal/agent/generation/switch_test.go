package generation

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/postgres"
	"github.com/pgsteward/pgsteward/internal/testing/servers"
)

// TestSwitch: the writes are given away only if nothing was written when everything was seen to have arrived. Who was let in before
// clients were kept out is not seen before it has proved who it is.
func TestSwitch(t *testing.T) {
	l := newLogicalCopy(t, 15, servers.Newest(t, 17))
	l.source.Exec("postgres", "CREATE TABLE t (a int PRIMARY KEY)")
	l.prepare(t)
	l.begin(t)
	require.NoError(t, l.place.copyLogical(t.Context(), l.marker))
	l.source.Exec("postgres", "INSERT INTO t VALUES (1)")

	var late *pgx.Conn
	var handedOver bool
	var closed []bool
	move := func() error {
		s := &Switch{
			Log: slog.New(slog.DiscardHandler), ID: "a1", Target: "db-2", MaxPause: time.Minute, Local: l.source.Open, Remote: l.target.Open,
			Close: func(_ context.Context, now bool) error { closed = append(closed, now); return nil },
			Stop: func(ctx context.Context) error {
				if late != nil {
					_, err := late.Exec(ctx, "INSERT INTO t VALUES (2)")
					require.NoError(t, err)
				}
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
			Mark: func(map[string]string) error { return nil }, Unmark: func() error { return nil },
			HandOver: func(context.Context) error { handedOver = true; return nil },
		}
		_, err := s.Run(t.Context())
		return err
	}

	late = l.source.Connect("postgres")
	_, err := late.Exec(t.Context(), "SET application_name = 'pgsteward late'") // it is not ended
	require.NoError(t, err)
	require.ErrorContains(t, move(), "1 transactions began at the last moment")
	assert.False(t, handedOver)
	assert.Equal(t, []bool{true, false}, closed, "clients may come again")

	l.source.Start()
	late = nil
	l.drain(t)
	require.NoError(t, move())
	assert.True(t, handedOver)
	assert.Equal(t, "2", text(t, l.target.Connect("postgres"), "SELECT count(*)::text FROM t"))
	assert.Equal(t, "false", text(t, l.target.Connect("postgres"), "SELECT subenabled::text FROM pg_subscription WHERE subname = '"+naming.UpgradeSlot("a1", l.marker.Databases["postgres"])+"'"))
}
