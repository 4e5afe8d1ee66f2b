package generation

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Differences and GlobalDifferences are not there yet.
func Differences(context.Context, *pgx.Conn, *pgx.Conn) ([]string, error) { return nil, nil }

// GlobalDifferences is not there yet.
func GlobalDifferences(context.Context, *pgx.Conn, *pgx.Conn) ([]string, error) { return nil, nil }
