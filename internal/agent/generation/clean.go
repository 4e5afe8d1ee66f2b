package generation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgsteward/pgsteward/internal/agent/preflight"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// leaveBound is how long a slot may still be in use after its user was told to go.
const leaveBound = 5 * time.Second

// opener opens a connection of a superuser to a database.
type opener = func(ctx context.Context, database string) (*pgx.Conn, error)

// Clean removes from the live primary what upgrades have left there, but for that of the ID to keep: subscriptions, slots, and if nothing
// is to be kept also what is in each database, and the role, which goes last: while it is there, there may be more. It is one
// question if there is nothing.
func Clean(ctx context.Context, local func(ctx context.Context, database string) (*pgx.Conn, error), keep string) error {
	first, err := local(ctx, "postgres")
	if err != nil {
		return err
	}
	defer closeConn(first)
	var role, more bool
	err = first.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1),
			EXISTS (SELECT FROM pg_replication_slots WHERE slot_type = 'logical' AND starts_with(slot_name, $2) AND NOT ($3 <> '' AND starts_with(slot_name, $3)))
			OR EXISTS (SELECT FROM pg_subscription WHERE starts_with(subname, $2) AND NOT ($3 <> '' AND starts_with(subname, $3)))`,
		naming.UpgradeUser, naming.UpgradePublication+"_", kept(keep)).Scan(&role, &more)
	if err != nil {
		return fmt.Errorf("looking for what an upgrade left: %w", err)
	}
	if !more && (keep != "" || !role) {
		return nil
	}
	if keep == "" && role { // else a seed that does not know yet would make slots again
		if err := sendAway(ctx, first); err != nil {
			return err
		}
	}
	if err := dropSubscriptions(ctx, first, local, keep); err != nil {
		return err
	}
	if err := dropSlots(ctx, first, keep); err != nil {
		return err
	}
	if keep != "" {
		return nil
	}
	return cleanAll(ctx, first, local)
}

// kept begins the names of what is to be kept.
func kept(id string) string {
	if id == "" {
		return ""
	}
	return naming.UpgradeSlots(id)
}

// cleanAll removes what is in the databases, and then the role.
func cleanAll(ctx context.Context, first *pgx.Conn, local opener) error {
	names, err := column(ctx, first, "SELECT datname FROM pg_database WHERE datallowconn AND datname <> 'template0' ORDER BY 1")
	if err != nil {
		return fmt.Errorf("reading the databases: %w", err)
	}
	var problems []error
	for _, database := range names {
		if err := cleanDatabase(ctx, local, database); err != nil {
			problems = append(problems, fmt.Errorf("database %s: %w", database, err))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	if _, err := first.Exec(ctx, "DROP ROLE IF EXISTS "+upgradeUser); err != nil {
		return fmt.Errorf("dropping role %s: %w", naming.UpgradeUser, err)
	}
	return nil
}

var upgradeUser = pgx.Identifier{naming.UpgradeUser}.Sanitize()

// sendAway ends the sessions of the role, and lets it begin no more.
func sendAway(ctx context.Context, c *pgx.Conn) error {
	if _, err := c.Exec(ctx, "ALTER ROLE "+upgradeUser+" NOLOGIN"); err != nil {
		return fmt.Errorf("keeping role %s out: %w", naming.UpgradeUser, err)
	}
	if _, err := c.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1 AND pid <> pg_backend_pid()", naming.UpgradeUser); err != nil {
		return fmt.Errorf("ending the sessions of role %s: %w", naming.UpgradeUser, err)
	}
	return nil
}

// cleanDatabase puts back replica identities, and removes the guard, the publication and our schema. What the role owns it gives away
// first: the superuser's is what stays.
func cleanDatabase(ctx context.Context, local opener, database string) error {
	c, err := local(ctx, database)
	if err != nil {
		return err
	}
	defer closeConn(c)
	if err := DropDDLGuard(ctx, c); err != nil {
		return err
	}
	if err := RestoreIdentities(ctx, c); err != nil {
		return err
	}
	statements := []string{
		"DROP PUBLICATION IF EXISTS " + naming.UpgradePublication,
		"DROP SCHEMA IF EXISTS " + schema + " CASCADE",
	}
	var role bool
	if err := c.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", naming.UpgradeUser).Scan(&role); err != nil {
		return err
	}
	if role {
		statements = append(statements, "REASSIGN OWNED BY "+upgradeUser+" TO "+naming.Superuser, "DROP OWNED BY "+upgradeUser)
	}
	for _, statement := range statements {
		if _, err := c.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", strings.ToLower(statement), err)
		}
	}
	return nil
}

// dropSubscriptions drops our subscriptions. Their slots are another server's, which may be gone.
func dropSubscriptions(ctx context.Context, first *pgx.Conn, local opener, keep string) error {
	rows, err := first.Query(ctx, `SELECT d.datname, s.subname FROM pg_subscription s JOIN pg_database d ON d.oid = s.subdbid
		WHERE starts_with(s.subname, $1) AND NOT ($2 <> '' AND starts_with(s.subname, $2))`, naming.UpgradePublication+"_", kept(keep))
	if err != nil {
		return fmt.Errorf("looking for subscriptions: %w", err)
	}
	type subscription struct{ Database, Name string }
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[subscription])
	if err != nil {
		return fmt.Errorf("looking for subscriptions: %w", err)
	}
	for _, s := range found {
		if err := dropSubscription(ctx, local, s.Database, s.Name); err != nil {
			return err
		}
	}
	return nil
}

// dropSlots drops our logical slots, and if none is to be kept also those that a copy of tables left which was broken off. Whoever uses one is
// ended: nobody shall follow from here any more.
func dropSlots(ctx context.Context, c *pgx.Conn, keep string) error {
	const which = `FROM pg_replication_slots WHERE slot_type = 'logical' AND (starts_with(slot_name, $1) AND NOT ($2 <> '' AND starts_with(slot_name, $2))
		OR $2 = '' AND ` + preflight.OfCopies + `)`
	args := []any{naming.UpgradePublication + "_", kept(keep)}
	ctx, cancel := context.WithTimeout(ctx, leaveBound)
	defer cancel()
	for {
		if _, err := c.Exec(ctx, "SELECT pg_terminate_backend(active_pid) "+which+" AND active", args...); err != nil {
			return fmt.Errorf("ending the use of slots: %w", err)
		}
		_, dropping := c.Exec(ctx, "SELECT pg_drop_replication_slot(slot_name) "+which+" AND NOT active", args...)
		var left int
		if err := c.QueryRow(ctx, "SELECT count(*) "+which, args...).Scan(&left); err != nil {
			return errors.Join(dropping, fmt.Errorf("looking for slots: %w", err))
		}
		if left == 0 {
			return nil
		}
		if err := wait(ctx, tablesInterval/10); err != nil {
			return fmt.Errorf("%d slots of an upgrade are still in use: %w", left, errors.Join(dropping, err))
		}
	}
}
