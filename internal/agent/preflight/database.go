package preflight

import (
	"slices"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// userRelations are the relations of users, as c in namespace n.
const userRelations = ` FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	AND c.oid >= 16384 AND n.nspname NOT LIKE 'pg\_toast%' AND n.nspname NOT LIKE 'pg\_temp%' AND n.nspname <> '` + naming.UpgradeSchema + `' `

// WithoutIdentity lists the tables of a database whose updates and deletes logical replication could not carry, since PostgreSQL finds
// no index that tells their rows apart (RelationGetReplicaIndex): nspname, relname, relreplident, the index that it names, oid. Partitioned
// tables have no rows of their own.
const WithoutIdentity = `SELECT n.nspname, c.relname, c.relreplident::text, i.relname AS index, c.oid` + userRelations + `
	LEFT JOIN pg_index x ON x.indrelid = c.oid AND x.indisreplident LEFT JOIN pg_class i ON i.oid = x.indexrelid
	WHERE c.relkind = 'r' AND c.relpersistence = 'p' AND c.relreplident <> 'f' AND NOT EXISTS (
		SELECT FROM pg_index k WHERE k.indrelid = c.oid AND k.indisvalid AND k.indislive AND k.indimmediate AND k.indisunique AND
			CASE c.relreplident WHEN 'd' THEN k.indisprimary WHEN 'i' THEN k.indisreplident ELSE false END)`

// ForeignSchema lists what in a database has the name of our schema, or is in it, and belongs to somebody who is no superuser; or is no table where
// there should be one.
const ForeignSchema = `
	SELECT format('schema %I of %I', n.nspname, r.rolname) FROM pg_namespace n JOIN pg_roles r ON r.oid = n.nspowner
		WHERE n.nspname = '` + naming.UpgradeSchema + `' AND NOT r.rolsuper
	UNION ALL SELECT format('relation %I.%I of %I', n.nspname, c.relname, r.rolname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		JOIN pg_roles r ON r.oid = c.relowner WHERE n.nspname = '` + naming.UpgradeSchema + `' AND (NOT r.rolsuper OR c.relkind NOT IN ('r', 'i'))
	UNION ALL SELECT format('function %s of %I', p.oid::regprocedure, r.rolname) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
		JOIN pg_roles r ON r.oid = p.proowner WHERE n.nspname = '` + naming.UpgradeSchema + `' AND NOT r.rolsuper`

// ForeignPublication lists a publication of our name that does not publish everything, or belongs to somebody who is no superuser.
const ForeignPublication = `
	SELECT format('publication %I of %I', p.pubname, r.rolname) FROM pg_publication p JOIN pg_roles r ON r.oid = p.pubowner
		WHERE p.pubname = '` + naming.UpgradePublication + `'
		AND NOT (r.rolsuper AND p.puballtables AND p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate)`

// columnVersions restricts relations to those with a column that has a version, which minor releases of 15 to 17 began to set.
const columnVersions = `WHERE EXISTS (SELECT FROM pg_attribute a, unnest(a.attoptions) AS o WHERE a.attrelid = c.oid AND starts_with(o, 'pg_attver='))`

// full are the oids of the tables that have the replica identity FULL, or will get it.
const full = `(SELECT oid FROM (` + WithoutIdentity + `) w UNION
	SELECT oid FROM pg_class WHERE relkind = 'r' AND relpersistence = 'p' AND oid >= 16384 AND relreplident = 'f')`

// withTypes begins a query with the types that columns are made of: through domains, arrays, ranges and composite types. It has the columns
// relid, attname and type; partsOf restricts the tables.
func withTypes(partsOf string) string {
	return `WITH RECURSIVE columns(relid, attname, type) AS (
		SELECT a.attrelid, a.attname, a.atttypid FROM pg_attribute a WHERE a.attnum > 0 AND NOT a.attisdropped AND a.attrelid IN (` + partsOf + `)
		UNION
		SELECT p.relid, p.attname, q.type FROM columns p JOIN pg_type t ON t.oid = p.type JOIN LATERAL (
			SELECT t.typbasetype WHERE t.typtype = 'd'
			UNION ALL SELECT t.typelem WHERE t.typcategory = 'A'
			UNION ALL SELECT r.rngsubtype FROM pg_range r WHERE r.rngtypid = t.oid OR r.rngmultitypid = t.oid
			UNION ALL SELECT b.atttypid FROM pg_attribute b WHERE t.typtype = 'c' AND b.attrelid = t.typrelid AND b.attnum > 0 AND NOT b.attisdropped
		) q(type) ON true) `
}

// columnNames is a column of tables and types as found by withTypes.
const columnNames = `SELECT DISTINCT format('%I.%I.%I (%s)', n.nspname, r.relname, columns.attname, format_type(columns.type, NULL))
	FROM columns JOIN pg_class r ON r.oid = columns.relid JOIN pg_namespace n ON n.oid = r.relnamespace JOIN pg_type t ON t.oid = columns.type `

// stored are relations with rows of their own, as oids.
const stored = `SELECT c.oid` + userRelations + `WHERE c.relkind IN ('r', 'm', 'p')`

// The names of relations, and of functions.
const (
	relation = `SELECT format('%I.%I', n.nspname, c.relname)`
	function = `SELECT p.oid::regprocedure::text`
)

// databaseChecks are looked for in each database.
var databaseChecks = slices.Concat(followChecks, objectChecks, convertChecks)

// followChecks are about what logical replication does not carry.
var followChecks = []check{
	{
		name: "ReservedNames", severity: agentapi.SeverityBlocker,
		query: ForeignSchema + ` UNION ALL ` + ForeignPublication, message: reservedNames,
	},
	{
		name: "LargeObjects", severity: agentapi.SeverityBlocker, applies: Input.follows,
		query:   `SELECT oid::text FROM pg_largeobject_metadata`,
		message: "Changes of large objects are not carried over: keep their content in bytea columns, and remove them (lo_unlink; vacuumlo does it for those that nothing refers to)",
	},
	{
		name: "ReplicaIdentity", severity: agentapi.SeverityFixed, applies: Input.follows,
		query:   `SELECT format('%I.%I', nspname, relname) FROM (` + WithoutIdentity + `) t`,
		message: "Tables without a primary key get REPLICA IDENTITY FULL until the upgrade is over. A primary key would make it faster",
	},
	{
		name: "SlowUpdates", severity: agentapi.SeverityWarning, applies: Input.follows,
		query: relation + userRelations + `WHERE c.reltuples > 100000 AND c.oid IN ` + full,
		message: "Large tables without a primary key: the new server looks for each updated or deleted row by reading the whole table, unless an index fits. " +
			"If they are updated often it will not catch up: add a primary key",
	},
	{
		name: "NoEquality", severity: agentapi.SeverityBlocker, applies: Input.follows,
		query: withTypes(full) + columnNames + `WHERE t.typtype = 'b' AND t.typcategory <> 'A' AND NOT EXISTS (
			SELECT FROM pg_opclass o JOIN pg_am m ON m.oid = o.opcmethod AND m.amname IN ('btree', 'hash') WHERE o.opcdefault AND (o.opcintype = t.oid OR
				EXISTS (SELECT FROM pg_cast k WHERE k.castsource = t.oid AND k.casttarget = o.opcintype AND k.castmethod = 'b' AND k.castcontext = 'i')))`,
		message: "Tables without a primary key whose columns are of types that cannot be compared: their updates and deletes cannot be carried over. Add a primary key, or change json to jsonb",
	},
	{
		name: "ColumnVersions", severity: agentapi.SeverityBlocker, applies: func(in Input) bool { return lacksColumnVersions(in) == yes },
		query:   relation + userRelations + columnVersions,
		message: "PostgreSQL up to 18.6, which the operator's image of 18 has, does not know the option pg_attver that this server has set on columns, so that neither pg_upgrade nor a copy of the schema would come to its end: name an image with a later PostgreSQL 18 in spec.image, or upgrade to 17",
	},
	{
		name: "ColumnVersions", severity: agentapi.SeverityWarning, applies: func(in Input) bool { return lacksColumnVersions(in) == maybe },
		query:   relation + userRelations + columnVersions,
		message: "PostgreSQL up to 18.6 does not know the option pg_attver that this server has set on columns: the upgrade would end with pg_upgrade's refusal. Make sure that the new image has a later one",
	},
	{
		name: "GeneratedKey", severity: agentapi.SeverityBlocker, applies: Input.follows,
		query: relation + userRelations + `JOIN pg_index k ON k.indrelid = c.oid AND k.indisvalid AND k.indimmediate
			AND CASE c.relreplident WHEN 'd' THEN k.indisprimary WHEN 'i' THEN k.indisreplident ELSE false END
			WHERE c.relkind = 'r' AND c.relpersistence = 'p'
			AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum = ANY (k.indkey) AND a.attgenerated <> '')`,
		message: "The primary key has a generated column, which logical replication does not send: ALTER TABLE … REPLICA IDENTITY USING INDEX with a unique index without one, or REPLICA IDENTITY FULL",
	},
	{
		name: "GeneratedColumns", severity: agentapi.SeverityBlocker, applies: func(in Input) bool { return in.follows() && in.To >= 18 },
		query: relation + userRelations + `WHERE c.oid IN ` + full + ` AND EXISTS (
			SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attgenerated <> '')`,
		message: "Tables with generated columns and without a primary key: PostgreSQL 18 refuses to update them while there is a way back. Add a primary key",
	},
	{
		name: "Triggers", severity: agentapi.SeverityBlocker, applies: Input.follows,
		query: `SELECT format('%I on %I.%I', t.tgname, n.nspname, c.relname)` + userRelations + `JOIN pg_trigger t ON t.tgrelid = c.oid
			WHERE NOT t.tgisinternal AND t.tgenabled IN ('A', 'R')`,
		message: "Triggers that are enabled ALWAYS or REPLICA would fire a second time on the new server, for rows that are carried over: ALTER TABLE … ENABLE TRIGGER, or disable them until the upgrade is over",
	},
	{
		name: "ForcedRowSecurity", severity: agentapi.SeverityBlocker, applies: func(in Input) bool { return in.follows() && in.To >= 16 },
		query: relation + userRelations + `JOIN pg_roles r ON r.oid = c.relowner
			WHERE c.relrowsecurity AND c.relforcerowsecurity AND NOT r.rolsuper AND NOT r.rolbypassrls`,
		message: "Rows are written on the new server as the table's owner, to whom row security is applied by FORCE ROW LEVEL SECURITY: ALTER TABLE … NO FORCE ROW LEVEL SECURITY, or give the owner BYPASSRLS, until the upgrade is over",
	},
	{
		name: "OwnersFunctions", severity: agentapi.SeverityBlocker, applies: func(in Input) bool { return in.returns() && in.From < 16 },
		query: function + ` FROM pg_proc p JOIN pg_roles r ON r.oid = p.proowner AND NOT r.rolsuper WHERE p.oid >= 16384 AND EXISTS (
			SELECT FROM pg_depend d WHERE d.refclassid = 'pg_proc'::regclass AND d.refobjid = p.oid AND (d.classid IN ('pg_operator'::regclass, 'pg_type'::regclass)
				OR d.classid = 'pg_constraint'::regclass
				OR d.classid = 'pg_class'::regclass AND EXISTS (SELECT FROM pg_index i WHERE i.indexrelid = d.objid)
				OR d.classid = 'pg_attrdef'::regclass AND EXISTS (SELECT FROM pg_attrdef f JOIN pg_attribute a ON a.attrelid = f.adrelid AND a.attnum = f.adnum
					WHERE f.oid = d.objid AND a.attgenerated <> '')))`,
		message: "Functions of users in constraints, domains, generated columns, indexes, operators or types: on the way back PostgreSQL 15 would run them with the rights of a superuser, since it does not write as the tables' owners yet. " +
			"Have them owned by a superuser (ALTER FUNCTION … OWNER TO), drop what uses them, or do without a way back: rollbackWindow: \"0\"",
	},
	{
		name: "UnloggedTables", severity: agentapi.SeverityWarning,
		query:   relation + userRelations + `WHERE c.relkind = 'r' AND c.relpersistence = 'u'`,
		message: "Unlogged tables are empty on the new server: fill them again, or ALTER TABLE … SET LOGGED before",
	},
	{
		name: "UnloggedReferences", severity: agentapi.SeverityBlocker, applies: Input.follows,
		query: `SELECT format('%I.%I → %s', n.nspname, c.relname, k.confrelid::regclass)` + userRelations + `JOIN pg_constraint k ON k.conrelid = c.oid AND k.contype = 'f'
			JOIN pg_class p ON p.oid = k.confrelid AND p.relpersistence = 'p' WHERE c.relpersistence = 'u'`,
		message: "Unlogged tables refer to tables that are carried over, so that TRUNCATE of those would stop the replication: drop the foreign key, or ALTER TABLE … SET LOGGED",
	},
	{
		name: "MaterializedViews", severity: agentapi.SeverityWarning, applies: Input.follows,
		query:   relation + userRelations + `WHERE c.relkind = 'm' AND c.relispopulated`,
		message: "Materialized views are as of the time when the data was copied: REFRESH MATERIALIZED VIEW after the switchover",
	},
	{
		name: "NoGuard", severity: agentapi.SeverityWarning, applies: Input.follows,
		query:   `SELECT 'plpgsql' WHERE NOT EXISTS (SELECT FROM pg_language WHERE lanname = 'plpgsql')`,
		message: "The language plpgsql was dropped here, so changes of the schema cannot be refused during the upgrade: make none, since they are not carried over",
	},
	{
		name: "TransactionIDs", severity: agentapi.SeverityWarning, applies: func(in Input) bool { return in.Method == "" || in.Method == agentapi.MethodLogical },
		query: withTypes(stored) + columnNames + `WHERE t.typnamespace = 'pg_catalog'::regnamespace
			AND t.typname IN ('xid', 'xid8', 'cid', 'tid', 'pg_lsn', 'pg_snapshot', 'txid_snapshot')`,
		message: "Columns with positions or transaction IDs: after a logical copy new ones are smaller than those that are stored",
	},
	{
		name: "UnsuitableExtensions", severity: agentapi.SeverityBlocker, applies: Input.follows,
		query: `SELECT extname FROM pg_extension WHERE extname IN ('timescaledb', 'citus', 'pg_cron', 'pglogical', 'bdr', 'pg_partman_bgw')`,
		message: "These extensions keep data that logical replication does not carry, or run jobs, which would run on both servers: " +
			"drop the extension before, and make it anew afterwards",
	},
	{
		name: "PartitionMaintenance", severity: agentapi.SeverityWarning, applies: Input.follows,
		query:   `SELECT extname FROM pg_extension WHERE extname = 'pg_partman'`,
		message: "New partitions cannot be made during the upgrade, since changes of the schema are refused: make them in advance",
	},
}

// contrib are the extensions that come with PostgreSQL.
var contrib = []string{
	"adminpack", "amcheck", "autoinc", "bloom", "bool_plperl", "bool_plperlu", "btree_gin", "btree_gist", "citext", "cube", "dblink", "dict_int", "dict_xsyn",
	"earthdistance", "file_fdw", "fuzzystrmatch", "hstore", "hstore_plperl", "hstore_plperlu", "hstore_plpython3u", "insert_username", "intagg", "intarray",
	"isn", "jsonb_plperl", "jsonb_plperlu", "jsonb_plpython3u", "lo", "ltree", "ltree_plpython3u", "moddatetime", "old_snapshot", "pageinspect", "pg_buffercache",
	"pg_freespacemap", "pg_logicalinspect", "pg_prewarm", "pg_stat_statements", "pg_surgery", "pg_trgm", "pg_visibility", "pg_walinspect", "pgcrypto",
	"pgrowlocks", "pgstattuple", "plpgsql", "postgres_fdw", "refint", "seg", "sslinfo", "tablefunc", "tcn", "tsm_system_rows", "tsm_system_time", "unaccent",
	"uuid-ossp", "xml2",
}

// objectChecks are about what the new version may not take, however the data gets there.
var objectChecks = []check{
	{
		name: "RemovedExtensions", severity: agentapi.SeverityBlocker, applies: func(in Input) bool { return in.From < 17 && in.To >= 17 },
		query:   `SELECT extname FROM pg_extension WHERE extname IN ('adminpack', 'old_snapshot')`,
		message: "PostgreSQL 17 has these extensions no more: DROP EXTENSION",
	},
	{
		name: "Extensions", severity: agentapi.SeverityWarning,
		query:     `SELECT format('%I %s', extname, extversion) FROM pg_extension WHERE extname <> ALL ($1)`,
		arguments: func(Input) []any { return []any{contrib} },
		message:   "Extensions that do not come with PostgreSQL must be in the image of the new version; their newest update script is run",
	},
	{
		name: "Libraries", severity: agentapi.SeverityWarning,
		query: function + ` FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang AND l.lanname = 'c' WHERE p.oid >= 16384
			AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')`,
		message: "Functions in C that belong to no extension: their libraries must be in the image of the new version",
	},
	{
		name: "SystemViews", severity: agentapi.SeverityWarning,
		query: `SELECT DISTINCT format('%I.%I', n.nspname, c.relname)` + userRelations + `JOIN pg_rewrite w ON w.ev_class = c.oid
			JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = w.oid AND d.refclassid = 'pg_class'::regclass
			JOIN pg_class s ON s.oid = d.refobjid AND s.oid < 16384 AND s.relkind = 'v' AND s.relnamespace = 'pg_catalog'::regnamespace
			WHERE c.relkind IN ('v', 'm') AND NOT EXISTS (SELECT FROM pg_depend e WHERE e.classid = 'pg_class'::regclass AND e.objid = c.oid AND e.deptype = 'e')`,
		message: "Views on PostgreSQL's own views, whose columns change from version to version: if the new version refuses one the upgrade ends, so drop them, and make them anew afterwards",
	},
}

// convertChecks are about what pg_upgrade refuses.
var convertChecks = []check{
	{
		name: "RegTypes", severity: agentapi.SeverityBlocker, converting: true,
		query: withTypes(stored) + columnNames + `WHERE t.typnamespace = 'pg_catalog'::regnamespace
			AND t.typname IN ('regcollation', 'regconfig', 'regdictionary', 'regnamespace', 'regoper', 'regoperator', 'regproc', 'regprocedure')`,
		message: "pg_upgrade refuses columns of these types, since they keep numbers of objects that change: ALTER TABLE … ALTER COLUMN … TYPE text",
	},
	{
		name: "ACLItems", severity: agentapi.SeverityBlocker, converting: true, applies: func(in Input) bool { return in.From < 16 && in.To >= 16 },
		query:   withTypes(stored) + columnNames + `WHERE t.oid = 'aclitem'::regtype`,
		message: "pg_upgrade refuses columns of the type aclitem, which is another one since PostgreSQL 16: ALTER TABLE … ALTER COLUMN … TYPE text",
	},
	{
		name: "InheritedNotNull", severity: agentapi.SeverityBlocker, converting: true, applies: func(in Input) bool { return in.From < 18 && in.To >= 18 },
		query: `SELECT format('%I.%I.%I', n.nspname, c.relname, a.attname)` + userRelations + `JOIN pg_inherits i ON i.inhrelid = c.oid
			JOIN pg_attribute p ON p.attrelid = i.inhparent AND p.attnum > 0 AND p.attnotnull AND NOT p.attisdropped
			JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = p.attname AND NOT a.attnotnull`,
		message: "pg_upgrade refuses columns that may be null while the parent table's may not: ALTER TABLE … ALTER COLUMN … SET NOT NULL",
	},
}
