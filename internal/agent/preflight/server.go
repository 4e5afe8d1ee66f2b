package preflight

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// notOurs excludes what a major upgrade of ours makes.
const notOurs = ` NOT LIKE '` + naming.UpgradePublication + `\_%'`

// OfCopies is true of the slots by which seeds of ours copied tables: PostgreSQL makes and drops them itself, but for those of a copy that was broken off.
const OfCopies = `(slot_name::text ~ '^pg_\d+_sync_\d+_\d+$' AND substring(slot_name::text from '\d+$') IN (SELECT unnest(string_to_array(split_part(c, '=', 2), ' '))
	FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole, unnest(s.setconfig) c
	WHERE r.rolname = '` + naming.UpgradeUser + `' AND split_part(c, '=', 1) = '` + naming.UpgradeSeeds + `'))`

const reservedNames = "Names that pgsteward needs for itself during an upgrade, and gives a superuser's rights: drop or rename what has them"

// serverChecks are looked for once.
var serverChecks = []check{
	{
		name: "ReservedNames", severity: agentapi.SeverityBlocker,
		query: `SELECT format('role %I', r.rolname) FROM pg_roles r WHERE r.rolname = '` + naming.UpgradeUser + `'
			AND (NOT r.rolsuper OR EXISTS (SELECT FROM pg_auth_members m WHERE m.roleid = r.oid))`,
		message: reservedNames,
	},
	{
		name: "DatabaseRefusesConnections", severity: agentapi.SeverityBlocker,
		query:   `SELECT quote_ident(datname) FROM pg_database WHERE NOT datallowconn AND datname <> 'template0' AND datconnlimit <> -2`,
		message: "Databases that refuse connections cannot be carried over: ALTER DATABASE … ALLOW_CONNECTIONS true, or drop them",
	},
	{
		name: "InvalidDatabase", severity: agentapi.SeverityBlocker,
		query:   `SELECT quote_ident(datname) FROM pg_database WHERE datconnlimit = -2`,
		message: "A DROP DATABASE was interrupted, and left a database that nobody can use: repeat it",
	},
	{
		name: "Tablespaces", severity: agentapi.SeverityBlocker,
		query:   `SELECT quote_ident(spcname) FROM pg_tablespace WHERE spcname NOT IN ('pg_default', 'pg_global')`,
		message: "Tablespaces are not carried over: move their tables and indexes to pg_default (ALTER TABLE ALL IN TABLESPACE … SET TABLESPACE pg_default), and drop them",
	},
	{
		name: "PreparedTransactions", severity: agentapi.SeverityBlocker,
		query:   `SELECT format('%L (%s, since %s)', gid, database, date_trunc('second', prepared)) FROM pg_prepared_xacts`,
		message: "Prepared transactions keep the upgrade waiting, and would not be carried over: COMMIT PREPARED or ROLLBACK PREPARED each",
	},
	{
		name: "TwoPhaseCommit", severity: agentapi.SeverityWarning, applies: Input.follows,
		query:   `SELECT 'max_prepared_transactions = ' || setting FROM pg_settings WHERE name = 'max_prepared_transactions' AND setting <> '0'`,
		message: "Prepared transactions are possible here. The switchover is refused while one is open; those that are committed are carried over",
	},
	{
		name: "OldTransactions", severity: agentapi.SeverityBlocker, applies: Input.follows,
		query: `SELECT format('pid %s (%s, %s, %s, since %s)', pid, quote_ident(datname), quote_ident(usename), state, date_trunc('second', xact_start))
			FROM pg_stat_activity WHERE backend_type = 'client backend' AND backend_xid IS NOT NULL AND xact_start < now() - interval '10 minutes'`,
		message: "Transactions that write and have run for more than ten minutes keep replication slots from being made: let them end, or end them with SELECT pg_terminate_backend(PID)",
	},
	{
		name: "OldReaders", severity: agentapi.SeverityWarning, applies: Input.follows,
		query: `SELECT format('pid %s (%s, %s, %s, since %s)', pid, quote_ident(datname), quote_ident(usename), state, date_trunc('second', xact_start))
			FROM pg_stat_activity WHERE backend_type = 'client backend' AND backend_xid IS NULL AND xact_start < now() - interval '10 minutes'`,
		message: "Transactions that have run for more than ten minutes lock what they have read: setting the replica identity of such a table waits for them",
	},
	{
		name: "LogicalSlots", severity: agentapi.SeverityBlocker,
		query:   `SELECT format('%I (%I)', slot_name, database) FROM pg_replication_slots WHERE slot_type = 'logical' AND NOT temporary AND NOT ` + OfCopies + ` AND slot_name` + notOurs,
		message: "Logical replication slots are not carried over, since positions are other ones in the new system: let their consumers read everything, drop them (SELECT pg_drop_replication_slot('…')), and make them anew after the upgrade",
	},
	{
		name: "PhysicalSlots", severity: agentapi.SeverityWarning,
		query:   `SELECT quote_ident(slot_name) FROM pg_replication_slots WHERE slot_type = 'physical' AND NOT temporary AND slot_name NOT LIKE 'pgsteward\_%'`,
		message: "Physical replication slots are not carried over: what streams through them has to be copied anew after the upgrade",
	},
	{
		name: "Subscriptions", severity: agentapi.SeverityBlocker, applies: Input.follows,
		query:   `SELECT format('%I (%I)', subname, datname) FROM pg_subscription JOIN pg_database d ON d.oid = subdbid WHERE subname` + notOurs,
		message: "What a subscription brings is not passed on to the new server, which would subscribe a second time: drop the subscription, and make it anew after the upgrade",
	},
	{
		name: "Subscriptions", severity: agentapi.SeverityBlocker, applies: func(in Input) bool { return !in.follows() && in.From < 17 },
		query:   `SELECT format('%I (%I)', subname, datname) FROM pg_subscription JOIN pg_database d ON d.oid = subdbid`,
		message: "pg_upgrade does not carry over how far a subscription has come before 17: drop the subscription, and make it anew after the upgrade",
	},
	{
		name: "SubscriptionsInPlace", severity: agentapi.SeverityWarning, applies: func(in Input) bool { return !in.follows() && in.From >= 17 },
		query:   `SELECT format('%I (%I)', subname, datname) FROM pg_subscription JOIN pg_database d ON d.oid = subdbid`,
		message: "Subscriptions are disabled by pg_upgrade: enable them after the upgrade",
	},
	{
		name: "RemovedSettings", severity: agentapi.SeverityBlocker,
		query: `SELECT format('%s%s: %s', coalesce('role ' || quote_ident(r.rolname), ''), coalesce(' database ' || quote_ident(d.datname), ''), split_part(s, '=', 1))
			FROM pg_db_role_setting LEFT JOIN pg_roles r ON r.oid = setrole LEFT JOIN pg_database d ON d.oid = setdatabase, unnest(setconfig) s
			WHERE lower(split_part(s, '=', 1)) = ANY ($1)`,
		arguments: func(in Input) []any { return []any{removed(in)} },
		message:   "Roles or databases have settings that the new version does not know: ALTER ROLE … RESET, or ALTER DATABASE … RESET",
	},
	{
		name: "AlterSystem", severity: agentapi.SeverityWarning,
		query: `SELECT DISTINCT name FROM pg_file_settings WHERE sourcefile LIKE '%/postgresql.auto.conf'
			AND name NOT IN ('primary_conninfo', 'primary_slot_name', 'restore_command') AND name NOT LIKE 'recovery\_target%'`,
		message: "What ALTER SYSTEM has set is not carried over: write it into spec.postgresql.parameters",
	},
	{
		name: "MD5Passwords", severity: agentapi.SeverityWarning, applies: func(in Input) bool { return in.To >= 18 && in.From < 18 },
		query:   `SELECT quote_ident(rolname) FROM pg_authid WHERE rolpassword LIKE 'md5%'`,
		message: "PostgreSQL 18 warns about passwords that are kept as MD5: set them again, which keeps them as SCRAM",
	},
	{
		name: "CollationVersion", severity: agentapi.SeverityWarning,
		query: `SELECT format('%I: made with %s, now %s', datname, datcollversion, pg_database_collation_actual_version(oid)) FROM pg_database
			WHERE datallowconn AND datcollversion IS NOT NULL AND datcollversion <> pg_database_collation_actual_version(oid)`,
		message: "The C library or ICU sorts otherwise than when these databases were made, so indexes on text may be wrong already: REINDEX DATABASE, then ALTER DATABASE … REFRESH COLLATION VERSION",
	},
	{
		name: "Locales", severity: agentapi.SeverityWarning,
		query: `SELECT format('%I: %s', datname, l) FROM pg_database, LATERAL (VALUES (datcollate), (datctype)) v(l)
			WHERE datname <> 'template0' AND lower(replace(l, '-', '')) NOT IN ('c', 'posix', 'c.utf8', 'en_us.utf8') GROUP BY 1`,
		message: "The image of the new version must have these locales, or the upgrade ends when its system is made",
	},
}

// wholeServer looks for what is no list of objects.
func wholeServer(ctx context.Context, c *pgx.Conn, in Input, databases int) ([]agentapi.Finding, error) {
	var (
		findings                                  []agentapi.Finding
		size                                      int64
		level                                     string
		slots, slotsUsed, senders, sendersUsed, n int
	)
	err := c.QueryRow(ctx, `SELECT (SELECT sum(pg_database_size(oid)) FROM pg_database)::bigint, current_setting('wal_level'),
		current_setting('max_replication_slots')::int, (SELECT count(*) FROM pg_replication_slots WHERE NOT `+OfCopies+` AND slot_name`+notOurs+`)::int,
		current_setting('max_wal_senders')::int,
		(SELECT count(*) FROM pg_stat_replication WHERE application_name`+notOurs+` AND usename <> $1)::int`, naming.UpgradeUser).
		Scan(&size, &level, &slots, &slotsUsed, &senders, &sendersUsed)
	if err != nil {
		return nil, fmt.Errorf("looking at the server: %w", err)
	}
	blocker := func(name, message string, objects ...string) {
		findings = append(findings, agentapi.Finding{Severity: agentapi.SeverityBlocker, Check: name, Objects: objects, Message: message})
	}
	if names, remedies := removedParameters(in); len(names) > 0 {
		blocker("RemovedParameters", fmt.Sprintf("PostgreSQL %d does not know these parameters: take them out of spec.postgresql.parameters (%s)",
			in.To, strings.Join(remedies, "; ")), names...)
	}
	if in.follows() {
		if level != "logical" {
			blocker("WALLevel", "The primary runs with wal_level = "+level+" still, and must be restarted once, since a major upgrade needs logical")
		}
		if n = slotsUsed + databases + spare; slots < n {
			blocker("ReplicationSlots", fmt.Sprintf("%d databases need %d replication slots with those in use: set max_replication_slots to %d at least, which is %d (spec.postgresql.parameters)",
				databases, n, n, slots))
		}
		if n = sendersUsed + databases + spare; senders < n {
			blocker("WALSenders", fmt.Sprintf("%d databases need %d WAL senders with those in use: set max_wal_senders to %d at least, which is %d (spec.postgresql.parameters)",
				databases, n, n, senders))
		}
	}
	return append(findings, space(in, size, databases)...), nil
}

const (
	// spare are slots and senders for copying tables, and for standbys of both sides.
	spare = 6
	// systemBytes is what the new system's own files and WAL need, databaseBytes what its catalogs need in each database.
	systemBytes   = 256 << 20
	databaseBytes = 32 << 20
)

// space looks at what is free on the primary's volume; those of the others are of the same size.
func space(in Input, size int64, databases int) []agentapi.Finding {
	converting, copying := systemBytes+int64(databases)*databaseBytes, systemBytes+size+size/20
	finding := agentapi.Finding{Severity: agentapi.SeverityBlocker, Check: "Space"}
	say := func(need int64, what string) string {
		return fmt.Sprintf("%s needs %d MiB free on the data volume, which has %d MiB: raise spec.storage.size", what, need>>20, in.FreeBytes>>20)
	}
	switch {
	case in.converts() && in.FreeBytes < converting:
		finding.Message = say(converting, "The new version's system")
	case in.Method == agentapi.MethodLogical && in.FreeBytes < copying:
		finding.Message = say(copying, "A logical copy")
	case in.Method == "" && in.FreeBytes < copying:
		finding.Severity = agentapi.SeverityWarning
		finding.Message = say(copying, "If pg_upgrade cannot be used, the data is copied logically. That")
	default:
		return nil
	}
	return []agentapi.Finding{finding}
}
