package generation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pgsteward/pgsteward/internal/naming"
)

// sequencesAtOnce is how many sequences one statement reads: it locks each of them.
const sequencesAtOnce = 500

// sequences is the state of a database's sequences, as columns: what is at one index belongs together.
type sequences struct {
	names  []string // quoted, with their schema
	values []int64
	called []bool
}

// CopySequences gives all sequences of one database the state that they have in another, identity columns' as well. It is one statement
// there, since writes are paused meanwhile. What a sequence has handed out and nobody used is a gap, as after a crash.
func CopySequences(ctx context.Context, from, to *pgx.Conn) error {
	read, err := readSequences(ctx, from)
	if err != nil {
		return fmt.Errorf("reading sequences: %w", err)
	}
	if len(read.names) == 0 {
		return nil
	}
	_, err = to.Exec(ctx, "SELECT setval(name::regclass, value, called) FROM unnest($1::text[], $2::bigint[], $3::boolean[]) AS s(name, value, called)",
		read.names, read.values, read.called)
	if err != nil {
		return fmt.Errorf("setting sequences: %w", err)
	}
	return nil
}

// readSequences reads the sequences themselves: pg_sequences has no value of one that was set, but not called.
func readSequences(ctx context.Context, c *pgx.Conn) (sequences, error) {
	var all sequences
	rows, err := c.Query(ctx, `SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind = 'S' AND c.relpersistence <> 't' AND c.oid >= 16384 AND n.nspname <> $1 ORDER BY 1`, naming.UpgradeSchema)
	if err != nil {
		return all, err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return all, err
	}
	for part := range slices.Chunk(names, sequencesAtOnce) {
		var query strings.Builder
		for i, name := range part {
			if i > 0 {
				query.WriteString(" UNION ALL ")
			}
			fmt.Fprintf(&query, "SELECT %d, last_value, is_called FROM %s", i, name)
		}
		rows, err := c.Query(ctx, query.String())
		if err != nil {
			return all, err
		}
		var (
			index  int
			value  int64
			called bool
		)
		_, err = pgx.ForEachRow(rows, []any{&index, &value, &called}, func() error {
			all.names = append(all.names, part[index])
			all.values = append(all.values, value)
			all.called = append(all.called, called)
			return nil
		})
		if err != nil {
			return all, err
		}
	}
	return all, nil
}
