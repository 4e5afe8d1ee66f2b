package generation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgsteward/pgsteward/internal/agent/datadir"
)

const (
	// closeTimeout bounds saying goodbye to a server.
	closeTimeout = time.Second
	// tablesInterval is how often the copying of tables is looked at.
	tablesInterval = time.Second
	// spareSpace is what a new system needs beside the databases: its own catalogs, and WAL.
	spareSpace = 256 << 20
)

// makeLogical makes an empty system of the new major, of the source's shape. The old data directory stays as it is.
func (p *Place) makeLogical(ctx context.Context, m *Marker) error {
	for _, name := range []string{"pg_dump", "pg_dumpall", "psql"} {
		if _, err := p.program(name); err != nil {
			return over(reasonImage, err.Error())
		}
	}
	if datadir.MajorOf(p.New.Dir()) == m.To {
		return nil
	}
	source, err := p.Remote(ctx, m.Source, "postgres")
	if err != nil {
		return err
	}
	defer closeConn(source)
	if err := p.roomFor(ctx, source); err != nil {
		return err
	}
	form, err := readShape(ctx, source)
	if err != nil {
		return err
	}
	p.Progress("making an empty system of PostgreSQL " + p.Upgrade.To)
	return p.seeder().Make(ctx, func(target string) error { return p.initdb(ctx, target, form) })
}

// roomFor says whether the volume has room for a second copy of all databases.
func (p *Place) roomFor(ctx context.Context, source *pgx.Conn) error {
	var need int64
	if err := source.QueryRow(ctx, "SELECT sum(pg_database_size(oid))::bigint FROM pg_database").Scan(&need); err != nil {
		return fmt.Errorf("asking for the databases' size: %w", err)
	}
	need += need/20 + spareSpace
	_, free, err := p.New.Space()
	if err != nil {
		return err
	}
	if free < need {
		return over(reasonSpace, fmt.Sprintf("a logical copy needs %d MiB free on the volume of %s, which has %d MiB: raise spec.storage.size",
			need>>20, p.Instance, free>>20))
	}
	return nil
}

// copyLogical copies globals, schema and tables into the new server, which runs, and returns when all tables follow.
func (p *Place) copyLogical(ctx context.Context, m *Marker) error {
	p.Progress("looking for extensions")
	if err := p.checkExtensions(ctx, m); err != nil {
		return err
	}
	p.Progress("copying roles")
	if err := p.copyGlobals(ctx, m.Source); err != nil {
		return err
	}
	templates, err := p.templates(ctx, m)
	if err != nil {
		return err
	}
	for _, database := range append(templates, databasesOf(m)...) {
		if slices.Contains(m.Schemas, database) {
			continue
		}
		p.Progress("copying the schema of " + database)
		if err := p.copySchema(ctx, m, database); err != nil {
			return fmt.Errorf("database %s: %w", database, err)
		}
		m.Schemas = append(m.Schemas, database)
		if err := m.Write(p.New); err != nil {
			return err
		}
	}
	for _, database := range databasesOf(m) {
		p.Progress("subscribing in " + database)
		if err := p.subscribeAndCopy(ctx, m, database); err != nil {
			return fmt.Errorf("database %s: %w", database, err)
		}
	}
	if err := p.awaitTables(ctx, m); err != nil {
		return err
	}
	return p.inEach(ctx, m, func(c *pgx.Conn, database string) error {
		p.Progress("filling materialized views of " + database)
		failed, err := p.fillViews(ctx, m, c, database)
		for view, why := range failed {
			p.Log.Warn("A materialized view could not be filled", "database", database, "view", view, "error", why)
		}
		return err
	})
}

// databasesOf are the databases that are carried over, in a fixed order.
func databasesOf(m *Marker) []string { return slices.Sorted(maps.Keys(m.Databases)) }

// inEach does something in each of the databases on the local server.
func (p *Place) inEach(ctx context.Context, m *Marker, do func(c *pgx.Conn, database string) error) error {
	for _, database := range databasesOf(m) {
		c, err := p.Local(ctx, database)
		if err != nil {
			return err
		}
		err = do(c, database)
		closeConn(c)
		if err != nil {
			return fmt.Errorf("database %s: %w", database, err)
		}
	}
	return nil
}

// closeConn closes a connection, whatever became of the context that it was used in.
func closeConn(c *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = c.Close(ctx)
}

// checkExtensions says which extensions the new image does not have.
func (p *Place) checkExtensions(ctx context.Context, m *Marker) error {
	local, err := p.Local(ctx, "template1")
	if err != nil {
		return err
	}
	defer closeConn(local)
	available, err := column(ctx, local, "SELECT name FROM pg_available_extensions")
	if err != nil {
		return fmt.Errorf("reading the image's extensions: %w", err)
	}
	var missing []string
	for _, database := range databasesOf(m) {
		present, err := p.strings(ctx, m.Source, database, "SELECT extname FROM pg_extension ORDER BY 1")
		if err != nil {
			return err
		}
		for _, name := range present {
			if !slices.Contains(available, name) {
				missing = append(missing, name+" (database "+database+")")
			}
		}
	}
	if len(missing) > 0 {
		return over(reasonExtension, fmt.Sprintf("the image of PostgreSQL %s does not have: %s; use an image that has, or drop what is not needed",
			p.Upgrade.To, strings.Join(missing, ", ")))
	}
	return nil
}

// strings are the rows of a query on another instance.
func (p *Place) strings(ctx context.Context, instance, database, query string) ([]string, error) {
	c, err := p.Remote(ctx, instance, database)
	if err != nil {
		return nil, err
	}
	defer closeConn(c)
	found, err := column(ctx, c, query)
	if err != nil {
		return nil, fmt.Errorf("database %s of %s: %w", database, instance, err)
	}
	return found, nil
}

// templates are the databases from which others are made, if somebody has put something in them. They are copied as they are; nothing
// follows them.
func (p *Place) templates(ctx context.Context, m *Marker) ([]string, error) {
	all, err := p.strings(ctx, m.Source, "postgres", "SELECT datname FROM pg_database WHERE datistemplate AND datallowconn AND datname <> 'template0' ORDER BY 1")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, database := range all {
		objects, err := p.strings(ctx, m.Source, database, `SELECT 'x' FROM pg_class WHERE oid >= 16384 UNION ALL SELECT 'x' FROM pg_proc WHERE oid >= 16384
			UNION ALL SELECT 'x' FROM pg_extension WHERE oid >= 16384 LIMIT 1`)
		if err != nil {
			return nil, err
		}
		if len(objects) > 0 || database != "template1" {
			found = append(found, database)
		}
	}
	return found, nil
}

// copySchema makes the database and its schema. What an earlier try has left of it is dropped first: it was not complete, or it would
// be in the marker.
func (p *Place) copySchema(ctx context.Context, m *Marker, database string) error {
	dump, err := p.program("pg_dump")
	if err != nil {
		return over(reasonImage, err.Error())
	}
	_, follows := m.Databases[database]
	script := script{
		dump: []string{
			dump, "--quote-all-identifiers", "--no-subscriptions", "--no-tablespaces", "--no-password", "--lock-wait-timeout=60s",
			"--dbname=" + p.Conninfo(m.Source, database),
		},
		database: "template1", drop: map[string]bool{},
	}
	if follows {
		script.dump = append(script.dump, "--schema-only")
	}
	if database == "template1" { // which cannot be dropped: what initdb made is used
		script.database = database
	} else if err := p.dropDatabase(ctx, database); err != nil {
		return err
	} else {
		script.dump = append(script.dump, "--create")
	}
	if err := p.load(ctx, script); err != nil || !follows {
		return err
	}
	local, err := p.Local(ctx, database)
	if err != nil {
		return err
	}
	defer closeConn(local)
	return DropDDLGuard(ctx, local)
}

func (p *Place) dropDatabase(ctx context.Context, database string) error {
	local, err := p.Local(ctx, "template1")
	if err != nil {
		return err
	}
	defer closeConn(local)
	if _, err := local.Exec(ctx, "UPDATE pg_database SET datistemplate = false WHERE datname = $1 AND datistemplate", database); err != nil {
		return fmt.Errorf("dropping what there is of %s: %w", database, err)
	}
	if _, err := local.Exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{database}.Sanitize()+" WITH (FORCE)"); err != nil {
		return fmt.Errorf("dropping what there is of %s: %w", database, err)
	}
	return nil
}
