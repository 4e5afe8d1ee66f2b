package generation

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/pgsteward/pgsteward/internal/agent/preflight"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// slot is the physical slot that every member has on the primary.
func (p *Place) slot() string { return naming.SlotName(p.Instance) }

// identify reads which system, timeline and databases the source has, or makes sure that they are what they were.
func (p *Place) identify(ctx context.Context, m *Marker) error {
	c, err := p.Remote(ctx, m.Source, "postgres")
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", m.Source, err)
	}
	defer closeConn(c)
	var system string
	var timeline int64
	var recovery bool
	err = c.QueryRow(ctx, `SELECT (pg_control_system()).system_identifier::text, recovery,
			CASE WHEN recovery THEN 0 ELSE ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int END
		FROM pg_is_in_recovery() AS recovery`).Scan(&system, &recovery, &timeline)
	if err != nil {
		return fmt.Errorf("asking %s for its system: %w", m.Source, err)
	}
	if recovery {
		return fmt.Errorf("%s is a standby", m.Source)
	}
	if m.System == "" || m.Position == "" && m.Stage == agentapi.SeedPreparing {
		m.System, m.Timeline = system, timeline
		return nil
	}
	if m.System != system || m.Timeline != timeline {
		return over(reasonSource, fmt.Sprintf("%s was on timeline %d of system %s and is on timeline %d of system %s now: the slots from which the upgrade follows are gone",
			m.Source, m.Timeline, m.System, timeline, system))
	}
	return nil
}

// prepareSource makes in each database of the source what replication to the next generation needs; for the physical method also the
// slots, and the position from which all of them go on. What is there already is left as it is.
func (p *Place) prepareSource(ctx context.Context, m *Marker) error {
	c, err := p.Remote(ctx, m.Source, "postgres")
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", m.Source, err)
	}
	defer closeConn(c)
	databases, err := readDatabases(ctx, c)
	if err != nil {
		return err
	}
	m.Databases = databases
	for _, database := range databasesOf(m) {
		p.Progress("preparing database " + database + " of " + m.Source)
		if err := p.prepareDatabase(ctx, m, database); err != nil {
			return fmt.Errorf("preparing database %s of %s: %w", database, m.Source, err)
		}
	}
	if m.Method != agentapi.MethodLogical {
		// The position comes after the last slot. What follows is a record beyond it, on disk: recovery stops before a record.
		if err := c.QueryRow(ctx, "SELECT pg_current_wal_insert_lsn()::text").Scan(&m.Position); err != nil {
			return fmt.Errorf("choosing the position: %w", err)
		}
		if err := writeBeyond(ctx, c); err != nil {
			m.Position = ""
			return err
		}
		p.Log.Info("Choosing the position from which the next generation follows", "position", m.Position, "source", m.Source)
	}
	return m.Write(p.New)
}

// readDatabases are the databases that are carried over and followed: all that somebody can connect to, but templates.
func readDatabases(ctx context.Context, c *pgx.Conn) (map[string]uint32, error) {
	rows, err := c.Query(ctx, "SELECT datname, oid FROM pg_database WHERE datallowconn AND NOT datistemplate")
	if err != nil {
		return nil, fmt.Errorf("reading the databases: %w", err)
	}
	found := map[string]uint32{}
	var name string
	var oid uint32
	if _, err = pgx.ForEachRow(rows, []any{&name, &oid}, func() error { found[name] = oid; return nil }); err != nil {
		return nil, fmt.Errorf("reading the databases: %w", err)
	}
	return found, nil
}

func writeBeyond(ctx context.Context, c *pgx.Conn) error {
	for _, statement := range []string{
		"SET synchronous_commit = local", "SELECT pg_logical_emit_message(true, 'pgsteward', 'beyond')", "SELECT pg_switch_wal()",
	} {
		if _, err := c.Exec(ctx, statement); err != nil {
			return fmt.Errorf("writing a record beyond the position: %w", err)
		}
	}
	return nil
}

func (p *Place) prepareDatabase(ctx context.Context, m *Marker, database string) error {
	c, err := p.Remote(ctx, m.Source, database)
	if err != nil {
		return err
	}
	defer closeConn(c)
	// The schema first, so that no table comes to be that has no replica identity.
	if err := InstallDDLGuard(ctx, c); err != nil {
		return err
	}
	if err := FixIdentities(ctx, c); err != nil {
		return err
	}
	if err := ensurePublication(ctx, c); err != nil {
		return err
	}
	slot := naming.UpgradeSlot(m.ID, m.Databases[database])
	if m.Method == agentapi.MethodLogical {
		// The subscription makes its own slot, for the tables are copied as of it. But it lists them before that slot has waited, and the schema
		// is copied even earlier: what comes later is not on the other side.
		if err := awaitTransactions(ctx, c, slot+"_wait"); err != nil {
			return err
		}
	} else if err := ensureSlot(ctx, c, slot); err != nil {
		return err
	}
	// The slot has waited for transactions that ran when the guard came: a table of theirs could not be seen before. Until it has an identity
	// PostgreSQL refuses updates of its rows, since it is published; so none is missing from the WAL.
	return FixIdentities(ctx, c)
}

// awaitTransactions waits for the transactions that run, as a slot does that is made.
func awaitTransactions(ctx context.Context, c *pgx.Conn, name string) error {
	if err := makeSlot(ctx, c, name, true); err != nil {
		return err
	}
	if _, err := c.Exec(ctx, "SELECT pg_drop_replication_slot($1)", name); err != nil {
		return fmt.Errorf("dropping the slot that has waited: %w", err)
	}
	return nil
}

// ensurePublication makes the publication of all tables.
func ensurePublication(ctx context.Context, c *pgx.Conn) error {
	var present bool
	if err := c.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_publication WHERE pubname = $1)", naming.UpgradePublication).Scan(&present); err != nil {
		return fmt.Errorf("looking for the publication: %w", err)
	}
	if present {
		return requireOurs(ctx, c, preflight.ForeignPublication)
	}
	if _, err := c.Exec(ctx, "CREATE PUBLICATION "+naming.UpgradePublication+" FOR ALL TABLES"); err != nil {
		return fmt.Errorf("making the publication: %w", err)
	}
	return nil
}

// ensureSlot makes the logical slot of the database that the connection is to.
func ensureSlot(ctx context.Context, c *pgx.Conn, name string) error {
	var present bool
	if err := c.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1)", name).Scan(&present); err != nil {
		return fmt.Errorf("looking for the slot: %w", err)
	}
	if present {
		return nil
	}
	return makeSlot(ctx, c, name, false)
}

// makeSlot makes a logical slot; a temporary one is the connection's.
func makeSlot(ctx context.Context, c *pgx.Conn, name string, temporary bool) error {
	if _, err := c.Exec(ctx, fmt.Sprintf("SET statement_timeout = %d", slotBound.Milliseconds())); err != nil {
		return fmt.Errorf("making the slot: %w", err)
	}
	if _, err := c.Exec(ctx, "SELECT pg_create_logical_replication_slot($1, 'pgoutput', $2)", name, temporary); err != nil {
		return fmt.Errorf("making the slot, which waits for the transactions that run: %w%s", err, oldestTransaction(ctx, c))
	}
	return nil
}

// slotState is a logical slot of the source.
type slotState struct {
	Name      string
	Database  string
	Active    bool
	Lost      bool
	Confirmed *string
	// Behind is how far what the other side has confirmed is behind what is written.
	Behind *int64
}

// slots are the source's slots of this upgrade.
func slots(ctx context.Context, c *pgx.Conn, id string) ([]slotState, error) {
	rows, err := c.Query(ctx, `SELECT slot_name, database, active, coalesce(wal_status = 'lost', false), confirmed_flush_lsn::text,
			(pg_current_wal_insert_lsn() - confirmed_flush_lsn)::bigint
		FROM pg_replication_slots WHERE slot_type = 'logical' AND NOT temporary AND starts_with(slot_name, $1) ORDER BY 1`, naming.UpgradeSlots(id))
	if err != nil {
		return nil, fmt.Errorf("looking at the slots: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[slotState])
	if err != nil {
		return nil, fmt.Errorf("looking at the slots: %w", err)
	}
	return found, nil
}

// checkSlots says whether all slots are there and have what they need; if not, nothing helps any more.
func checkSlots(m *Marker, found []slotState) error {
	for _, database := range databasesOf(m) {
		name := naming.UpgradeSlot(m.ID, m.Databases[database])
		at := slices.IndexFunc(found, func(s slotState) bool { return s.Name == name })
		switch {
		case at < 0:
			return over(reasonSlot, fmt.Sprintf("the slot of database %s on %s is gone", database, m.Source))
		case found[at].Lost:
			return over(reasonSlot, fmt.Sprintf("%s has removed WAL that the slot of database %s needs: max_slot_wal_keep_size is too small for the time that the upgrade took",
				m.Source, database))
		}
	}
	return nil
}

// advanceSlots moves all slots to the position, up to which the copy has everything.
func (p *Place) advanceSlots(ctx context.Context, m *Marker) error {
	for _, database := range databasesOf(m) {
		if err := p.advanceSlot(ctx, m, database); err != nil {
			return fmt.Errorf("moving the slot of database %s to %s: %w", database, m.Position, err)
		}
	}
	return nil
}

func (p *Place) advanceSlot(ctx context.Context, m *Marker, database string) error {
	p.Progress("moving the slot of database " + database)
	c, err := p.Remote(ctx, m.Source, database)
	if err != nil {
		return err
	}
	defer closeConn(c)
	found, err := slots(ctx, c, m.ID)
	if err != nil {
		return err
	}
	if err := checkSlots(m, found); err != nil {
		return err
	}
	if _, err := c.Exec(ctx, fmt.Sprintf("SET statement_timeout = %d", advanceBound.Milliseconds())); err != nil {
		return err
	}
	name := naming.UpgradeSlot(m.ID, m.Databases[database])
	_, err = c.Exec(ctx, `SELECT pg_replication_slot_advance(slot_name, $2::text::pg_lsn) FROM pg_replication_slots
		WHERE slot_name = $1 AND confirmed_flush_lsn < $2::text::pg_lsn`, name, m.Position)
	if err != nil {
		return err
	}
	var confirmed string
	var exact bool
	err = c.QueryRow(ctx, "SELECT confirmed_flush_lsn::text, confirmed_flush_lsn = $2::text::pg_lsn FROM pg_replication_slots WHERE slot_name = $1",
		name, m.Position).Scan(&confirmed, &exact)
	if err == nil && !exact {
		return over(reasonSlot, fmt.Sprintf("the slot of database %s is at %s, not at %s", database, confirmed, m.Position))
	}
	return err
}
