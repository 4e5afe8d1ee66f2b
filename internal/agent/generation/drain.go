package generation

import (
	"context"
	"errors"
	"fmt"

	"github.com/pgsteward/pgsteward/internal/naming"
)

// others are the sessions that may write: all but those of the agents.
const others = `FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
	AND usename IS DISTINCT FROM '` + naming.UpgradeUser + `' AND NOT (application_name LIKE 'pgsteward%' AND client_addr IS NULL)`

func (s *Switch) clients(ctx context.Context) (left int, err error) {
	if err := s.pairs[0].from.QueryRow(ctx, "SELECT count(*) "+others).Scan(&left); err != nil {
		return 0, fmt.Errorf("looking for clients: %w", err)
	}
	return left, nil
}

// endClients ends all clients' sessions; none comes any more.
func (s *Switch) endClients(ctx context.Context) error {
	for quiet := 0; quiet < 2; {
		var ended int
		if err := s.pairs[0].from.QueryRow(ctx, "SELECT count(pg_terminate_backend(pid)) "+others).Scan(&ended); err != nil {
			return fmt.Errorf("ending clients' sessions: %w", err)
		}
		if quiet++; ended > 0 {
			quiet = 0
		}
		if err := wait(ctx, drainPoll); err != nil {
			return errors.New("clients' sessions did not end")
		}
	}
	return nil
}

// drain waits until everything that was ever committed here has arrived there.
func (s *Switch) drain(ctx context.Context) error {
	c := s.pairs[0].from
	if err := s.emitLast(ctx); err != nil {
		return err
	}
	var end string
	if err := c.QueryRow(ctx, "SELECT pg_current_wal_flush_lsn()::text").Scan(&end); err != nil {
		return fmt.Errorf("asking for the last position: %w", err)
	}
	var names []string
	for _, p := range s.pairs {
		names = append(names, naming.UpgradeSlot(s.ID, p.oid))
	}
	for {
		var arrived int
		err := c.QueryRow(ctx, "SELECT count(*) FROM pg_replication_slots WHERE slot_name = ANY($1) AND confirmed_flush_lsn >= $2::pg_lsn",
			names, end).Scan(&arrived)
		if err != nil {
			return fmt.Errorf("waiting until everything has arrived: %w", err)
		}
		if arrived == len(names) {
			return nil
		}
		// a subscription commits without waiting for its disk, and confirms what is there: this commit makes it be
		if _, err := s.pairs[0].to.Exec(ctx, "SELECT pg_logical_emit_message(true, 'pgsteward', 'switchover')"); err != nil {
			return fmt.Errorf("waiting until everything has arrived: %w", err)
		}
		if err := wait(ctx, drainPoll); err != nil {
			return fmt.Errorf("%s did not receive everything in time", s.Target)
		}
	}
}

// emitLast writes the transaction that is to be the last one here. No earlier one is under way then, and its commit flushes all of them.
func (s *Switch) emitLast(ctx context.Context) error {
	for {
		var open bool
		err := s.pairs[0].from.QueryRow(ctx, `SELECT pg_current_xact_id()::text::bigint, pg_snapshot_xmin(snapshot) <> pg_current_xact_id()
			FROM pg_current_snapshot() AS snapshot, pg_logical_emit_message(true, 'pgsteward', 'switchover')`).Scan(&s.last, &open)
		if err != nil {
			return fmt.Errorf("writing the last record: %w", err)
		}
		if !open {
			return nil
		}
		if err := s.endClients(ctx); err != nil {
			return err
		}
		if err := wait(ctx, drainPoll); err != nil {
			return errors.New("transactions that write did not end")
		}
	}
}

// nothingCame makes sure that no transaction came after the last one. A session that was let in before clients were kept out shows only
// when it has proved who it is: no question to the server can tell that there is none.
func (s *Switch) nothingCame() error {
	next, err := s.NextXID()
	switch {
	case err != nil:
		return fmt.Errorf("looking whether anything was written at the last moment: %w", err)
	case next != s.last+1:
		return fmt.Errorf("%d transactions began at the last moment, behind what was moved, and would be lost", next-s.last-1)
	}
	return nil
}
