package sql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pgsteward/pgsteward/internal/naming"
)

// slotPrefix is that of naming.SlotName: such slots are ours to drop.
var slotPrefix = naming.SlotName("")

// Wanted is what a primary must have.
type Wanted struct {
	// Slots are the replication slots of the other members.
	Slots []string
	// Owner and Database are the application's.
	Owner    string
	Database string
	// OwnerPassword and SuperuserPassword; an empty one is left as it is.
	OwnerPassword     string
	SuperuserPassword string
	// UpgradeRole says that a major upgrade needs its role.
	UpgradeRole bool
}

// Setup makes everything that is wanted on a primary. It goes on after an error, so that one thing that fails does not keep
// the others from being done; the errors are joined.
func (c *Client) Setup(ctx context.Context, wanted Wanted) error {
	defer c.Close()
	return errors.Join(
		c.replicationRole(ctx),
		c.upgradeRole(ctx, wanted.UpgradeRole),
		c.EnsureSlots(ctx, wanted.Slots),
		c.password(ctx, naming.Superuser, wanted.SuperuserPassword),
		c.owner(ctx, wanted.Owner, wanted.OwnerPassword),
		c.database(ctx, wanted.Database, wanted.Owner),
	)
}

// IsSetUp says whether Setup has succeeded on this data before: all roles have passwords, and the database, which is made last,
// is there. It is in the data itself, and so holds for a standby that is promoted too.
func (c *Client) IsSetUp(ctx context.Context, wanted Wanted) (bool, error) {
	questions := [][2]string{
		{"SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1 AND rolreplication AND rolcanlogin)", naming.ReplicationUser},
	}
	for role, password := range map[string]string{naming.Superuser: wanted.SuperuserPassword, wanted.Owner: wanted.OwnerPassword} {
		if role != "" && password != "" {
			questions = append(questions, [2]string{
				"SELECT EXISTS (SELECT FROM pg_authid WHERE rolname = $1 AND rolpassword IS NOT NULL)", role,
			})
		}
	}
	if wanted.Database != "" {
		questions = append(questions, [2]string{"SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", wanted.Database})
	}
	for _, question := range questions {
		if yes, err := c.exists(ctx, question[0], question[1]); err != nil || !yes {
			return false, err
		}
	}
	return true, nil
}

// OnlySlotsInUse says whether nothing but ErrSlotInUse is in what Setup returned.
func OnlySlotsInUse(err error) bool {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return errors.Is(err, ErrSlotInUse)
	}
	for _, part := range joined.Unwrap() {
		if !OnlySlotsInUse(part) {
			return false
		}
	}
	return true
}

// replicationGrants are what pg_rewind needs beside REPLICATION
// (https://www.postgresql.org/docs/current/app-pgrewind.html).
var replicationGrants = []string{
	"pg_ls_dir(text, boolean, boolean)",
	"pg_stat_file(text, boolean)",
	"pg_read_binary_file(text)",
	"pg_read_binary_file(text, bigint, bigint, boolean)",
}

func (c *Client) replicationRole(ctx context.Context) error {
	exists, err := c.exists(ctx, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1 AND rolreplication AND rolcanlogin)", naming.ReplicationUser)
	if err != nil {
		return fmt.Errorf("looking for the replication role: %w", err)
	}
	role := identifier(naming.ReplicationUser)
	if !exists {
		if err := c.createRole(ctx, naming.ReplicationUser, "LOGIN REPLICATION"); err != nil {
			return err
		}
	}
	for _, function := range replicationGrants {
		granted, err := c.exists(ctx, "SELECT has_function_privilege($1, $2, 'EXECUTE')", naming.ReplicationUser, function)
		if err != nil {
			return fmt.Errorf("looking at the rights of the replication role: %w", err)
		}
		if granted {
			continue
		}
		if err := c.exec(ctx, "GRANT EXECUTE ON FUNCTION pg_catalog."+function+" TO "+role); err != nil {
			return fmt.Errorf("granting to the replication role: %w", err)
		}
	}
	return c.grantCheckpoint(ctx, role)
}

func (c *Client) upgradeRole(ctx context.Context, wanted bool) error {
	if !wanted { // what an upgrade has left is removed in an order of its own
		return nil
	}
	return c.UpgradeRole(ctx)
}

// UpgradeRole makes the superuser by which the other generation's agent works here during a major upgrade. It has no password; only
// the holder of the standbys' certificate is let in.
func (c *Client) UpgradeRole(ctx context.Context) error {
	exists, err := c.exists(ctx, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1 AND rolsuper AND rolcanlogin)", naming.UpgradeUser)
	if err != nil {
		return fmt.Errorf("looking for the role of major upgrades: %w", err)
	}
	// Whoever may make roles could have made it, and be a member of it.
	foreign, err := c.exists(ctx, `SELECT EXISTS (SELECT FROM pg_roles r WHERE rolname = $1
		AND (NOT rolsuper OR EXISTS (SELECT FROM pg_auth_members m WHERE m.roleid = r.oid)))`, naming.UpgradeUser)
	if err != nil {
		return fmt.Errorf("looking for the role of major upgrades: %w", err)
	}
	if foreign {
		return fmt.Errorf("the role %s, which pgsteward needs for major upgrades, is somebody else's, or has members: drop it", naming.UpgradeUser)
	}
	if exists {
		return nil
	}
	return c.createRole(ctx, naming.UpgradeUser, "LOGIN SUPERUSER REPLICATION")
}

// grantCheckpoint lets standbys have a checkpoint written before they are rewound.
func (c *Client) grantCheckpoint(ctx context.Context, role string) error {
	granted, err := c.exists(ctx, "SELECT pg_has_role($1, 'pg_checkpoint', 'USAGE')", naming.ReplicationUser)
	if err != nil {
		return fmt.Errorf("looking at the rights of the replication role: %w", err)
	}
	if granted {
		return nil
	}
	if err := c.exec(ctx, "GRANT pg_checkpoint TO "+role); err != nil {
		return fmt.Errorf("granting to the replication role: %w", err)
	}
	return nil
}

// createRole creates a role, or gives an existing one the options.
func (c *Client) createRole(ctx context.Context, name, options string) error {
	exists, err := c.exists(ctx, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", name)
	if err != nil {
		return fmt.Errorf("looking for role %s: %w", name, err)
	}
	verb := "CREATE"
	if exists {
		verb = "ALTER"
	}
	if err := c.exec(ctx, verb+" ROLE "+identifier(name)+" "+options); err != nil {
		return fmt.Errorf("making role %s: %w", name, err)
	}
	return nil
}

func (c *Client) owner(ctx context.Context, name, password string) error {
	if name == "" {
		return nil
	}
	exists, err := c.exists(ctx, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", name)
	if err != nil {
		return fmt.Errorf("looking for role %s: %w", name, err)
	}
	if !exists {
		if err := c.createRole(ctx, name, "LOGIN"); err != nil {
			return err
		}
	}
	if name == naming.Superuser {
		return nil // its password is in its own Secret
	}
	return c.password(ctx, name, password)
}

// password gives a role its password, unless it has it. The statement has a verifier in it and not the password, so that
// neither a log nor pg_stat_statements can show it.
func (c *Client) password(ctx context.Context, role, password string) error {
	if password == "" {
		return nil
	}
	var present *string
	err := c.with(ctx, observeTimeout, func(ctx context.Context, connection *pgx.Conn) error {
		return connection.QueryRow(ctx, "SELECT rolpassword FROM pg_authid WHERE rolname = $1", role).Scan(&present)
	})
	if err != nil {
		return fmt.Errorf("looking at the password of role %s: %w", role, err)
	}
	if present != nil && fits(*present, password) {
		return nil
	}
	computed, err := newVerifier(password)
	if err != nil {
		return err
	}
	if err := c.exec(ctx, "ALTER ROLE "+identifier(role)+" PASSWORD "+literal(computed)); err != nil {
		return fmt.Errorf("setting the password of role %s: %w", role, err)
	}
	return nil
}

func (c *Client) database(ctx context.Context, name, owner string) error {
	if name == "" || name == "postgres" {
		return nil
	}
	exists, err := c.exists(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name)
	if err != nil || exists {
		return err
	}
	statement := "CREATE DATABASE " + identifier(name)
	if owner != "" {
		statement += " OWNER " + identifier(owner)
	}
	if err := c.exec(ctx, statement); err != nil {
		return fmt.Errorf("making database %s: %w", name, err)
	}
	return nil
}

// ErrSlotInUse is that a slot which is not wanted any more is still in use; it is dropped when its standby has gone.
var ErrSlotInUse = errors.New("a replication slot that is not wanted is still in use")

// slot is a physical replication slot.
type slot struct {
	Name   string
	Active bool
	// Lost says that WAL which its standby needs was removed.
	Lost bool
}

// EnsureSlots makes the slots and drops ours that are not wanted. A slot that lost WAL serves nobody any more and is made
// anew, for the standby will be cloned. It works on a standby too, which should have no slots.
func (c *Client) EnsureSlots(ctx context.Context, wanted []string) error {
	present, err := c.slots(ctx)
	if err != nil {
		return fmt.Errorf("looking at replication slots: %w", err)
	}
	var problems []error
	kept := map[string]bool{}
	for _, slot := range present {
		ours := strings.HasPrefix(slot.Name, slotPrefix)
		unwanted := !slices.Contains(wanted, slot.Name)
		if ours && unwanted && slot.Active {
			problems = append(problems, fmt.Errorf("%w: %s", ErrSlotInUse, slot.Name))
		}
		if ours && !slot.Active && (unwanted || slot.Lost) {
			if err := c.exec(ctx, "SELECT pg_drop_replication_slot($1)", slot.Name); err != nil {
				problems = append(problems, fmt.Errorf("dropping slot %s: %w", slot.Name, err))
			}
			continue
		}
		kept[slot.Name] = true
	}
	for _, name := range wanted {
		if kept[name] {
			continue
		}
		// Reserving WAL at once lets a clone begin at a position that stays.
		if err := c.exec(ctx, "SELECT pg_create_physical_replication_slot($1, true)", name); err != nil {
			problems = append(problems, fmt.Errorf("making slot %s: %w", name, err))
		}
	}
	return errors.Join(problems...)
}

func (c *Client) slots(ctx context.Context) ([]slot, error) {
	var found []slot
	err := c.with(ctx, observeTimeout, func(ctx context.Context, connection *pgx.Conn) error {
		rows, err := connection.Query(ctx, `SELECT slot_name, active, coalesce(wal_status = 'lost', false)
			FROM pg_replication_slots WHERE slot_type = 'physical' AND NOT temporary`)
		if err != nil {
			return err
		}
		found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[slot])
		return err
	})
	return found, err
}

// exists asks a question whose answer is true or false.
func (c *Client) exists(ctx context.Context, question string, args ...any) (bool, error) {
	var answer bool
	err := c.with(ctx, observeTimeout, func(ctx context.Context, connection *pgx.Conn) error {
		return connection.QueryRow(ctx, question, args...).Scan(&answer)
	})
	return answer, err
}
