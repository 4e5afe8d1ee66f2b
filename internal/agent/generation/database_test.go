package generation

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/testing/servers"
)

// splitStatements splits statements that must not be in one transaction, where each begins a line.
func splitStatements(text string) []string {
	var found []string
	for statement := range strings.SplitSeq(text, ";\n\t") {
		if strings.TrimSpace(statement) != "" {
			found = append(found, statement)
		}
	}
	return found
}

func eachMajor(t *testing.T, test func(t *testing.T, server *servers.Server)) {
	for _, major := range []int{15, 17, 18} {
		t.Run(string(rune('0'+major/10))+string(rune('0'+major%10)), func(t *testing.T) {
			servers.Bin(t, major)
			test(t, servers.NewServer(t, major))
		})
	}
}

func text(t *testing.T, c *pgx.Conn, query string) (found string) {
	t.Helper()
	require.NoError(t, c.QueryRow(t.Context(), query).Scan(&found), query)
	return found
}

func TestDDLGuard(t *testing.T) {
	eachMajor(t, func(t *testing.T, server *servers.Server) {
		server.Exec("postgres", `CREATE ROLE app LOGIN; CREATE ROLE other; CREATE TABLE t (a int PRIMARY KEY, b int); CREATE VIEW v AS SELECT 1 AS one;
			CREATE MATERIALIZED VIEW m AS SELECT 1 AS one; CREATE UNIQUE INDEX m_one ON m (one); CREATE SEQUENCE s;
			ALTER TABLE t OWNER TO app; ALTER VIEW v OWNER TO app; ALTER MATERIALIZED VIEW m OWNER TO app; ALTER SEQUENCE s OWNER TO app; GRANT ALL ON SCHEMA public TO app`)
		ours := server.Connect("postgres")
		require.NoError(t, InstallDDLGuard(t.Context(), ours))
		require.NoError(t, InstallDDLGuard(t.Context(), ours), "again")
		client := server.Connect("postgres")
		_, err := client.Exec(t.Context(), "SET SESSION AUTHORIZATION app")
		require.NoError(t, err)

		for _, statement := range []string{
			"CREATE TABLE n (a int)", "CREATE TABLE n AS SELECT 1 AS a", "SELECT 1 AS a INTO n", "ALTER TABLE t ADD c int", "ALTER TABLE t ALTER b TYPE bigint", "DROP TABLE t",
			"ALTER TABLE t DROP COLUMN b", "CREATE INDEX ON t (b)", "CREATE INDEX CONCURRENTLY i ON t (b)", "DROP INDEX CONCURRENTLY t_pkey", "CREATE OR REPLACE VIEW v AS SELECT 2 AS one",
			"DROP VIEW v", "CREATE SCHEMA AUTHORIZATION app", "GRANT SELECT ON t TO other", "COMMENT ON TABLE t IS 'x'", "CREATE TYPE mood AS ENUM ('sad')",
			"ALTER SEQUENCE s RESTART WITH 5", "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'", "CREATE TABLE t2 (LIKE t)", "SET pgsteward.allow_ddl = on; DROP TABLE t",
		} {
			_, err := client.Exec(t.Context(), statement)
			var refused *pgconn.PgError
			if assert.ErrorAs(t, err, &refused, statement) {
				assert.Contains(t, refused.Message, "is refused during the major upgrade", statement)
				assert.Contains(t, refused.Hint, "spec.version")
			}
		}
		for _, statement := range []string{
			"CREATE TEMP TABLE mine (a serial PRIMARY KEY, b int)", "CREATE INDEX ON mine (b)", "ALTER TABLE mine ADD c text", "ALTER TABLE mine ALTER b TYPE bigint", "COMMENT ON TABLE mine IS 'x'",
			"CREATE TEMP VIEW mv AS SELECT * FROM mine", "DROP VIEW mv", "ALTER TABLE mine DROP COLUMN c", "DROP TABLE mine", "CREATE TEMP TABLE mine AS SELECT 1 AS a",
			"BEGIN; CREATE TEMP TABLE short (a int) ON COMMIT DROP; COMMIT", "CREATE TEMP SEQUENCE ts; DROP SEQUENCE ts",
			"INSERT INTO t VALUES (1, 2)", "TRUNCATE t", "REFRESH MATERIALIZED VIEW m", "REFRESH MATERIALIZED VIEW CONCURRENTLY m", "REINDEX TABLE t", "REINDEX INDEX CONCURRENTLY t_pkey",
			"ANALYZE t", "VACUUM t", "DROP TABLE IF EXISTS nothing", "SELECT nextval('s')",
		} {
			_, err := client.Exec(t.Context(), statement)
			assert.NoError(t, err, statement)
		}
		assert.Equal(t, "1", text(t, client, "SELECT count(*)::text FROM pg_index WHERE indrelid = 't'::regclass"), "nothing half-made is left")

		_, err = ours.Exec(t.Context(), "SET pgsteward.allow_ddl = on; CREATE TABLE allowed (a int)")
		require.NoError(t, err)
		require.NoError(t, DropDDLGuard(t.Context(), ours))
		require.NoError(t, DropDDLGuard(t.Context(), ours), "again")
		_, err = client.Exec(t.Context(), "CREATE TABLE n (a int)")
		require.NoError(t, err)
	})
}

func TestIdentities(t *testing.T) {
	eachMajor(t, func(t *testing.T, server *servers.Server) {
		server.Exec("postgres", `CREATE TABLE keyed (a int PRIMARY KEY); CREATE TABLE "No Key" (a int); CREATE TABLE nothing (a int PRIMARY KEY); ALTER TABLE nothing REPLICA IDENTITY NOTHING;
			CREATE TABLE named (a int NOT NULL); CREATE UNIQUE INDEX named_a ON named (a); ALTER TABLE named REPLICA IDENTITY USING INDEX named_a;
			CREATE TABLE gone (a int NOT NULL); CREATE UNIQUE INDEX gone_a ON gone (a); ALTER TABLE gone REPLICA IDENTITY USING INDEX gone_a; DROP INDEX gone_a;
			CREATE TABLE full_already (a int); ALTER TABLE full_already REPLICA IDENTITY FULL; CREATE UNLOGGED TABLE scratch (a int);
			CREATE TABLE parts (a int) PARTITION BY LIST (a); CREATE TABLE part PARTITION OF parts DEFAULT; CREATE TABLE later (a int)`)
		const identities = `SELECT string_agg(relname || ':' || relreplident::text, ' ' ORDER BY relname) FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace`
		c := server.Connect("postgres")
		before := text(t, c, identities)
		require.NoError(t, FixIdentities(t.Context(), c))
		require.NoError(t, FixIdentities(t.Context(), c), "again")
		assert.Equal(t, "No Key:f full_already:f gone:f keyed:d later:f named:i nothing:f part:f scratch:d", text(t, c, identities))

		server.Exec("postgres", "ALTER TABLE later REPLICA IDENTITY NOTHING; DROP TABLE part") // by somebody else
		require.NoError(t, RestoreIdentities(t.Context(), c))
		require.NoError(t, RestoreIdentities(t.Context(), c), "again")
		after := text(t, c, identities)
		assert.Contains(t, after, "later:n", "what was changed since is left")
		assert.Contains(t, after, "gone:f", "its index is gone, so that nothing better is known")
		assert.Contains(t, after, "No Key:d")
		assert.Contains(t, after, "nothing:n")
		assert.Contains(t, before, "nothing:n")
		assert.Equal(t, "0", text(t, c, "SELECT count(*)::text FROM pgsteward_upgrade.replica_identities"))
	})
}

func TestFixIdentities_busy(t *testing.T) {
	server := servers.NewServer(t, servers.Newest(t, 17))
	server.Exec("postgres", "CREATE TABLE busy (a int)")
	holder := server.Connect("postgres")
	_, err := holder.Exec(t.Context(), "BEGIN; SELECT * FROM busy")
	require.NoError(t, err)
	done := make(chan error, 1)
	c := server.Connect("postgres")
	go func() { done <- FixIdentities(context.WithoutCancel(t.Context()), c) }()
	other := server.Connect("postgres")
	require.Eventually(t, func() bool {
		var waits bool
		err := other.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)").Scan(&waits)
		return err == nil && waits
	}, long, often/4)
	began := time.Now()
	_, err = other.Exec(t.Context(), "INSERT INTO busy VALUES (1)")
	require.NoError(t, err)
	assert.Less(t, time.Since(began), 20*time.Second, "clients do not wait for long behind it")
	_, err = holder.Exec(t.Context(), "COMMIT")
	require.NoError(t, err)
	require.NoError(t, <-done)
}

func TestCopySequences(t *testing.T) {
	eachMajor(t, func(t *testing.T, server *servers.Server) {
		const definitions = `CREATE SEQUENCE fresh START 7; CREATE SEQUENCE used; CREATE SEQUENCE "Set Back"; CREATE SEQUENCE down INCREMENT -1 MAXVALUE 10;
			CREATE TABLE t (a bigint GENERATED ALWAYS AS IDENTITY, b serial); CREATE SCHEMA "S"; CREATE SEQUENCE "S".small AS smallint CYCLE`
		for _, database := range []string{"one", "other"} {
			server.Exec("postgres", "CREATE DATABASE "+database)
			server.Exec(database, definitions)
		}
		server.Exec("one", `SELECT nextval('used') FROM generate_series(1, 100); SELECT setval('"Set Back"', 50, false); SELECT nextval('down'), nextval('down');
			INSERT INTO t DEFAULT VALUES; INSERT INTO t DEFAULT VALUES; CREATE TEMP SEQUENCE mine; SELECT nextval('"S".small')`)
		server.Exec("other", "SELECT setval('used', 5000)")
		one, other := server.Connect("one"), server.Connect("other")
		require.NoError(t, CopySequences(t.Context(), one, other))
		for name, next := range map[string]string{"fresh": "7", "used": "101", `"Set Back"`: "50", "down": "8", "t_a_seq": "3", "t_b_seq": "3", `"S".small`: "2"} {
			assert.Equal(t, next, text(t, other, "SELECT nextval('"+name+"')::text"), name)
		}
		server.Exec("one", "CREATE SEQUENCE only_here")
		require.ErrorContains(t, CopySequences(t.Context(), one, other), "only_here")
	})
}

func TestDifferences(t *testing.T) {
	server := servers.NewServer(t, servers.Newest(t, 17))
	for _, database := range []string{"one", "other"} {
		server.Exec("postgres", "CREATE DATABASE "+database)
		server.Exec(database, "CREATE EXTENSION hstore; CREATE TABLE same (a int PRIMARY KEY, h hstore); CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'; CREATE TYPE mood AS ENUM ('sad')")
	}
	one, other := server.Connect("one"), server.Connect("other")
	found, err := Differences(t.Context(), one, other)
	require.NoError(t, err)
	require.Empty(t, found)
	server.Exec("one", `ALTER TABLE same ADD b text; CREATE TABLE "New" (a int); CREATE INDEX extra ON same (b); CREATE EXTENSION citext`)
	server.Exec("other", `CREATE TABLE theirs (a int)`)
	found, err = Differences(t.Context(), one, other)
	require.NoError(t, err)
	assert.Equal(t, []string{`column public."New".a pg_catalog.int4`, "column public.same.b pg_catalog.text", "extension citext", "index public.extra", `table public."New"`}, found)
}

func TestGlobalDifferences(t *testing.T) {
	major := servers.Newest(t, 17)
	from, to := servers.NewServer(t, major), servers.NewServer(t, major)
	from.Exec("postgres", `CREATE ROLE "New One" LOGIN PASSWORD 'secret' CONNECTION LIMIT 5; CREATE ROLE parent; GRANT parent TO "New One"; CREATE ROLE kept CREATEDB; ALTER ROLE postgres PASSWORD 'p'`)
	to.Exec("postgres", "CREATE ROLE kept; CREATE ROLE only_there")
	one, other := from.Connect("postgres"), to.Connect("postgres")
	found, err := GlobalDifferences(t.Context(), one, other)
	require.NoError(t, err)
	assert.Empty(t, found, "roles are brought over")
	const verifier = "SELECT string_agg(rolpassword, ' ' ORDER BY rolname) FROM pg_authid"
	assert.Equal(t, text(t, one, verifier), text(t, other, verifier))
	assert.Equal(t, "true true", text(t, other, `SELECT pg_has_role('New One', 'parent', 'MEMBER') || ' ' || rolcreatedb FROM pg_roles WHERE rolname = 'kept'`))
	from.Exec("postgres", "CREATE DATABASE late")
	found, err = GlobalDifferences(t.Context(), one, other)
	require.NoError(t, err)
	assert.Equal(t, []string{"database late"}, found)
}
