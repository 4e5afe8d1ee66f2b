package generation

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// viewsQuery lists the materialized views that are filled, or those that are not, in the order in which they were made.
const viewsQuery = `SELECT format('%%I.%%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE c.relkind = 'm' AND c.relispopulated = %t ORDER BY c.oid`

// fillViews fills the materialized views that are filled on the source: a dump of the schema has none of their rows. It returns those that
// cannot be filled, and why.
func (p *Place) fillViews(ctx context.Context, m *Marker, c *pgx.Conn, database string) (map[string]string, error) {
	filled, err := p.strings(ctx, m.Source, database, fmt.Sprintf(viewsQuery, true))
	if err != nil {
		return nil, err
	}
	empty, err := column(ctx, c, fmt.Sprintf(viewsQuery, false))
	if err != nil {
		return nil, fmt.Errorf("looking for materialized views: %w", err)
	}
	return refresh(ctx, c, slices.DeleteFunc(empty, func(view string) bool { return !slices.Contains(filled, view) }))
}

// RefreshViews fills all materialized views again that are filled: what a copy has of them is as of its position, and nothing follows them. It returns
// those that cannot be filled, and why.
func RefreshViews(ctx context.Context, c *pgx.Conn) (map[string]string, error) {
	views, err := column(ctx, c, fmt.Sprintf(viewsQuery, true))
	if err != nil {
		return nil, fmt.Errorf("looking for materialized views: %w", err)
	}
	return refresh(ctx, c, views)
}

// refresh fills the views. They may need each other, so that it goes on as long as one more could be filled. A view that cannot be is no
// reason not to upgrade.
func refresh(ctx context.Context, c *pgx.Conn, views []string) (map[string]string, error) {
	if len(views) == 0 {
		return nil, nil
	}
	if _, err := c.Exec(ctx, "SET statement_timeout = 0"); err != nil {
		return nil, fmt.Errorf("filling materialized views: %w", err)
	}
	failed := map[string]string{}
	for before := -1; len(views) > 0 && len(views) != before; {
		before = len(views)
		var left []string
		for _, view := range views {
			_, err := c.Exec(ctx, "REFRESH MATERIALIZED VIEW "+view)
			var refused *pgconn.PgError
			switch {
			case err == nil:
				delete(failed, view)
			case !errors.As(err, &refused):
				return nil, fmt.Errorf("filling %s: %w", view, err)
			default:
				failed[view] = refused.Message
				left = append(left, view)
			}
		}
		views = left
	}
	return failed, nil
}

// column are the rows of a query with one column.
func column(ctx context.Context, c *pgx.Conn, query string, arguments ...any) ([]string, error) {
	rows, err := c.Query(ctx, query, arguments...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
