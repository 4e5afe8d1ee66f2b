package generation

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgsteward/pgsteward/internal/naming"
)

const (
	// sendersPatience is how long who receives WAL from here has to confirm what there is, before the pause: longer than pg_receivewal
	// takes to say anything by itself.
	sendersPatience = 15 * time.Second
	// sendersGrace is how long they have in the pause. Who follows needs some milliseconds.
	sendersGrace = 300 * time.Millisecond
)

// behindSenders are the WAL senders whose other side has not confirmed to have received the position $1. A base backup is none: a server that stops
// ends it. That it is on disk there is not asked for: who copies data syncs WAL only when a file of it is complete, or when a sender that wants
// to end asks for it.
const behindSenders = `FROM pg_stat_replication r WHERE state IN ('catchup', 'streaming') AND coalesce(write_lsn, '0/0') < $1::pg_lsn
	AND NOT EXISTS (SELECT FROM pg_replication_slots s WHERE s.active_pid = r.pid AND starts_with(s.slot_name, $2))`

// sendersFollow refuses the switch if somebody who receives WAL from here does not confirm what there is: a server that stops waits for each of
// them, until wal_sender_timeout. To be asked before the pause, when a checkpoint has just made WAL that all have to receive. The target's
// subscriptions are looked at by themselves, and end in the pause.
func (s *Switch) sendersFollow(ctx context.Context, c *pgx.Conn) error {
	_, left, err := s.awaitSenders(ctx, c, sendersPatience)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("WAL senders would hold up the shutdown, since what they send is not confirmed within %s: %s (pg_stat_replication)",
			sendersPatience, strings.Join(left, ", "))
	}
	return err
}

// endSenders ends those who hang although they followed before the pause, and all logical ones: for them the server waits before it writes its last
// checkpoint, for the others after it (stopForSwitch in internal/agent). Nothing is lost by it: everything has arrived at the target, which is what
// clients will see; a commit that waited for a synchronous standby was confirmed by it before it was acknowledged, and nobody commits any more;
// a standby that works comes again, and its slot keeps what it needs. A sender that cannot be ended, since the connection takes nothing more,
// would keep the server from its last checkpoint: so it refuses the switch while that serves.
func (s *Switch) endSenders(ctx context.Context) error {
	c := s.pairs[0].from
	if _, err := c.Exec(ctx, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_type = 'logical' AND active"); err != nil {
		return fmt.Errorf("ending logical WAL senders: %w", err)
	}
	end, left, err := s.awaitSenders(ctx, c, sendersGrace)
	if err != nil || len(left) == 0 {
		return err
	}
	s.Log.Warn("Ending WAL senders that would hold up the shutdown", "senders", left)
	if _, err := c.Exec(ctx, "SELECT pg_terminate_backend(pid) "+behindSenders, end, naming.UpgradeSlots(s.ID)); err != nil {
		return fmt.Errorf("ending WAL senders: %w", err)
	}
	_, left, err = s.awaitSenders(ctx, c, sendersGrace)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("WAL senders would hold up the shutdown, and cannot be ended: %s (pg_stat_replication)", strings.Join(left, ", "))
	}
	return err
}

// awaitSenders waits until all WAL senders' other sides have confirmed what is on disk here now, and says which have not.
func (s *Switch) awaitSenders(ctx context.Context, c *pgx.Conn, patience time.Duration) (end string, left []string, err error) {
	if err := c.QueryRow(ctx, "SELECT pg_current_wal_flush_lsn()::text").Scan(&end); err != nil {
		return "", nil, fmt.Errorf("asking for the last position: %w", err)
	}
	for deadline := time.Now().Add(patience); ; {
		left, err = column(ctx, c, "SELECT format('%s (pid %s)', application_name, pid) "+behindSenders+" ORDER BY 1", end, naming.UpgradeSlots(s.ID))
		if err != nil {
			return "", nil, fmt.Errorf("looking at the WAL senders: %w", err)
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return end, left, nil
		}
		if err := wait(ctx, drainPoll); err != nil {
			return "", nil, fmt.Errorf("waiting for the WAL senders: %w", err)
		}
	}
}
