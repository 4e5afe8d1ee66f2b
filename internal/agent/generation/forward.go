package generation

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgsteward/pgsteward/internal/naming"
)

// DropForward drops the subscriptions by which the server that runs here got its writes, when it has them all: their source is stopped.
func DropForward(ctx context.Context, local func(ctx context.Context, database string) (*pgx.Conn, error), id string) error {
	first, err := local(ctx, "postgres")
	if err != nil {
		return err
	}
	defer func() { _ = first.Close(context.WithoutCancel(ctx)) }()
	rows, err := first.Query(ctx, `SELECT d.datname, s.subname FROM pg_subscription s JOIN pg_database d ON d.oid = s.subdbid
		WHERE starts_with(s.subname, $1)`, naming.UpgradeSlots(id))
	if err != nil {
		return fmt.Errorf("looking for subscriptions: %w", err)
	}
	type subscription struct{ Datname, Subname string }
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[subscription])
	if err != nil {
		return fmt.Errorf("looking for subscriptions: %w", err)
	}
	for _, f := range found {
		if err := dropSubscription(ctx, local, f.Datname, f.Subname); err != nil {
			return err
		}
	}
	return nil
}

func dropSubscription(ctx context.Context, local func(ctx context.Context, database string) (*pgx.Conn, error), database, subscription string) error {
	c, err := local(ctx, database)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	name := pgx.Identifier{subscription}.Sanitize()
	for _, statement := range []string{" DISABLE", " SET (slot_name = NONE)"} {
		if _, err := c.Exec(ctx, "ALTER SUBSCRIPTION "+name+statement); err != nil {
			return fmt.Errorf("database %s: dropping the subscription: %w", database, err)
		}
	}
	if _, err := c.Exec(ctx, "DROP SUBSCRIPTION "+name); err != nil {
		return fmt.Errorf("database %s: dropping the subscription: %w", database, err)
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
