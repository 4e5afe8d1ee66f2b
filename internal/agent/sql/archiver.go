package sql

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Archiver is how a primary's archiver gets on (pg_stat_archiver).
type Archiver struct {
	// LastWAL was archived at LastAt; nil: nothing was.
	LastWAL string
	LastAt  *time.Time
	// FailedAt is when archiving failed last; nil: it never did.
	FailedAt *time.Time
}

// Archiver asks the server how its archiver gets on.
func (c *Client) Archiver(ctx context.Context) (Archiver, error) {
	var archiver Archiver
	err := c.with(ctx, observeTimeout, func(ctx context.Context, connection *pgx.Conn) error {
		return connection.QueryRow(ctx, "SELECT coalesce(last_archived_wal, ''), last_archived_time, last_failed_time FROM pg_stat_archiver").
			Scan(&archiver.LastWAL, &archiver.LastAt, &archiver.FailedAt)
	})
	return archiver, err
}
