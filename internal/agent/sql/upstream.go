package sql

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Upstream connects to another instance's server as the replication role.
type Upstream struct {
	// Conninfo is libpq's connection string.
	Conninfo string
	// Bound is how long it may take; zero: DefaultCheckpointBound.
	Bound time.Duration
}

// DefaultCheckpointBound bounds what another instance is asked for, which may write a whole checkpoint.
const DefaultCheckpointBound = 2 * time.Minute

// ErrCheckpointSlow is that the upstream did not finish a checkpoint within the bound.
var ErrCheckpointSlow = errors.New("the checkpoint did not end in time")

// ErrNotPrimary is that the upstream is a standby itself.
var ErrNotPrimary = errors.New("the upstream is not a primary")

// Checkpoint has the upstream, which must be a primary, write a checkpoint. After a promotion it may take minutes until the next
// one by itself, and until then pg_rewind of PostgreSQL 15 and before would not see that the timeline has changed.
func (u Upstream) Checkpoint(ctx context.Context) error {
	return u.with(ctx, func(ctx context.Context, connection *pgx.Conn) error {
		if err := isPrimary(ctx, connection); err != nil {
			return err
		}
		_, err := connection.Exec(ctx, "CHECKPOINT")
		if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return ErrCheckpointSlow
		}
		if err != nil {
			return fmt.Errorf("writing a checkpoint: %w", err)
		}
		return nil
	})
}

// Reachable says why the upstream cannot be copied; nil if it can.
func (u Upstream) Reachable(ctx context.Context) error {
	return u.with(ctx, func(ctx context.Context, connection *pgx.Conn) error { return isPrimary(ctx, connection) })
}

func isPrimary(ctx context.Context, connection *pgx.Conn) error {
	var standby bool
	if err := connection.QueryRow(ctx, "SELECT pg_is_in_recovery()").Scan(&standby); err != nil {
		return err
	}
	if standby {
		return ErrNotPrimary
	}
	return nil
}

func (u Upstream) with(ctx context.Context, use func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(u.Bound, DefaultCheckpointBound))
	defer cancel()
	connection, err := u.connect(ctx, map[string]string{"application_name": "pgsteward", "search_path": "pg_catalog"})
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close(context.WithoutCancel(ctx)) }()
	return use(ctx, connection)
}

func (u Upstream) connect(ctx context.Context, parameters map[string]string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(u.Conninfo)
	if err != nil {
		return nil, fmt.Errorf("connecting to the upstream: %w", err)
	}
	// What libpq uses itself pgx would send to the server.
	config.RuntimeParams = parameters
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	connection, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the upstream: %w", err)
	}
	return connection, nil
}

// Open opens a connection to the database that the connection string names, as a major upgrade needs it; the caller closes it.
func (u Upstream) Open(ctx context.Context) (*pgx.Conn, error) {
	connection, err := u.connect(ctx, sessionParameters("pgsteward"))
	if err != nil {
		return nil, err
	}
	if err := errors.Join(withoutTransactionTimeout(ctx, connection), ForUpgrade(ctx, connection)); err != nil {
		_ = connection.Close(ctx)
		return nil, err
	}
	return connection, nil
}

// ForUpgrade makes a superuser's session one in which nothing fires that users made, and in which the schema may be changed although a
// major upgrade guards it (generation.AllowDDL).
func ForUpgrade(ctx context.Context, c *pgx.Conn) error {
	if _, err := c.Exec(ctx, "SET session_replication_role = replica; SET pgsteward.allow_ddl = on"); err != nil {
		return fmt.Errorf("beginning a session of a major upgrade: %w", err)
	}
	return nil
}
