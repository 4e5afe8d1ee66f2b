package generation

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pgsteward/pgsteward/internal/agent/carry"
	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/agent/preflight"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// choose says by which method the data is made, and why. What the user has chosen is done, or nothing is.
func (p *Place) choose(ctx context.Context, m *Marker) (agentapi.UpgradeMethod, string, error) {
	if p.Upgrade.Method == agentapi.MethodLogical {
		return agentapi.MethodLogical, "spec.upgrade.method says so", nil
	}
	why, err := p.notPhysical(ctx, m)
	inPlace := p.Upgrade.Method == agentapi.MethodInPlace
	switch {
	case err != nil:
		return "", "", err
	case inPlace && why == "":
		return agentapi.MethodInPlace, "spec.upgrade.method says so", nil
	case inPlace:
		return "", "", over(reasonMethod, "spec.upgrade.method is InPlace, and cannot be: "+why)
	case why == "":
		return agentapi.MethodPhysical, "both images have what pg_upgrade needs", nil
	case p.Upgrade.Method == agentapi.MethodPhysical:
		return "", "", over(reasonMethod, "spec.upgrade.method is Physical, and cannot be: "+why)
	}
	return agentapi.MethodLogical, why, nil
}

// notPhysical is why pg_upgrade cannot be used; empty if it can.
func (p *Place) notPhysical(ctx context.Context, m *Marker) (string, error) {
	manifest, err := carry.Read(p.Carried)
	switch {
	case err != nil:
		return "", err
	case p.Carried == "" || manifest == nil:
		return "there are no programs of the old image here", nil
	case manifest.Problem != "":
		return "of the old image: " + manifest.Problem, nil
	case len(manifest.Missing) > 0:
		return "the old image has no " + strings.Join(manifest.Missing, ", "), nil
	case manifest.Major != m.From:
		return fmt.Sprintf("the programs of the old image are of PostgreSQL %d", manifest.Major), nil
	}
	if why, err := p.oldRuns(ctx, m); why != "" || err != nil {
		return why, err
	}
	for _, name := range []string{"pg_upgrade", "pg_ctl", "pg_controldata", "pg_resetwal", "pg_dump", "pg_dumpall", "pg_restore", "psql", "vacuumdb"} {
		path, err := p.program(name)
		if err != nil {
			return err.Error(), nil //nolint:nilerr // that is the answer
		}
		// An image may have programs of another major beside its server.
		if major, err := p.majorOf(ctx, path); err != nil || major != m.To {
			return fmt.Sprintf("%s of the image is of PostgreSQL %d", name, major), err
		}
	}
	if why, err := p.obstacle(ctx, m); why != "" || err != nil {
		return why, err
	}
	return p.otherCollations(ctx, m)
}

// obstacle is what in the source's databases pg_upgrade would refuse; empty if there is nothing.
func (p *Place) obstacle(ctx context.Context, m *Marker) (string, error) {
	dial := func(ctx context.Context, database string) (*pgx.Conn, error) {
		return p.Remote(ctx, m.Source, database)
	}
	found, err := preflight.Obstacles(ctx, dial, preflight.Input{From: m.From, To: m.To})
	if err != nil || len(found) == 0 {
		return "", err
	}
	why := found[0].Message
	if len(found[0].Objects) > 0 {
		why += ": " + strings.Join(found[0].Objects, ", ")
	}
	if found[0].Database != "" {
		why = "database " + found[0].Database + ": " + why
	}
	return why, nil
}

// oldRuns tries the old server here.
func (p *Place) oldRuns(ctx context.Context, m *Marker) (string, error) {
	postgres, err := p.oldProgram("postgres")
	if err != nil {
		return err.Error(), nil //nolint:nilerr // that is the answer
	}
	major, err := p.majorOf(ctx, postgres)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		return "the old image's postgres does not run in the new image: " + err.Error(), nil //nolint:nilerr // that is the answer
	case major != m.From:
		return fmt.Sprintf("the old image's postgres is of PostgreSQL %d", major), nil
	}
	return "", nil
}

func (p *Place) oldProgram(name string) (string, error) {
	manifest, err := carry.Read(p.Carried)
	if err != nil {
		return "", err
	}
	if manifest == nil || manifest.Program(p.Carried, name) == "" {
		return "", fmt.Errorf("there is no %s of the old image here", name)
	}
	return manifest.Program(p.Carried, name), nil
}

func (p *Place) majorOf(ctx context.Context, program string) (int, error) {
	cmd := p.Children.Command(ctx, program, "--version")
	var said ending
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := p.Children.Run(cmd); err != nil {
		return 0, fmt.Errorf("running %s --version: %w: %s", program, err, said.String())
	}
	version, err := postgres.ParseVersion(said.String())
	return version.Major, err
}

// collation is one that a system sorts by, and the version that its library says it is of.
type collation struct{ Provider, Locale, Version string }

// otherCollations says which of the collations that indexes of the source are sorted by are of another version here: such indexes
// would be wrong. For that the new system is made, which pg_upgrade will fill.
func (p *Place) otherCollations(ctx context.Context, m *Marker) (string, error) {
	used, err := p.usedCollations(ctx, m)
	if err != nil || len(used) == 0 {
		return "", err
	}
	p.Progress("comparing the collations of both images")
	if err := p.makeEmpty(ctx, m); err != nil {
		return "", err
	}
	here, err := p.collationsHere(ctx)
	if err != nil {
		return "", err
	}
	for _, c := range used {
		version, known := here[c.Provider+" "+c.Locale]
		if !known {
			version, known = here[c.Provider]
		}
		name := map[string]string{"c": "libc", "i": "ICU"}[c.Provider]
		switch {
		case !known:
			return fmt.Sprintf("the image does not have the collation %s of %s, by which the source sorts", c.Locale, name), nil
		case version != c.Version:
			return fmt.Sprintf("the collation %s of %s is of version %s on the source and of %s in the new image: indexes must be built anew",
				c.Locale, name, c.Version, version), nil
		}
	}
	return "", nil
}

// usedCollations are those of all databases of the source, and of all indexes, that have versions.
func (p *Place) usedCollations(ctx context.Context, m *Marker) ([]collation, error) {
	c, err := p.Remote(ctx, m.Source, "postgres")
	if err != nil {
		return nil, err
	}
	defer closeConn(c)
	const ofDatabases = `SELECT DISTINCT datlocprovider::text, coalesce(CASE datlocprovider WHEN 'c' THEN datcollate
			ELSE coalesce(to_jsonb(d) ->> 'datlocale', to_jsonb(d) ->> 'daticulocale') END, ''), v
		FROM pg_database d, pg_database_collation_actual_version(d.oid) AS v WHERE datlocprovider IN ('c', 'i') AND v IS NOT NULL`
	found, err := collations(ctx, c, ofDatabases)
	if err != nil {
		return nil, err
	}
	databases, err := readDatabases(ctx, c)
	if err != nil {
		return nil, err
	}
	const ofIndexes = `SELECT DISTINCT c.collprovider::text, coalesce(CASE c.collprovider WHEN 'c' THEN c.collcollate
			ELSE coalesce(to_jsonb(c) ->> 'colllocale', to_jsonb(c) ->> 'colliculocale') END, ''), v
		FROM pg_index i, unnest(i.indcollation) AS o (oid) JOIN pg_collation c USING (oid), pg_collation_actual_version(c.oid) AS v
		WHERE c.collprovider IN ('c', 'i') AND v IS NOT NULL`
	for database := range databases {
		c, err := p.Remote(ctx, m.Source, database)
		if err != nil {
			return nil, err
		}
		more, err := collations(ctx, c, ofIndexes)
		closeConn(c)
		if err != nil {
			return nil, fmt.Errorf("database %s: %w", database, err)
		}
		found = append(found, more...)
	}
	return found, nil
}

func collations(ctx context.Context, c *pgx.Conn, query string) ([]collation, error) {
	rows, err := c.Query(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("reading the source's collations: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[collation])
	if err != nil {
		return nil, fmt.Errorf("reading the source's collations: %w", err)
	}
	return found, nil
}

// collationsHere are the versions of the new image's collations, by provider and locale; by the provider alone that of any of its. The new
// system's server tells, alone and without a network.
func (p *Place) collationsHere(ctx context.Context) (map[string]string, error) {
	const query = "SELECT format('<<%s|%s|%s>>', collprovider, coalesce(collcollate, to_jsonb(c) ->> 'colllocale', to_jsonb(c) ->> 'colliculocale', ''), v)" +
		" FROM pg_collation c, pg_collation_actual_version(c.oid) AS v WHERE collprovider IN ('c', 'i') AND v IS NOT NULL\n"
	cmd := p.Children.Command(ctx, p.Programs.Postgres, "--single", "-D", p.New.Seeding(), "template1")
	var said strings.Builder
	cmd.Stdin, cmd.Stdout = strings.NewReader(query), &said
	var complaints ending
	cmd.Stderr = &complaints
	if err := p.Children.Run(cmd); err != nil {
		return nil, fmt.Errorf("asking the new system for its collations: %w: %s", err, complaints.String())
	}
	found := map[string]string{}
	for part := range strings.SplitSeq(said.String(), "<<") {
		text, _, ok := strings.Cut(part, ">>")
		fields := strings.Split(text, "|")
		if !ok || len(fields) != 3 {
			continue
		}
		found[fields[0]+" "+fields[1]] = fields[2]
		if _, known := found[fields[0]]; !known || fields[0] == "c" {
			found[fields[0]] = fields[2]
		}
	}
	if len(found) == 0 {
		return nil, errors.New("the new system does not say what its collations are: " + complaints.String())
	}
	return found, nil
}

// makeEmpty makes the new system that pg_upgrade fills, under the name of one that is being made.
func (p *Place) makeEmpty(ctx context.Context, m *Marker) error {
	if datadir.MajorOf(p.New.Seeding()) == m.To && p.New.IsFinished() {
		return nil
	}
	source, err := p.Remote(ctx, m.Source, "postgres")
	if err != nil {
		return err
	}
	defer closeConn(source)
	form, err := readShape(ctx, source)
	if err != nil {
		return err
	}
	p.Progress("making an empty system of PostgreSQL " + p.Upgrade.To)
	return p.New.Begin(func(target string) error { return p.initdb(ctx, target, form) })
}
