package generation

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// shape is what a PostgreSQL system is given by initdb, and what the next one must have as well.
type shape struct {
	encoding         string
	collate, ctype   string
	provider         string // pg_database.datlocprovider: c, i or b
	locale, icuRules string // of ICU and the builtin provider
	checksums        bool
	segmentBytes     int64
}

// readShape reads it from a running server, of any major that we run: the columns' names have changed.
func readShape(ctx context.Context, c *pgx.Conn) (shape, error) {
	var s shape
	err := c.QueryRow(ctx, `SELECT pg_encoding_to_char(d.encoding), d.datcollate, d.datctype, d.datlocprovider::text,
			coalesce(to_jsonb(d) ->> 'datlocale', to_jsonb(d) ->> 'daticulocale', ''), coalesce(to_jsonb(d) ->> 'daticurules', ''),
			current_setting('data_checksums') = 'on', (SELECT setting::bigint FROM pg_settings WHERE name = 'wal_segment_size')
		FROM pg_database d WHERE d.datname = 'template0'`).
		Scan(&s.encoding, &s.collate, &s.ctype, &s.provider, &s.locale, &s.icuRules, &s.checksums, &s.segmentBytes)
	if err != nil {
		return s, fmt.Errorf("reading what the source was made with: %w", err)
	}
	return s, nil
}

// options are initdb's, of that major.
func (s shape) options(major int) []string {
	options := []string{
		"--encoding=" + s.encoding, "--lc-collate=" + s.collate, "--lc-ctype=" + s.ctype,
		"--lc-messages=C", "--lc-monetary=" + s.collate, "--lc-numeric=" + s.collate, "--lc-time=" + s.collate,
		"--wal-segsize=" + strconv.FormatInt(s.segmentBytes>>20, 10),
	}
	switch s.provider {
	case "i":
		options = append(options, "--locale-provider=icu", "--icu-locale="+s.locale)
		if s.icuRules != "" && major >= 16 {
			options = append(options, "--icu-rules="+s.icuRules)
		}
	case "b":
		options = append(options, "--locale-provider=builtin", "--builtin-locale="+s.locale)
	default:
		options = append(options, "--locale-provider=libc")
	}
	switch {
	case s.checksums:
		options = append(options, "--data-checksums")
	case major >= 18: // where they are the default
		options = append(options, "--no-data-checksums")
	}
	return options
}

// initdb makes a system of the new major at that path, of the same shape. Nobody can connect but the agent.
func (p *Place) initdb(ctx context.Context, target string, s shape) error {
	return p.seeder().Run(ctx, p.Programs.InitDB, append([]string{
		"--pgdata=" + target, "--username=" + naming.Superuser, "--auth-local=peer", "--auth-host=reject", "--no-instructions",
	}, s.options(p.Programs.Version.Major)...)...)
}

// seeder makes data directories of the new major.
func (p *Place) seeder() *datadir.Seeder {
	return &datadir.Seeder{Children: p.Children, Programs: p.Programs, Volume: p.New}
}

// program is the path of a program that comes with the new major's server.
func (p *Place) program(name string) (string, error) {
	path := filepath.Join(filepath.Dir(p.Programs.Postgres), name)
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return "", fmt.Errorf("the image has no %s in %s: it is needed for a major upgrade by a logical copy", name, filepath.Dir(path))
	}
	return path, nil
}
