package generation

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pgsteward/pgsteward/internal/naming"
)

// follows makes sure that the target follows every table. One that was made on both sides while the guard was lifted is there, and looks as it
// should, but its rows do not come before the subscription knows of it.
func (s *Switch) follows(ctx context.Context, p *pair) error {
	subscription := naming.UpgradeSlot(s.ID, p.oid)
	unfollowed, err := unfollowed(ctx, p.from, p.to, subscription)
	if err != nil || len(unfollowed) == 0 {
		return err
	}
	return fmt.Errorf("%s does not follow %s of database %s, so that rows would be missing there: as a superuser in that database of %s, "+
		"ALTER SUBSCRIPTION %s REFRESH PUBLICATION copies them, and follows", s.Target, strings.Join(unfollowed[:min(len(unfollowed), 10)], ", "),
		p.name, s.Target, pgx.Identifier{subscription}.Sanitize())
}

// unfollowed are the tables that both sides have, and of which the subscription knows nothing, or has not copied them yet. What one side
// has not at all Differences says; of an extension that may be, in another version.
func unfollowed(ctx context.Context, from, to *pgx.Conn, subscription string) ([]string, error) {
	// Names are quoted always: which words format() quotes differs between majors.
	const name = `format('"%s"."%s"', replace(n.nspname, '"', '""'), replace(c.relname, '"', '""'))`
	wanted, err := column(ctx, from, "SELECT "+name+` FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.oid >= 16384 AND c.relpersistence = 'p' AND n.nspname <> $1 AND c.relkind = 'r' ORDER BY 1`, naming.UpgradeSchema)
	if err != nil {
		return nil, fmt.Errorf("looking for tables: %w", err)
	}
	// By name on that side: one of the same name may be partitioned there.
	found, err := column(ctx, to, "SELECT name FROM (SELECT c.oid, "+name+` AS name
			FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p')) t
		WHERE name = ANY ($1) AND NOT EXISTS (SELECT FROM pg_subscription_rel r JOIN pg_subscription s ON s.oid = r.srsubid
			WHERE s.subname = $2 AND r.srrelid = t.oid AND r.srsubstate IN ('r', 's')) ORDER BY 1`, wanted, subscription)
	if err != nil {
		return nil, fmt.Errorf("looking for tables that are not followed: %w", err)
	}
	return found, nil
}

// noLargeObjects makes sure that there are none: logical replication does not carry them, and no event trigger fires when one is made.
func noLargeObjects(ctx context.Context, p *pair) error {
	found, err := column(ctx, p.from, "SELECT oid::text FROM pg_largeobject_metadata ORDER BY oid LIMIT 10")
	if err != nil {
		return fmt.Errorf("database %s: looking for large objects: %w", p.name, err)
	}
	if len(found) == 0 {
		return nil
	}
	return fmt.Errorf("database %s has large objects, which are not carried over and would be lost: %s; keep their content in bytea columns, and remove them (lo_unlink)",
		p.name, strings.Join(found, ", "))
}
