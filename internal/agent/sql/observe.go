package sql

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgsteward/pgsteward/internal/postgres"
)

// State is a running server's state.
type State struct {
	InRecovery bool
	Timeline   int64
	// Written is what a primary has written, or a standby received or replayed, whichever is further.
	Written postgres.LSN
	// ReadAll says that a standby has read all the WAL that it has: Written is then really all.
	ReadAll bool
	// Replayed is how far a standby has replayed.
	Replayed postgres.LSN
	// Streaming says whether a standby receives from its upstream; Lag is then how far replay is behind what was sent.
	Streaming bool
	Lag       int64
	// ReplayPaused says that a standby has stopped replaying, e.g. because a setting of its primary is greater than its own.
	ReplayPaused bool
	// ConfigRead is when the server, in the session that was asked, last read its configuration (pg_conf_load_time).
	ConfigRead time.Time
	// PendingRestart are the parameters that wait for a restart.
	PendingRestart []string
	// Lowering are those of a primary's PendingRestart of which its standbys must not have less, and that the restart would lower.
	Lowering []string
	// Slots are our physical slots that keep WAL, and from where.
	Slots map[string]postgres.LSN
	// Senders are the connections over which others receive WAL from this server.
	Senders []Sender
	// SyncNames is synchronous_standby_names as it is in force for new sessions.
	SyncNames string
	// CheckpointerFree says that the checkpointer waits for something to do, so that it has read the configuration that was
	// there a moment ago. It is the one who tells sessions that commits wait for standbys at all.
	CheckpointerFree bool
}

// Sender is a connection over which another server receives WAL.
type Sender struct {
	// Name is the receiver's application_name: a standby's is the instance's name.
	Name string `json:"name"`
	// Streaming says whether it has caught up so far that new WAL is sent as it is written.
	Streaming bool `json:"streaming"`
	// Flushed is what the receiver has on disk.
	Flushed postgres.LSN `json:"-"`
	// Candidate says whether the server counts the receiver among its synchronous standbys: by the configuration that the
	// sender itself has read, which may be a moment behind.
	Candidate bool `json:"candidate"`

	FlushedText string `json:"flushed"`
}

// The position of a WAL receiver is known from when it was first asked for, which is when all WAL that is there was read.
// A standby's timeline is the one it receives, or else the one of its last restart point. pg_stat_wal_receiver has its row
// only while the process lives. PostgreSQL leaves pending_restart set when a line that would have needed a restart was taken
// out again, so such a parameter counts only if its value comes from the file or is in it.
const observeQuery = `
SELECT recovery,
       CASE WHEN recovery
            THEN coalesce(receiver.received_tli, (pg_control_recovery()).min_recovery_end_timeline, 0)
            ELSE ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int
       END,
       CASE WHEN recovery
            THEN greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())
            ELSE pg_current_wal_flush_lsn()
       END::text,
       recovery AND pg_last_wal_receive_lsn() IS NOT NULL,
       CASE WHEN recovery THEN pg_last_wal_replay_lsn() END::text,
       coalesce(receiver.status = 'streaming', false),
       greatest(coalesce(receiver.latest_end_lsn - pg_last_wal_replay_lsn(), 0), 0)::bigint,
       CASE WHEN recovery THEN pg_get_wal_replay_pause_state() = 'paused' ELSE false END,
       ARRAY(SELECT name FROM pg_settings
             WHERE pending_restart
                   AND (source = 'configuration file' OR EXISTS (SELECT FROM pg_file_settings AS f WHERE f.name = pg_settings.name))
             ORDER BY name),
       ARRAY(SELECT name FROM pg_settings AS s
             WHERE NOT recovery AND pending_restart AND name = ANY ($2)
                   AND EXISTS (SELECT FROM pg_file_settings AS f
                               WHERE f.name = s.name AND f.setting ~ '^[0-9]{1,9}$' AND f.setting::bigint < s.setting::bigint)
             ORDER BY name),
       coalesce((SELECT json_object_agg(slot_name, restart_lsn::text) FROM pg_replication_slots
                 WHERE slot_type = 'physical' AND restart_lsn IS NOT NULL AND starts_with(slot_name, $1)), '{}'),
       coalesce((SELECT json_agg(json_build_object('name', application_name, 'streaming', state = 'streaming',
                                                   'flushed', coalesce(flush_lsn::text, ''), 'candidate', sync_priority > 0)
                                 ORDER BY application_name)
                 FROM pg_stat_replication), '[]'),
       current_setting('synchronous_standby_names'),
       coalesce((SELECT bool_or(wait_event IN ('CheckpointerMain', 'CheckpointWriteDelay')) FROM pg_stat_activity
                 WHERE backend_type = 'checkpointer'), false),
       pg_conf_load_time()
FROM pg_is_in_recovery() AS recovery
     LEFT JOIN pg_stat_wal_receiver AS receiver ON true`

// atLeastThePrimarys are the settings of which a standby must not have less than its primary
// (https://www.postgresql.org/docs/current/hot-standby.html#HOT-STANDBY-ADMIN).
var atLeastThePrimarys = []string{"max_connections", "max_locks_per_transaction", "max_prepared_transactions", "max_wal_senders", "max_worker_processes"}

// Observe asks the server for its state.
func (c *Client) Observe(ctx context.Context) (State, error) {
	var state State
	var written, replayed *string
	slots := map[string]string{}
	err := c.with(ctx, observeTimeout, func(ctx context.Context, connection *pgx.Conn) error {
		return connection.QueryRow(ctx, observeQuery, slotPrefix, atLeastThePrimarys).Scan(&state.InRecovery, &state.Timeline, &written, &state.ReadAll, &replayed,
			&state.Streaming, &state.Lag, &state.ReplayPaused, &state.PendingRestart, &state.Lowering, &slots, &state.Senders, &state.SyncNames,
			&state.CheckpointerFree, &state.ConfigRead)
	})
	if err != nil {
		return State{}, err
	}
	state.Written, state.Replayed = position(written), position(replayed)
	state.Slots = map[string]postgres.LSN{}
	for name, text := range slots {
		state.Slots[name] = position(&text)
	}
	for i := range state.Senders {
		state.Senders[i].Flushed = position(&state.Senders[i].FlushedText)
	}
	return state, nil
}

// Below are the names of those settings of the running server that are below the minimums.
func (c *Client) Below(ctx context.Context, minimums map[string]int) ([]string, error) {
	var names []string
	var least []int32
	for name, minimum := range minimums {
		names, least = append(names, name), append(least, int32(minimum)) //nolint:gosec // a setting of PostgreSQL
	}
	var found []string
	err := c.with(ctx, observeTimeout, func(ctx context.Context, connection *pgx.Conn) error {
		rows, err := connection.Query(ctx, `SELECT s.name FROM pg_settings AS s
			JOIN unnest($1::text[], $2::int[]) AS m (name, least) ON s.name = m.name AND s.setting::bigint < m.least`, names, least)
		if err != nil {
			return err
		}
		found, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return found, err
}

func position(text *string) postgres.LSN {
	if text == nil {
		return 0
	}
	lsn, err := postgres.ParseLSN(*text)
	if err != nil {
		return 0
	}
	return lsn
}

func asPgError(err error, target **pgconn.PgError) bool { return errors.As(err, target) }
