package generation

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// Join makes the new server follow the source: it runs here, detached. It returns when all is done but what replication itself does, and
// changes nothing where that is so already; so it is also what puts right what a switch left that came to nothing.
func (p *Place) Join(ctx context.Context) error {
	m, err := p.takeUp()
	if err != nil {
		return err
	}
	return p.finally(m, p.join(ctx, m))
}

func (p *Place) join(ctx context.Context, m *Marker) error {
	if m.Method == agentapi.MethodInPlace {
		return p.finishInPlace(ctx, m)
	}
	if err := p.identify(ctx, m); err != nil {
		return err
	}
	if err := p.enlist(ctx, m); err != nil {
		return err
	}
	if err := p.dropReverseSlots(ctx); err != nil {
		return err
	}
	if m.Method == agentapi.MethodLogical {
		if m.Stage == agentapi.SeedCopying {
			if err := p.copyLogical(ctx, m); err != nil {
				return err
			}
			if err := p.enter(m, agentapi.SeedJoining); err != nil {
				return err
			}
		}
	}
	err := p.inEach(ctx, m, func(c *pgx.Conn, database string) error {
		p.Progress("following database " + database)
		return p.follow(ctx, m, c, database)
	})
	if err != nil {
		return err
	}
	if !m.Analyzed {
		if err := p.inEach(ctx, m, func(c *pgx.Conn, database string) error { return p.finish(ctx, m, c, database) }); err != nil {
			return err
		}
		m.Analyzed = true
		if err := m.Write(p.New); err != nil {
			return err
		}
	}
	p.Progress("following")
	return p.enter(m, agentapi.SeedFollowing)
}

// dropReverseSlots drops slots for the way back, which a switch made that came to nothing.
func (p *Place) dropReverseSlots(ctx context.Context) error {
	local, err := p.Local(ctx, "postgres")
	if err != nil {
		return err
	}
	defer closeConn(local)
	return dropSlots(ctx, local, "")
}

// follow makes the subscription of a database go on from the position. One that a copy of the tables made is only enabled.
func (p *Place) follow(ctx context.Context, m *Marker, local *pgx.Conn, database string) error {
	if err := DropDDLGuard(ctx, local); err != nil { // it came along with the copy
		return err
	}
	name := naming.UpgradeSlot(m.ID, m.Databases[database])
	quoted := pgx.Identifier{name}.Sanitize()
	var oid uint32
	var enabled, begun bool
	const state = `SELECT oid, subenabled, pg_replication_origin_progress('pg_' || oid, false) IS NOT NULL FROM pg_subscription
		WHERE subname = $1 AND subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())`
	err := local.QueryRow(ctx, state, name).Scan(&oid, &enabled, &begun)
	if errors.Is(err, pgx.ErrNoRows) {
		if m.Method == agentapi.MethodLogical {
			return over(reasonSlot, "the subscription of database "+database+" is gone")
		}
		if err := ensurePublication(ctx, local); err != nil { // for the way back
			return err
		}
		_, err = local.Exec(ctx, "CREATE SUBSCRIPTION "+quoted+" CONNECTION "+quoteLiteral(p.Conninfo(m.Source, database))+
			" PUBLICATION "+naming.UpgradePublication+" WITH (create_slot = false, slot_name = "+quoteLiteral(name)+
			", copy_data = false, enabled = false, streaming = on"+originNone(m.To)+")")
		if err != nil {
			return fmt.Errorf("making the subscription: %w", err)
		}
		err = local.QueryRow(ctx, state, name).Scan(&oid, &enabled, &begun)
	}
	if err != nil {
		return fmt.Errorf("looking at the subscription: %w", err)
	}
	if !enabled && !begun && m.Method != agentapi.MethodLogical {
		// Exactly what the copy does not have: a crash between this and the next step does no harm, since it is not enabled yet.
		if _, err := local.Exec(ctx, "SELECT pg_replication_origin_advance('pg_' || $1::oid, $2::text::pg_lsn)", oid, m.Position); err != nil {
			return fmt.Errorf("setting where the subscription begins: %w", err)
		}
	}
	if enabled {
		return nil
	}
	if _, err := local.Exec(ctx, "ALTER SUBSCRIPTION "+quoted+" ENABLE"); err != nil {
		return fmt.Errorf("enabling the subscription: %w", err)
	}
	return nil
}

// originNone keeps what a subscription brought from being sent back, where the subscriber knows that option.
func originNone(major int) string {
	if major >= 16 {
		return ", origin = none"
	}
	return ""
}

// finish does in one database what comes after the copy: extensions are brought up to the image's, statistics are made, and
// materialized views filled anew. None of it may fail the upgrade, but for the statistics.
func (p *Place) finish(ctx context.Context, m *Marker, c *pgx.Conn, database string) error {
	if _, err := c.Exec(ctx, "SET statement_timeout = 0; SET lock_timeout = '30s'; SET vacuum_cost_delay = 0"); err != nil {
		return err
	}
	p.Progress("updating extensions of " + database)
	if err := p.updateExtensions(ctx, c, database); err != nil {
		return err
	}
	targets := []string{"1", "10", "default"}
	if m.To >= 18 && m.Method == agentapi.MethodPhysical {
		targets = targets[2:] // pg_upgrade brought statistics along
	}
	for i, target := range targets {
		p.Progress(fmt.Sprintf("making statistics of %s, %d of %d", database, i+1, len(targets)))
		if _, err := c.Exec(ctx, "SET default_statistics_target TO "+target); err != nil {
			return err
		}
		if _, err := c.Exec(ctx, "ANALYZE"); err != nil {
			return fmt.Errorf("making statistics: %w", err)
		}
	}
	if m.Method == agentapi.MethodLogical {
		return nil // which has filled them a moment ago
	}
	p.Progress("filling materialized views of " + database)
	failed, err := RefreshViews(ctx, c)
	for view, why := range failed {
		p.Log.Warn("A materialized view could not be filled", "database", database, "view", view, "error", why)
	}
	return err
}

// updateExtensions brings extensions up to the version that the image has.
func (p *Place) updateExtensions(ctx context.Context, c *pgx.Conn, database string) error {
	names, err := column(ctx, c, `SELECT e.extname FROM pg_extension e JOIN pg_available_extensions a ON a.name = e.extname
		WHERE a.default_version <> e.extversion ORDER BY 1`)
	if err != nil {
		return fmt.Errorf("looking for extensions to update: %w", err)
	}
	for _, name := range names {
		if _, err := c.Exec(ctx, "ALTER EXTENSION "+pgx.Identifier{name}.Sanitize()+" UPDATE"); err != nil {
			if ctx.Err() != nil || c.IsClosed() {
				return err
			}
			p.Log.Warn("An extension could not be updated", "database", database, "extension", name, "error", err)
		}
	}
	return nil
}
