package generation

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgsteward/pgsteward/internal/naming"
)

// slotBound is how long a subscription may wait for its slot, which waits for the transactions that run on the source.
const slotBound = time.Minute

// subscribeAndCopy makes the subscription that copies all tables of a database and follows them, unless it is there.
func (p *Place) subscribeAndCopy(ctx context.Context, m *Marker, database string) error {
	name := naming.UpgradeSlot(m.ID, m.Databases[database])
	local, err := p.Local(ctx, database)
	if err != nil {
		return err
	}
	defer closeConn(local)
	var present bool
	if err := local.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_subscription WHERE subname = $1)", name).Scan(&present); err != nil {
		return fmt.Errorf("looking for the subscription: %w", err)
	}
	if present {
		return nil
	}
	source, err := p.Remote(ctx, m.Source, database)
	if err != nil {
		return err
	}
	defer closeConn(source)
	// A crash may have been between the slot there and the subscription here.
	_, err = source.Exec(ctx, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1 AND NOT active", name)
	if err != nil {
		return fmt.Errorf("dropping the slot of an earlier try: %w", err)
	}
	if err := emptyExtensions(ctx, local); err != nil {
		return err
	}
	if _, err := local.Exec(ctx, fmt.Sprintf("SET statement_timeout = %d", slotBound.Milliseconds())); err != nil {
		return fmt.Errorf("making the subscription: %w", err)
	}
	options := "copy_data = true, create_slot = true, slot_name = '" + name + "', streaming = on"
	if m.To >= 16 {
		options += ", origin = none"
	}
	_, err = local.Exec(ctx, "CREATE SUBSCRIPTION "+name+" CONNECTION "+quoteLiteral(p.Conninfo(m.Source, database))+
		" PUBLICATION "+naming.UpgradePublication+" WITH ("+options+")")
	if err != nil {
		return fmt.Errorf("making the subscription: %w%s", err, oldestTransaction(ctx, source))
	}
	return nil
}

// emptyExtensions empties the tables that came with extensions: their rows are the source's, and are copied.
func emptyExtensions(ctx context.Context, c *pgx.Conn) error {
	tables, err := column(ctx, c, `SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'
		WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' ORDER BY 1`)
	if err != nil {
		return fmt.Errorf("looking for extensions' tables: %w", err)
	}
	if len(tables) == 0 {
		return nil
	}
	if _, err := c.Exec(ctx, "TRUNCATE "+strings.Join(tables, ", ")+" CASCADE"); err != nil {
		return fmt.Errorf("emptying extensions' tables: %w", err)
	}
	return nil
}

// oldestTransaction says who keeps a slot from being made.
func oldestTransaction(ctx context.Context, source *pgx.Conn) string {
	var text string
	err := source.QueryRow(ctx, `SELECT format('; the oldest transaction of the source is of pid %s (%s, since %s)', pid, usename, date_trunc('second', xact_start))
		FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() ORDER BY xact_start LIMIT 1`).Scan(&text)
	if err != nil {
		return ""
	}
	return text
}

func quoteLiteral(text string) string {
	return "'" + strings.ReplaceAll(text, "'", "''") + "'"
}

// tables says how many of all tables are copied, in all databases.
func (p *Place) tables(ctx context.Context, m *Marker) (done, total int, err error) {
	now, err := p.lookCopying(ctx, m)
	return now.done, now.total, err
}

func copied(ctx context.Context, c *pgx.Conn) (done, total int, err error) {
	err = c.QueryRow(ctx, "SELECT count(*) FILTER (WHERE srsubstate IN ('s', 'r')), count(*) FROM pg_subscription_rel").Scan(&done, &total)
	if err != nil {
		return 0, 0, fmt.Errorf("looking at the tables: %w", err)
	}
	return done, total, nil
}

// awaitTables waits until every table is copied and follows. How long that may take is the operator's business, which sees how many are done;
// but copying that only fails, again and again, is not waited for.
func (p *Place) awaitTables(ctx context.Context, m *Marker) error {
	ticker := time.NewTicker(tablesInterval)
	defer ticker.Stop()
	var seen copying
	for {
		now, err := p.lookCopying(ctx, m)
		if err != nil {
			return err
		}
		if now.waiting == "" {
			return nil
		}
		if now.done > seen.done || seen.since.IsZero() {
			seen = copying{done: now.done, errors: now.errors, since: time.Now()}
		}
		said := fmt.Sprintf("copying tables of %s: %d of %d", now.waiting, now.done, now.total)
		if failed := now.errors - seen.errors; failed > 0 {
			said += fmt.Sprintf(" (%d errors, see the log of PostgreSQL)", failed)
			if failed >= copyFailures && time.Since(seen.since) > copyPatience {
				return over(reasonSchema, fmt.Sprintf("copying the tables of %s has failed %d times in %s: the log of PostgreSQL on %s says why",
					now.waiting, failed, time.Since(seen.since).Round(time.Second), p.Instance))
			}
		}
		p.Progress(said)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

const (
	// copyFailures in a row, and copyPatience without another table that is done, end an attempt.
	copyFailures = 20
	copyPatience = 10 * time.Minute
)

// copying is how far the copying of tables has come.
type copying struct {
	done, total int
	errors      int64
	// waiting is a database that is not done; since is when a table was done last.
	waiting string
	since   time.Time
}

func (p *Place) lookCopying(ctx context.Context, m *Marker) (copying, error) {
	var now copying
	err := p.inEach(ctx, m, func(c *pgx.Conn, database string) error {
		done, total, err := copied(ctx, c)
		if err != nil {
			return err
		}
		now.done, now.total = now.done+done, now.total+total
		if done < total && now.waiting == "" {
			now.waiting = database
		}
		now.errors += copyErrors(ctx, c)
		return nil
	})
	return now, err
}

// copyErrors is how often copying or following has failed in a database; PostgreSQL tries again by itself.
func copyErrors(ctx context.Context, c *pgx.Conn) (errors int64) {
	err := c.QueryRow(ctx, `SELECT coalesce(sum(s.apply_error_count + s.sync_error_count), 0)::bigint FROM pg_stat_subscription_stats s
		JOIN pg_subscription b ON b.oid = s.subid JOIN pg_database d ON d.oid = b.subdbid WHERE d.datname = current_database()`).Scan(&errors)
	if err != nil {
		return 0 // it is only for telling
	}
	return errors
}
