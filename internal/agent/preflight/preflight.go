package preflight

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgsteward/pgsteward/internal/agentapi"
)

const (
	// bound is for all checks together, statementBound for each.
	bound          = 2 * time.Minute
	statementBound = 20 * time.Second
	// examples is how many objects a finding names.
	examples = 10
)

// Dial opens a connection of the superuser to a database of the server that is looked at.
type Dial func(ctx context.Context, database string) (*pgx.Conn, error)

// Input is what is known about the upgrade.
type Input struct {
	// From and To are the majors.
	From, To int
	// ToVersion is what the new image has, such as 18.6; empty: it is not known.
	ToVersion string
	// Method is how the data is to be made; empty: pg_upgrade if it can be used, else a logical copy.
	Method agentapi.UpgradeMethod
	// OneWay says that there is to be no way back.
	OneWay bool
	// Parameters are those that the user has set.
	Parameters map[string]string
	// FreeBytes is what is free on the data volume.
	FreeBytes int64
}

// follows says whether logical replication is part of it.
func (in Input) follows() bool { return in.Method != agentapi.MethodInPlace }

// returns says whether the old server may come to follow the new one.
func (in Input) returns() bool { return in.follows() && !in.OneWay }

// converts says whether pg_upgrade may be part of it.
func (in Input) converts() bool { return in.Method != agentapi.MethodLogical }

// check is one thing that is looked for.
type check struct {
	name     string
	severity agentapi.Severity
	// applies says whether it matters for this upgrade; nil: always.
	applies func(Input) bool
	// query has one row for each object, with one column.
	query string
	// arguments are those of the query.
	arguments func(Input) []any
	// message says what is wrong, and what to do.
	message string
	// converting is about pg_upgrade: where the method is not given, a logical copy does without it.
	converting bool
}

// Check looks at the server. An error means that it could not look everywhere, so that what was found is not all.
func Check(ctx context.Context, dial Dial, in Input) ([]agentapi.Finding, error) {
	return look(ctx, dial, in, func(check) bool { return true }, true)
}

// Obstacles are what keeps pg_upgrade from converting the data: where there are some, a logical copy may still do.
func Obstacles(ctx context.Context, dial Dial, in Input) ([]agentapi.Finding, error) {
	return look(ctx, dial, in, func(c check) bool { return c.converting }, false)
}

func look(ctx context.Context, dial Dial, in Input, wanted func(check) bool, whole bool) ([]agentapi.Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	server, err := open(ctx, dial, "postgres")
	if err != nil {
		return nil, err
	}
	defer closeConn(server)
	databases, err := names(ctx, server, "SELECT datname FROM pg_database WHERE datallowconn AND NOT datistemplate ORDER BY 1")
	if err != nil {
		return nil, fmt.Errorf("reading the databases: %w", err)
	}
	var findings []agentapi.Finding
	if whole {
		if findings, err = wholeServer(ctx, server, in, len(databases)); err != nil {
			return nil, err
		}
	}
	found, err := run(ctx, place{server, ""}, in, chosen(serverChecks, wanted))
	if err != nil {
		return nil, err
	}
	findings = append(findings, found...)
	for _, database := range databases {
		c, err := open(ctx, dial, database)
		if err != nil {
			return nil, fmt.Errorf("database %s: %w", database, err)
		}
		found, err := run(ctx, place{c, database}, in, chosen(databaseChecks, wanted))
		closeConn(c)
		if err != nil {
			return nil, err
		}
		findings = append(findings, found...)
	}
	order := []agentapi.Severity{agentapi.SeverityBlocker, agentapi.SeverityWarning, agentapi.SeverityFixed}
	slices.SortStableFunc(findings, func(a, b agentapi.Finding) int {
		return slices.Index(order, a.Severity) - slices.Index(order, b.Severity)
	})
	return findings, nil
}

// open opens a connection on which no statement takes long, and none writes.
func open(ctx context.Context, dial Dial, database string) (*pgx.Conn, error) {
	c, err := dial(ctx, database)
	if err != nil {
		return nil, err
	}
	_, err = c.Exec(ctx, fmt.Sprintf("SET statement_timeout = %d; SET default_transaction_read_only = on; SET search_path = pg_catalog",
		statementBound.Milliseconds()))
	if err != nil {
		closeConn(c)
		return nil, fmt.Errorf("preparing to look at database %s: %w", database, err)
	}
	return c, nil
}

func closeConn(c *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.Close(ctx)
}

// place is where is looked: a connection to a database; without a name it is about the whole server.
type place struct {
	*pgx.Conn
	database string
}

// chosen are those of the checks that are wanted.
func chosen(checks []check, wanted func(check) bool) []check {
	return slices.DeleteFunc(slices.Clone(checks), func(c check) bool { return !wanted(c) })
}

func run(ctx context.Context, p place, in Input, checks []check) ([]agentapi.Finding, error) {
	var findings []agentapi.Finding
	for _, check := range checks {
		if check.converting && !in.converts() || check.applies != nil && !check.applies(in) {
			continue
		}
		var arguments []any
		if check.arguments != nil {
			arguments = check.arguments(in)
		}
		objects, count, err := objectsOf(ctx, p.Conn, check.query, arguments)
		if err != nil {
			return nil, fmt.Errorf("check %s in database %q: %w", check.name, p.database, err)
		}
		if count == 0 {
			continue
		}
		finding := agentapi.Finding{
			Severity: check.severity, Check: check.name, Database: p.database,
			Objects: objects, More: count - len(objects), Message: check.message,
		}
		if check.converting && in.Method == "" {
			finding.Severity = agentapi.SeverityWarning
			finding.Message += ". Until then the data is copied logically, which takes longer"
		}
		findings = append(findings, finding)
	}
	return findings, nil
}

// objectsOf are the first objects of a query, and how many there are.
func objectsOf(ctx context.Context, c *pgx.Conn, query string, arguments []any) (objects []string, count int, err error) {
	rows, err := c.Query(ctx, fmt.Sprintf("SELECT q.object, count(*) OVER () FROM (%s) AS q(object) ORDER BY 1 LIMIT %d", query, examples), arguments...)
	if err != nil {
		return nil, 0, err
	}
	var object string
	_, err = pgx.ForEachRow(rows, []any{&object, &count}, func() error {
		objects = append(objects, object)
		return nil
	})
	return objects, count, err
}

// names are the rows of a query with one column.
func names(ctx context.Context, c *pgx.Conn, query string) ([]string, error) {
	rows, err := c.Query(ctx, query)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
