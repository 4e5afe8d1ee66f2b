package servers

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/pgsteward/pgsteward/internal/naming"
)

// Compare says where the rows or the sequences of two databases differ; nothing if they are the same. It reads every row of every
// ordinary table on both sides, so nothing should write meanwhile.
func Compare(ctx context.Context, one, other *pgx.Conn) ([]string, error) {
	left, err := summary(ctx, one)
	if err != nil {
		return nil, fmt.Errorf("reading the first side: %w", err)
	}
	right, err := summary(ctx, other)
	if err != nil {
		return nil, fmt.Errorf("reading the second side: %w", err)
	}
	names := slices.Collect(maps.Keys(left))
	names = append(names, slices.Collect(maps.Keys(right))...)
	slices.Sort(names)
	var differences []string
	for _, name := range slices.Compact(names) {
		if left[name] != right[name] {
			differences = append(differences, fmt.Sprintf("%s: %q and %q", name, left[name], right[name]))
		}
	}
	return differences, nil
}

// summary has one line for each table, with the number of rows and a checksum that does not depend on their order, and one for each sequence.
func summary(ctx context.Context, c *pgx.Conn) (map[string]string, error) {
	rows, err := c.Query(ctx, `SELECT format('%I.%I', n.nspname, c.relname), c.relkind = 'S' FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'S') AND c.relpersistence = 'p' AND c.oid >= 16384 AND n.nspname <> $1`, naming.UpgradeSchema)
	if err != nil {
		return nil, err
	}
	var (
		name     string
		sequence bool
	)
	queries := map[string]string{}
	_, err = pgx.ForEachRow(rows, []any{&name, &sequence}, func() error {
		queries[name] = "SELECT count(*) || ' rows, ' || coalesce(sum(hashtextextended(t::text, 0)::numeric), 0) FROM " + name + " t"
		if sequence {
			queries[name] = "SELECT last_value || ' ' || is_called FROM " + name
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for name, query := range queries {
		var line string
		if err := c.QueryRow(ctx, query).Scan(&line); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		found[name] = line
	}
	return found, nil
}
