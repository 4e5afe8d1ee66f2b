package generation

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// Look says how the seed is. It asks servers only once the new one runs, and once each.
func (p *Place) Look(ctx context.Context) (agentapi.SeedStatus, error) {
	m, err := ReadMarker(p.New)
	if err != nil {
		return agentapi.SeedStatus{}, err
	}
	if m == nil || m.ID != p.Upgrade.ID {
		return agentapi.SeedStatus{Stage: agentapi.SeedPreparing, Source: p.Source}, nil
	}
	status := m.Status()
	if found, err := p.New.Inspect(); err == nil && found.Complete {
		status.NewSystem = found.Control.SystemIdentifier
	}
	switch m.Stage {
	case agentapi.SeedCopying:
		if status.TablesDone, status.TablesTotal, err = p.tables(ctx, m); err == nil {
			err = p.releaseAtSource(ctx, m)
		}
	case agentapi.SeedJoining, agentapi.SeedFollowing:
		if m.Method != agentapi.MethodInPlace {
			err = p.lookFollowing(ctx, m, &status)
		}
	case agentapi.SeedStreaming:
		err = p.lookStreaming(ctx, m, &status)
	case agentapi.SeedPreparing, agentapi.SeedReplaying, agentapi.SeedConverting, agentapi.SeedFailed:
	}
	return status, err
}

// Status is what the marker alone says of the seed.
func (m *Marker) Status() agentapi.SeedStatus {
	return agentapi.SeedStatus{
		Stage: m.Stage, Since: m.Since, Method: m.Method, Why: m.Why, Source: m.Source, System: m.System, Position: m.Position,
		Analyzed: m.Analyzed, Problem: m.Failed,
	}
}

// releaseAtSource is releaseWAL on the source: a copy takes long, and nobody reads from the slot any more.
func (p *Place) releaseAtSource(ctx context.Context, m *Marker) error {
	source, err := p.Remote(ctx, m.Source, "postgres")
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", m.Source, err)
	}
	defer closeConn(source)
	return p.releaseWAL(ctx, source)
}

// lookFollowing looks at both ends of replication. A slot that cannot serve any more ends the attempt.
func (p *Place) lookFollowing(ctx context.Context, m *Marker, status *agentapi.SeedStatus) error {
	source, err := p.Remote(ctx, m.Source, "postgres")
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", m.Source, err)
	}
	defer closeConn(source)
	found, err := slots(ctx, source, m.ID)
	if err != nil {
		return err
	}
	if m.Stage == agentapi.SeedFollowing { // before, a subscription may still have to make its slot
		if err := p.finally(m, checkSlots(m, found)); err != nil {
			return err
		}
	}
	if err := p.releaseWAL(ctx, source); err != nil {
		return err
	}
	ours := slices.DeleteFunc(found, func(s slotState) bool {
		_, known := m.Databases[s.Database]
		return !known || s.Name != naming.UpgradeSlot(m.ID, m.Databases[s.Database])
	})
	status.Streaming, status.LagBytes = behind(ours, len(m.Databases))
	if status.Streaming {
		return nil
	}
	return p.whyNot(ctx, m.ID, func(problem *agentapi.Problem) { status.Problem = problem })
}

// behind says whether all slots are in use, and how far the last is behind.
func behind(found []slotState, wanted int) (streaming bool, lag *int64) {
	streaming = len(found) == wanted
	var most int64
	for _, slot := range found {
		streaming = streaming && slot.Active
		if slot.Behind == nil {
			return streaming, nil
		}
		most = max(most, *slot.Behind)
	}
	if len(found) < wanted {
		return false, nil
	}
	return streaming, &most
}

const reasonApply = "NotStreaming"

// whyNot says what keeps a subscription that is enabled from being active, if the server knows.
func (p *Place) whyNot(ctx context.Context, id string, say func(*agentapi.Problem)) error {
	local, err := p.Local(ctx, "postgres")
	if err != nil {
		return err
	}
	defer closeConn(local)
	rows, err := local.Query(ctx, `SELECT d.datname, s.subenabled, coalesce(t.apply_error_count + t.sync_error_count, 0)
		FROM pg_subscription s JOIN pg_database d ON d.oid = s.subdbid LEFT JOIN pg_stat_subscription_stats t ON t.subid = s.oid
		WHERE starts_with(s.subname, $1) ORDER BY 1`, naming.UpgradeSlots(id))
	if err != nil {
		return fmt.Errorf("looking at the subscriptions: %w", err)
	}
	var database string
	var enabled bool
	var errors int64
	_, err = pgx.ForEachRow(rows, []any{&database, &enabled, &errors}, func() error {
		switch {
		case !enabled:
			say(&agentapi.Problem{Reason: reasonApply, Message: "the subscription of database " + database + " is disabled"})
		case errors > 0:
			say(&agentapi.Problem{Reason: reasonApply, Message: fmt.Sprintf("the subscription of database %s has failed %d times: see PostgreSQL's log", database, errors)})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("looking at the subscriptions: %w", err)
	}
	return nil
}

// releaseEvery is how much WAL the seed's physical slot may keep beyond what somebody needs.
const releaseEvery = 64 << 20

// releaseWAL moves the seed's physical slot, which nobody uses any more: it would keep WAL on the source.
func (p *Place) releaseWAL(ctx context.Context, source *pgx.Conn) error {
	_, err := source.Exec(ctx, `SELECT pg_replication_slot_advance(slot_name, pg_current_wal_flush_lsn()) FROM pg_replication_slots
		WHERE slot_name = $1 AND slot_type = 'physical' AND NOT active AND coalesce(wal_status <> 'lost', true)
		      AND restart_lsn < pg_current_wal_flush_lsn() - $2::numeric`, p.slot(), releaseEvery)
	if err != nil {
		return fmt.Errorf("moving the slot %s: %w", p.slot(), err)
	}
	return nil
}
