package generation

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pgsteward/pgsteward/internal/naming"
)

// rolesQuery has a statement for each role that makes it what it is. It has password verifiers in it.
const rolesQuery = `
SELECT rolname, format('ALTER ROLE %I WITH %s %s %s %s %s %s %s CONNECTION LIMIT %s PASSWORD %L VALID UNTIL %L', rolname,
	CASE WHEN rolsuper THEN 'SUPERUSER' ELSE 'NOSUPERUSER' END, CASE WHEN rolinherit THEN 'INHERIT' ELSE 'NOINHERIT' END,
	CASE WHEN rolcreaterole THEN 'CREATEROLE' ELSE 'NOCREATEROLE' END, CASE WHEN rolcreatedb THEN 'CREATEDB' ELSE 'NOCREATEDB' END,
	CASE WHEN rolcanlogin THEN 'LOGIN' ELSE 'NOLOGIN' END, CASE WHEN rolreplication THEN 'REPLICATION' ELSE 'NOREPLICATION' END,
	CASE WHEN rolbypassrls THEN 'BYPASSRLS' ELSE 'NOBYPASSRLS' END, rolconnlimit, rolpassword, coalesce(rolvaliduntil::text, 'infinity'))
FROM pg_authid WHERE (oid >= 16384 OR rolname = $1) AND rolname <> $2 ORDER BY 1`

// membershipsQuery has the memberships of roles, as statements.
const membershipsQuery = `
SELECT DISTINCT format('GRANT %I TO %I%s', r.rolname, m.rolname, CASE WHEN bool_or(a.admin_option) THEN ' WITH ADMIN OPTION' ELSE '' END)
FROM pg_auth_members a JOIN pg_roles r ON r.oid = a.roleid JOIN pg_roles m ON m.oid = a.member
WHERE m.oid >= 16384 AND m.rolname <> $1 GROUP BY r.rolname, m.rolname ORDER BY 1`

// CopyRoles brings over what has become of roles since they were copied: new ones, attributes, passwords and memberships. No event trigger
// fires for those, so nothing kept them from changing. What was taken away is not taken away there, but for attributes.
func CopyRoles(ctx context.Context, from, to *pgx.Conn) error {
	// Nothing of this may get into the log of the target.
	_, err := to.Exec(ctx, "SET log_statement = none; SET log_min_error_statement = panic; SET log_min_duration_statement = -1; SET synchronous_commit = local")
	if err != nil {
		return fmt.Errorf("copying roles: %w", err)
	}
	wanted, err := rolesOf(ctx, from)
	if err != nil {
		return err
	}
	present, err := rolesOf(ctx, to)
	if err != nil {
		return err
	}
	for name, statement := range wanted {
		before, known := present[name]
		if !known {
			if _, err := to.Exec(ctx, "CREATE ROLE "+pgx.Identifier{name}.Sanitize()); err != nil {
				return fmt.Errorf("making role %s: %w", name, err)
			}
		}
		if before == statement {
			continue
		}
		if _, err := to.Exec(ctx, statement); err != nil {
			return fmt.Errorf("changing role %s: %w", name, err)
		}
	}
	missing, err := lacking(ctx, from, to, membershipsQuery, naming.UpgradeUser)
	if err != nil {
		return fmt.Errorf("comparing the memberships of roles: %w", err)
	}
	if len(missing) == 0 {
		return nil
	}
	if _, err := to.Exec(ctx, strings.Join(missing, "; ")); err != nil {
		return fmt.Errorf("copying the memberships of roles: %w", err)
	}
	return nil
}

func rolesOf(ctx context.Context, c *pgx.Conn) (map[string]string, error) {
	rows, err := c.Query(ctx, rolesQuery, naming.Superuser, naming.UpgradeUser)
	if err != nil {
		return nil, fmt.Errorf("reading roles: %w", err)
	}
	found := map[string]string{}
	var name, statement string
	_, err = pgx.ForEachRow(rows, []any{&name, &statement}, func() error {
		found[name] = statement
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading roles: %w", err)
	}
	return found, nil
}
