package generation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgsteward/pgsteward/internal/agent/preflight"
	"github.com/pgsteward/pgsteward/internal/naming"
)

const (
	// identityLock is how long a change of a table's replica identity may wait for its lock: everybody who wants the table waits
	// behind it. It is tried identityTries times, with identityPause between.
	identityLock  = 2 * time.Second
	identityTries = 10
	identityPause = 3 * time.Second
)

// schema is our schema, quoted.
var schema = pgx.Identifier{naming.UpgradeSchema}.Sanitize()

// ensureSchema makes the schema that remembers what is to be put back.
func ensureSchema(ctx context.Context, c *pgx.Conn) error {
	_, err := c.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+schema+`;
		CREATE TABLE IF NOT EXISTS `+schema+`.replica_identities (
			namespace name NOT NULL, relation name NOT NULL, identity "char" NOT NULL, index name,
			PRIMARY KEY (namespace, relation))`)
	if err != nil {
		return fmt.Errorf("making the schema %s: %w", naming.UpgradeSchema, err)
	}
	return requireOurs(ctx, c, preflight.ForeignSchema)
}

// requireOurs returns an error if the query finds something under a name of ours that is not ours. What is there was made by somebody who wants us,
// superusers, to run his code (a trigger on a table of ours, say), or is an accident.
func requireOurs(ctx context.Context, c *pgx.Conn, query string) error {
	foreign, err := foreignTo(ctx, c, query)
	if err == nil && len(foreign) > 0 {
		err = fmt.Errorf("pgsteward needs this name for itself: drop or rename the %s", strings.Join(foreign, ", the "))
	}
	return err
}

func foreignTo(ctx context.Context, c *pgx.Conn, query string) ([]string, error) {
	rows, err := c.Query(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("looking whose the names are that pgsteward needs: %w", err)
	}
	foreign, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("looking whose the names are that pgsteward needs: %w", err)
	}
	return foreign, nil
}

// identity is what a table has before it is given another.
type identity struct {
	namespace, relation string
	kind                string
	index               *string
}

// FixIdentities gives each table of the database that has no usable replica identity the identity FULL, and remembers what it had. What
// is done already is left as it is.
func FixIdentities(ctx context.Context, c *pgx.Conn) error {
	if err := ensureSchema(ctx, c); err != nil {
		return err
	}
	rows, err := c.Query(ctx, "SELECT nspname, relname, relreplident, index FROM ("+preflight.WithoutIdentity+") t ORDER BY 1, 2")
	if err != nil {
		return fmt.Errorf("looking for tables without a replica identity: %w", err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (identity, error) {
		var i identity
		return i, row.Scan(&i.namespace, &i.relation, &i.kind, &i.index)
	})
	if err != nil {
		return fmt.Errorf("looking for tables without a replica identity: %w", err)
	}
	for _, table := range found {
		if err := patiently(ctx, func() error { return fixIdentity(ctx, c, table) }); err != nil {
			return fmt.Errorf("setting the replica identity of %s: %w", table.name(), err)
		}
	}
	return nil
}

func (i identity) name() string { return pgx.Identifier{i.namespace, i.relation}.Sanitize() }

func fixIdentity(ctx context.Context, c *pgx.Conn, table identity) error {
	return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT set_config('lock_timeout', $1, true)", identityLock.String()); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "INSERT INTO "+schema+".replica_identities VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
			table.namespace, table.relation, table.kind, table.index)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "ALTER TABLE ONLY "+table.name()+" REPLICA IDENTITY FULL")
		return err
	})
}

// RestoreIdentities gives the tables back the replica identities that FixIdentities remembered. Nothing is done where there is no memory of
// it, and a table whose identity was changed since, or that is gone, is left as it is.
func RestoreIdentities(ctx context.Context, c *pgx.Conn) error {
	var remembered bool
	err := c.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", schema+".replica_identities").Scan(&remembered)
	if err != nil || !remembered {
		return err
	}
	if foreign, err := foreignTo(ctx, c, preflight.ForeignSchema); err != nil || len(foreign) > 0 {
		return err // it is not our memory
	}
	rows, err := c.Query(ctx, `SELECT r.namespace, r.relation, r.identity::text, r.index, coalesce(c.relreplident = 'f', false) AND
			(r.identity <> 'i' OR EXISTS (SELECT FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
				WHERE x.indrelid = c.oid AND i.relname = r.index))
		FROM `+schema+`.replica_identities r LEFT JOIN pg_namespace n ON n.nspname = r.namespace
		LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = r.relation AND c.relkind = 'r' ORDER BY 1, 2`)
	if err != nil {
		return fmt.Errorf("reading the replica identities to put back: %w", err)
	}
	type memory struct {
		identity
		restorable bool
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (memory, error) {
		var m memory
		return m, row.Scan(&m.namespace, &m.relation, &m.kind, &m.index, &m.restorable)
	})
	if err != nil {
		return fmt.Errorf("reading the replica identities to put back: %w", err)
	}
	for _, table := range found {
		if err := patiently(ctx, func() error { return restoreIdentity(ctx, c, table.identity, table.restorable) }); err != nil {
			return fmt.Errorf("putting back the replica identity of %s: %w", table.name(), err)
		}
	}
	return nil
}

func restoreIdentity(ctx context.Context, c *pgx.Conn, table identity, restorable bool) error {
	before := "DEFAULT"
	switch {
	case table.kind == "n":
		before = "NOTHING"
	case table.kind == "i" && table.index != nil:
		before = "USING INDEX " + pgx.Identifier{*table.index}.Sanitize()
	}
	return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT set_config('lock_timeout', $1, true)", identityLock.String()); err != nil {
			return err
		}
		if restorable {
			if _, err := tx.Exec(ctx, "ALTER TABLE ONLY "+table.name()+" REPLICA IDENTITY "+before); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, "DELETE FROM "+schema+".replica_identities WHERE namespace = $1 AND relation = $2", table.namespace, table.relation)
		return err
	})
}

// lockNotAvailable is PostgreSQL's code for a lock that was not given in time.
const lockNotAvailable = "55P03"

// patiently does something that needs a lock, and tries again if it was not given in time.
func patiently(ctx context.Context, do func() error) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for try := 1; ; try++ {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		err := do()
		var refused *pgconn.PgError
		if err == nil || !errors.As(err, &refused) || refused.Code != lockNotAvailable || try == identityTries {
			return err
		}
		timer.Reset(identityPause)
	}
}
