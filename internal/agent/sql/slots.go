package sql

import (
	"context"
	"errors"
	"fmt"

	"github.com/pgsteward/pgsteward/internal/postgres"
)

// AdvanceSlots moves the slots forward to the positions, on a standby no further than it has replayed; never back. WAL before
// them is not kept any more.
func (c *Client) AdvanceSlots(ctx context.Context, positions map[string]postgres.LSN) error {
	var problems []error
	for name, position := range positions {
		// A slot that is in use is moved by its user. One that is to come first reserves WAL when it is made.
		err := c.exec(ctx, `SELECT pg_replication_slot_advance(slot_name, least($2::text::pg_lsn, reached))
			FROM pg_replication_slots, (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END) AS r (reached)
			WHERE slot_name = $1 AND slot_type = 'physical' AND NOT active AND coalesce(wal_status <> 'lost', true)
			      AND restart_lsn < least($2::text::pg_lsn, reached)`, name, position.String())
		if err != nil {
			problems = append(problems, fmt.Errorf("advancing slot %s to %s: %w", name, position, err))
		}
	}
	return errors.Join(problems...)
}
