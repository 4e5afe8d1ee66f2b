package generation

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pgsteward/pgsteward/internal/naming"
)

// schemaQuery describes what logical replication and clients need of a database's schema, one line each: relations, columns with their types,
// functions, types and extensions. What belongs to an extension is that of the image, and is left out.
const schemaQuery = `
WITH relations AS (
	SELECT c.oid, c.relkind, format('%I.%I', n.nspname, c.relname) AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE c.oid >= 16384 AND c.relpersistence <> 't' AND n.nspname NOT LIKE 'pg\_toast%' AND n.nspname NOT LIKE 'pg\_temp%' AND n.nspname <> $1
	  AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'))
SELECT CASE relkind WHEN 'S' THEN 'sequence ' WHEN 'i' THEN 'index ' WHEN 'I' THEN 'index ' WHEN 'v' THEN 'view ' WHEN 'm' THEN 'materialized view '
	WHEN 'f' THEN 'foreign table ' WHEN 'c' THEN 'type ' ELSE 'table ' END || name FROM relations
UNION ALL
SELECT format('column %s.%I %I.%I', r.name, a.attname, tn.nspname, t.typname) FROM relations r JOIN pg_attribute a ON a.attrelid = r.oid
	JOIN pg_type t ON t.oid = a.atttypid JOIN pg_namespace tn ON tn.oid = t.typnamespace
	WHERE r.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT DISTINCT format('function %I.%I', n.nspname, p.proname) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
	WHERE p.oid >= 16384 AND n.nspname <> $1 AND n.nspname NOT LIKE 'pg\_temp%'
	  AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
UNION ALL
SELECT format('type %I.%I', n.nspname, t.typname) FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
	WHERE t.oid >= 16384 AND t.typtype IN ('e', 'd', 'r') AND n.nspname <> $1 AND n.nspname NOT LIKE 'pg\_temp%'
	  AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_type'::regclass AND d.objid = t.oid AND d.deptype = 'e')
UNION ALL
SELECT format('extension %I', extname) FROM pg_extension
ORDER BY 1`

// Differences are what one database has and another has not: a superuser who lifted the guard may have changed the schema on one side only.
func Differences(ctx context.Context, from, to *pgx.Conn) ([]string, error) {
	missing, err := lacking(ctx, from, to, schemaQuery, naming.UpgradeSchema)
	if err != nil {
		return nil, fmt.Errorf("comparing the schemas: %w", err)
	}
	return missing, nil
}

// GlobalDifferences are the databases and roles that one server has and another has not. The guard cannot refuse those; roles and passwords that
// were changed are brought over before (CopyRoles), and databases are not.
func GlobalDifferences(ctx context.Context, from, to *pgx.Conn) ([]string, error) {
	if err := CopyRoles(ctx, from, to); err != nil {
		return nil, err
	}
	missing, err := lacking(ctx, from, to, `SELECT format('database %I', datname) FROM pg_database
		UNION ALL SELECT format('role %I', rolname) FROM pg_roles WHERE oid >= 16384 AND rolname <> $1 ORDER BY 1`, naming.UpgradeUser)
	if err != nil {
		return nil, fmt.Errorf("comparing databases and roles: %w", err)
	}
	return missing, nil
}

// lacking are the rows that a query has on one side and not on the other.
func lacking(ctx context.Context, from, to *pgx.Conn, query string, arguments ...any) ([]string, error) {
	wanted, err := column(ctx, from, query, arguments...)
	if err != nil {
		return nil, err
	}
	found, err := column(ctx, to, query, arguments...)
	if err != nil {
		return nil, err
	}
	present := make(map[string]bool, len(found))
	for _, line := range found {
		present[line] = true
	}
	var missing []string
	for _, line := range wanted {
		if !present[line] {
			missing = append(missing, line)
		}
	}
	return missing, nil
}
