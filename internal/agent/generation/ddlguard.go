package generation

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pgsteward/pgsteward/internal/naming"
)

// AllowDDL is the setting by which a superuser lifts the guard for a session. Our own connections have it.
const AllowDDL = "pgsteward.allow_ddl"

// The guard's three event triggers. A command is refused as early as may be: at its start if it cannot be about a temporary table, or could not be
// taken back at its end; when it rewrites a table; else at its end, when PostgreSQL says what it was about.
const (
	guardStart   = naming.UpgradeSchema + "_start"
	guardRewrite = naming.UpgradeSchema + "_rewrite"
	guardEnd     = naming.UpgradeSchema + "_end"
	guardDrop    = naming.UpgradeSchema + "_drop"
)

// guardFunction is refuse_ddl(). Logical replication carries rows, not changes of the schema, so that both sides would part; temporary
// objects are nobody else's. REFRESH, REINDEX and what fires no event triggers (ANALYZE, VACUUM, TRUNCATE, roles, databases) go through.
//
// What indexes and detaches partitions CONCURRENTLY commits in between, so that its end is too late; it stands alone in what the client sent.
// REFRESH CONCURRENTLY makes a temporary table.
const guardFunction = `
CREATE OR REPLACE FUNCTION %[1]s.refuse_ddl() RETURNS event_trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $guard$
DECLARE
	about text;
BEGIN
	IF coalesce(current_setting('%[2]s', true), '') IN ('on', 'true', '1') AND current_setting('is_superuser') = 'on' THEN
		RETURN;
	END IF;
	IF TG_TAG IN ('REFRESH MATERIALIZED VIEW', 'REINDEX') THEN
		RETURN;
	END IF;
	CASE TG_EVENT
	WHEN 'ddl_command_start' THEN
		IF TG_TAG ~ '^(CREATE|ALTER|DROP) (TABLE|INDEX|VIEW|SEQUENCE|TYPE|FUNCTION|TRIGGER|STATISTICS|RULE|DOMAIN|AGGREGATE|PROCEDURE|ROUTINE|OPERATOR)'
				OR TG_TAG IN ('SELECT INTO', 'COMMENT') THEN
			IF current_query() !~* '\m(index|detach)\M.*\mconcurrently\M' THEN
				RETURN;
			END IF;
		END IF;
	WHEN 'table_rewrite' THEN
		SELECT format('%%I.%%I', n.nspname, c.relname) INTO about FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.oid = pg_event_trigger_table_rewrite_oid() AND c.relpersistence <> 't';
		IF NOT FOUND THEN
			RETURN;
		END IF;
	WHEN 'ddl_command_end' THEN
		SELECT d.object_identity INTO about FROM pg_event_trigger_ddl_commands() d
		WHERE d.schema_name IS DISTINCT FROM 'pg_temp' AND coalesce(d.object_identity, '') !~ '\mpg_temp(_\d+)?\.' LIMIT 1;
		IF NOT FOUND THEN
			RETURN;
		END IF;
	WHEN 'sql_drop' THEN
		SELECT d.object_identity INTO about FROM pg_event_trigger_dropped_objects() d WHERE d.original AND NOT d.is_temporary LIMIT 1;
		IF NOT FOUND THEN
			RETURN;
		END IF;
	END CASE;
	RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
		MESSAGE = format('%%s is refused during the major upgrade of PostgreSQL by pgsteward', TG_TAG || coalesce(' (' || about || ')', '')),
		DETAIL = 'Rows are carried over to the new version, changes of the schema are not.',
		HINT = 'Wait until the upgrade is over (kubectl get postgresclusters), or end it by setting spec.version back. '
			'A superuser may SET %[2]s = on, and must then make the same change on the new server.';
END
$guard$`

// InstallDDLGuard makes the database refuse changes of its schema, with an error that says why. A database without PL/pgSQL has no
// guard: the preflight says so.
func InstallDDLGuard(ctx context.Context, c *pgx.Conn) error {
	var able, present bool
	err := c.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_language WHERE lanname = 'plpgsql'),
		(SELECT count(*) FROM pg_event_trigger WHERE evtname IN ($1, $2, $3, $4)) = 4`,
		guardStart, guardRewrite, guardEnd, guardDrop).Scan(&able, &present)
	if err != nil {
		return fmt.Errorf("looking for the guard of the schema: %w", err)
	}
	if !able || present {
		return nil
	}
	if err := ensureSchema(ctx, c); err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, fmt.Sprintf(guardFunction, schema, AllowDDL)); err != nil {
			return err
		}
		for _, trigger := range [][2]string{
			{guardStart, "ddl_command_start"}, {guardRewrite, "table_rewrite"}, {guardEnd, "ddl_command_end"}, {guardDrop, "sql_drop"},
		} {
			_, err := tx.Exec(ctx, "DROP EVENT TRIGGER IF EXISTS "+trigger[0]+"; CREATE EVENT TRIGGER "+trigger[0]+" ON "+trigger[1]+
				" EXECUTE FUNCTION "+schema+".refuse_ddl()")
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("making the database refuse changes of its schema: %w", err)
	}
	return nil
}

// DropDDLGuard removes what InstallDDLGuard made; there may be nothing. No event trigger fires for commands about event triggers, so the
// guard cannot be in its own way.
func DropDDLGuard(ctx context.Context, c *pgx.Conn) error {
	statement := ""
	for _, trigger := range []string{guardStart, guardRewrite, guardEnd, guardDrop} {
		statement += "DROP EVENT TRIGGER IF EXISTS " + trigger + "; "
	}
	// Where the schema is not there, PostgreSQL skips the function as well.
	if _, err := c.Exec(ctx, statement+"DROP FUNCTION IF EXISTS "+schema+".refuse_ddl()"); err != nil {
		return fmt.Errorf("removing the guard of the schema: %w", err)
	}
	return nil
}
