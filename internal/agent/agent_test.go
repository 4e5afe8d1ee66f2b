package agent

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// TestAgent is the life of a cluster of two instances. Its parts build on each other, since making a cluster takes seconds.
func TestAgent(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, 2)
	primary, standby := c.start("db-1"), c.start("db-2")
	primary.awaitReady(agentapi.RolePrimary)
	standby.awaitReady(agentapi.RoleStandby)

	for _, part := range []struct {
		name string
		test func(*testing.T, *testAgent, *testAgent)
	}{
		{"makes a system as promised", testNewSystem},
		{"lets in only whom it should", testAccess},
		{"answers probes and status", testAnswers},
		{"rotates the application's password", testPassword},
		{"keeps bad configuration out", testBadConfiguration},
		{"reports parameters that wait for a restart", testPendingRestart},
		{"reports parameters that a restart of the primary would lower", testLowering},
		{"starts a server again that crashed", testCrash},
		{"copies again what cannot follow", testWALRemoved},
		{"keeps a standby's settings as great as its primary's", testMinimums},
		{"takes new certificates", testCertificates},
		{"fences a standby that was promoted by hand", testPromotedByHand},
		{"drops the slots of members that are gone", testSlots},
		{"stops in the right order and comes back", testStop},
		{"ends as a whole when its postmaster is killed", testPostmasterKilled},
		{"follows the lease", testSwitchover},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.test(t, primary, standby) }) {
			break
		}
	}
}

func testNewSystem(t *testing.T, primary, standby *testAgent) {
	c := primary.cluster
	status := primary.status()
	require.Equal(t, "db-1", c.lease.holder())
	assert.Equal(t, status.SystemIdentifier, c.lease.annotation(naming.AnnotationSystemIdentifier))
	assert.Equal(t, status.SystemIdentifier, standby.status().SystemIdentifier)
	for setting, value := range map[string]string{
		"data_checksums": "on", "wal_level": "logical", "ssl": "on", "server_encoding": "UTF8", "wal_log_hints": "on",
		"password_encryption": "scram-sha-256", "hot_standby": "on", "log_destination": "jsonlog",
	} {
		assert.Equal(t, value, primary.ask("SHOW "+setting), setting)
	}
	assert.Equal(t, "app", primary.ask("SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'app'"))
	assert.Equal(t, "db-2", primary.ask("SELECT application_name FROM pg_stat_replication JOIN pg_stat_ssl USING (pid) WHERE ssl AND client_dn = '/CN=pgsteward_replication'"))
	assert.Equal(t, "true", primary.ask("SELECT active FROM pg_replication_slots WHERE slot_name = 'pgsteward_db_2'"))
	assert.Equal(t, naming.RolePrimary, c.labels.role("db-1-0"))
	assert.Equal(t, naming.RoleStandby, c.labels.role("db-2-0"))

	_, err := primary.app("app-secret", "require", "CREATE TABLE t (n int)")
	require.NoError(t, err)
	_, err = primary.app("app-secret", "require", "INSERT INTO t VALUES (42)")
	require.NoError(t, err)
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		answer, err := standby.app("app-secret", "require", "SELECT n FROM t")
		assert.NoError(t, err)
		assert.Equal(t, "42", answer)
	}, short, often)
}

func testAccess(t *testing.T, primary, _ *testAgent) {
	_, err := primary.app("app-secret", "disable", "SELECT 1")
	require.ErrorContains(t, err, "no pg_hba.conf entry", "without TLS")
	_, err = primary.app("wrong", "require", "SELECT 1")
	require.ErrorContains(t, err, "password authentication failed")
	_, err = primary.connect("host="+primary.address+" port="+portText(primary)+" user=pgsteward_replication dbname=postgres sslmode=require", "SELECT 1")
	require.ErrorContains(t, err, "client certificate")
	_, err = primary.connect("host="+primary.address+" port="+portText(primary)+" user=postgres password=super-secret dbname=postgres sslmode=require", "SELECT 1")
	require.NoError(t, err)
}

func testAnswers(t *testing.T, primary, standby *testAgent) {
	for _, a := range []*testAgent{primary, standby} {
		for _, path := range []string{"/livez", "/readyz", "/startupz"} {
			code, body := a.get(path)
			assert.Equal(t, 200, code, "%s %s: %s", a.name, path, body)
		}
	}
	_, body := primary.get("/metrics")
	assert.Contains(t, body, "pgsteward_instance_primary 1")
	assert.Regexp(t, `pgsteward_instance_lease_remaining_seconds [1-9]`, body)

	ctx, cancel := context.WithTimeout(context.Background(), short)
	defer cancel()
	status, err := primary.cluster.client(naming.OperatorUser).Status(ctx, standby.address)
	require.NoError(t, err)
	assert.Equal(t, "db-2", status.Instance)
	assert.Equal(t, "db-1", status.Upstream)
	assert.True(t, status.DataKnown && status.HasData && status.Streaming)
	assert.NotEmpty(t, status.ReplayLSN)
	require.NotNil(t, status.LagBytes)
	_, err = primary.cluster.client("db").Status(ctx, standby.address)
	require.NoError(t, err, "members may ask")
	_, err = primary.cluster.client(naming.ReplicationUser).Status(ctx, standby.address)
	require.Error(t, err, "PostgreSQL's certificates are not for the API")

	var record map[string]any
	for line := range strings.Lines(primary.log.String()) {
		require.NoError(t, json.Unmarshal([]byte(line), &record), line)
	}
	assert.False(t, strings.Contains(primary.log.String(), "app-secret"))
	assert.False(t, strings.Contains(primary.log.String(), "SCRAM-SHA-256$"))
}

func testPassword(t *testing.T, primary, _ *testAgent) {
	path := primary.paths.secret(naming.DirApp, naming.KeyPassword)
	before := primary.ask("SELECT rolpassword FROM pg_authid WHERE rolname = 'app'")
	require.NoError(t, os.WriteFile(path, []byte("new 'secret'"), 0o640))
	require.Eventually(t, func() bool {
		_, err := primary.app(`'new \'secret\''`, "require", "SELECT 1")
		return err == nil
	}, short, often)
	after := primary.ask("SELECT rolpassword FROM pg_authid WHERE rolname = 'app'")
	assert.NotEqual(t, before, after)
	_, err := primary.app("app-secret", "require", "SELECT 1")
	require.Error(t, err)
	// nothing is written while the password fits
	_ = primary.agent.admin.Setup(context.Background(), sqlWanted(primary, "new 'secret'"))
	assert.Equal(t, after, primary.ask("SELECT rolpassword FROM pg_authid WHERE rolname = 'app'"))
	require.NoError(t, os.WriteFile(path, []byte("app-secret"), 0o640))
}

func testBadConfiguration(t *testing.T, primary, _ *testAgent) {
	c := primary.cluster
	pid := primary.agent.server.Snapshot().PID
	isRefused := func(s agentapi.Status) bool {
		return s.Problem != nil && s.Problem.Reason == reasonConfiguration
	}
	refused := func(what string) func(agentapi.Status) bool {
		return func(s agentapi.Status) bool { return isRefused(s) && strings.Contains(s.Problem.Message, what) }
	}
	c.change(func(c *agentapi.Config) { c.Parameters = map[string]string{"work_mem": "8MB", "log_statement": "ddl"} })
	primary.answers("SHOW work_mem", "8MB")

	c.change(func(c *agentapi.Config) { c.Parameters = map[string]string{"work_mem": "many", "log_statement": "all"} })
	status := primary.await(short, "refusing work_mem", refused(`"work_mem"`))
	assert.True(t, status.Ready)
	assert.Equal(t, "ddl", primary.ask("SHOW log_statement"), "nothing of a refused configuration takes effect")

	c.change(func(c *agentapi.Config) { c.Parameters = map[string]string{"no_such_parameter": "1"} })
	primary.await(short, "refusing an unknown parameter", refused(`"no_such_parameter"`))
	c.change(func(c *agentapi.Config) { c.Parameters, c.HBA = nil, []string{"hostssl all all everywhere"} })
	primary.await(short, "refusing a bad pg_hba line", refused("pg_hba line 1"))
	c.change(func(c *agentapi.Config) { c.HBA = []string{"hostssl all all 10.0.0.0/8 ldap"} })
	primary.await(short, "refusing what only PostgreSQL sees", refused("pg_hba line"))
	c.change(func(c *agentapi.Config) { c.HBA = []string{"hostnossl app app all scram-sha-256"} })
	primary.await(short, "content again", func(s agentapi.Status) bool { return s.Problem == nil && s.Ready })
	require.Eventually(t, func() bool {
		_, err := primary.app("app-secret", "disable", "SELECT 1")
		return err == nil
	}, short, often)
	primary.await(short, "sure of it", func(s agentapi.Status) bool { return s.ConfigGeneration == c.config.Generation })
	c.change(func(c *agentapi.Config) {
		c.Parameters = map[string]string{"session_preload_libraries": "no_such_library"}
	})
	primary.await(short, "refusing what sessions cannot begin with", refused("no_such_library"))
	require.Eventually(t, func() bool {
		_, err := primary.app("app-secret", "disable", "SELECT 1")
		return err == nil
	}, short, often, "sessions begin again")
	c.change(func(c *agentapi.Config) { c.Parameters = map[string]string{"wal_level": "minimal"} })
	primary.await(short, "refusing what is ours", refused("wal_level"))
	c.change(func(c *agentapi.Config) { c.Parameters, c.HBA = nil, nil })
	primary.await(short, "content again", func(s agentapi.Status) bool { return s.Problem == nil })
	assert.Equal(t, pid, primary.agent.server.Snapshot().PID)
}

func testLowering(t *testing.T, primary, standby *testAgent) {
	c := primary.cluster
	set := func(value string) {
		c.change(func(c *agentapi.Config) { c.Parameters = map[string]string{"max_connections": value} })
	}
	set("90")
	pending := func(s agentapi.Status) bool { return len(s.PendingRestart) > 0 }
	assert.Equal(t, []string{"max_connections"}, primary.await(short, "waiting for a restart", pending).Lowering)
	set("110")
	raised := func(s agentapi.Status) bool { return len(s.PendingRestart) > 0 && len(s.Lowering) == 0 }
	primary.await(short, "waiting for a restart that lowers nothing", raised)
	standby.await(short, "waiting for a restart that lowers nothing", raised)
	c.change(func(c *agentapi.Config) { c.Parameters = nil })
	primary.await(short, "content again", func(s agentapi.Status) bool { return len(s.PendingRestart) == 0 })
	standby.await(short, "content again", func(s agentapi.Status) bool { return len(s.PendingRestart) == 0 })
}

func testPendingRestart(t *testing.T, primary, standby *testAgent) {
	c := primary.cluster
	// PostgreSQL accepts this value when it reads it, and fails when it starts with it.
	c.change(func(c *agentapi.Config) {
		c.Parameters = map[string]string{"shared_preload_libraries": "no_such_library"}
	})
	pending := func(s agentapi.Status) bool { return len(s.PendingRestart) == 1 }
	assert.Equal(t, []string{"shared_preload_libraries"}, primary.await(short, "waiting for a restart", pending).PendingRestart)
	standby.await(short, "waiting for a restart", pending)

	standby.crash()
	status := standby.await(long, "running with the configuration before", func(s agentapi.Status) bool {
		return s.Ready && s.Streaming && s.Problem != nil && s.Problem.Reason == reasonConfiguration
	})
	assert.Contains(t, status.Problem.Message, "no_such_library")
	assert.Empty(t, status.PendingRestart)
	c.change(func(c *agentapi.Config) { c.Parameters = nil })
	primary.await(short, "content again", func(s agentapi.Status) bool { return s.Problem == nil && len(s.PendingRestart) == 0 })
	standby.await(short, "content again", func(s agentapi.Status) bool { return s.Problem == nil })
}

func testCrash(t *testing.T, primary, standby *testAgent) {
	if primary.cluster.major < 17 {
		primary.ask("ALTER SYSTEM SET shared_preload_libraries = 'no_such_library'")
	}
	began := time.Now()
	primary.crash()
	primary.await(long, "ready again", func(s agentapi.Status) bool {
		return s.Ready && primary.agent.server.Snapshot().Started.After(began)
	})
	assert.Equal(t, "db-1", primary.cluster.lease.holder())
	standby.awaitReady(agentapi.RoleStandby)
	_, body := primary.get("/metrics")
	assert.Contains(t, body, "pgsteward_instance_restarts_total 1")
}

// testPostmasterKilled kills the postmaster alone, while a backend works that would not notice for long.
func testPostmasterKilled(t *testing.T, primary, standby *testAgent) {
	go func() {
		_, _ = primary.query("postgres", "SELECT count(*) FROM generate_series(1, 1000000000000) AS busy")
	}()
	backend := ""
	require.Eventually(t, func() bool {
		var err error
		backend, err = primary.query("postgres", "SELECT pid FROM pg_stat_activity WHERE query LIKE '%AS busy' AND state = 'active' AND pid <> pg_backend_pid()")
		return err == nil && backend != ""
	}, short, often)
	server := primary.agent.server
	done, began := server.Done(), time.Now()
	require.NoError(t, syscall.Kill(server.Snapshot().PID, syscall.SIGKILL))
	<-done
	if content, err := os.ReadFile("/proc/" + backend + "/stat"); err == nil {
		assert.Contains(t, string(content), ") Z ", "the backend has ended with it")
	}
	primary.await(long, "ready again", func(s agentapi.Status) bool { return s.Ready && server.Snapshot().Started.After(began) })
	assert.NotContains(t, primary.log.String(), "pre-existing shared memory block")
	standby.awaitReady(agentapi.RoleStandby)
}

func testWALRemoved(t *testing.T, primary, standby *testAgent) {
	c := primary.cluster
	standby.stop()
	c.change(func(c *agentapi.Config) {
		c.Parameters = map[string]string{"wal_keep_size": "0", "min_wal_size": "32MB", "max_wal_size": "32MB"}
	})
	primary.answers("SHOW wal_keep_size", "0")
	needed := primary.ask("SELECT pg_walfile_name($1::text::pg_lsn)", standby.status().LSN)
	require.Eventually(t, func() bool { // the agent makes the slot anew, and it may come in between
		for _, statement := range []string{
			"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots",
			"SELECT pg_logical_emit_message(false, 'x', 'x')", "SELECT pg_switch_wal()", "CHECKPOINT",
		} {
			if _, err := primary.query("postgres", statement); err != nil {
				return false
			}
		}
		oldest, err := primary.query("postgres", "SELECT min(name) FROM pg_ls_waldir() WHERE name ~ '^[0-9A-F]{24}$'")
		return err == nil && oldest > needed
	}, long, often)
	c.change(func(c *agentapi.Config) { c.Parameters = nil })
	c.start("db-2")
	// Until its slot was made anew it is refused, and may seem to stream for moments.
	require.Eventually(t, func() bool { return strings.Contains(standby.log.String(), "Copying the data again") }, long, often)
	standby.awaitReady(agentapi.RoleStandby)
	assert.True(t, strings.Contains(standby.log.String(), "has already been removed"))
}

func testMinimums(t *testing.T, primary, standby *testAgent) {
	c := primary.cluster
	c.change(func(c *agentapi.Config) { c.Parameters = map[string]string{"max_connections": "50"} })
	standby.stop()
	c.start("db-2")
	standby.awaitReady(agentapi.RoleStandby)
	assert.Equal(t, "100", standby.ask("SHOW max_connections"), "with fewer than its primary it would not start")

	c.change(func(c *agentapi.Config) { c.Parameters = map[string]string{"max_connections": "150"} })
	restarted(t, primary)
	require.Equal(t, "150", primary.ask("SHOW max_connections"))
	standby.answers("SHOW max_connections", "150")
	standby.awaitReady(agentapi.RoleStandby)
	c.change(func(c *agentapi.Config) { c.Parameters = nil })
}

func testCertificates(t *testing.T, primary, _ *testAgent) {
	before, err := primary.serial()
	require.NoError(t, err)
	pid := primary.agent.server.Snapshot().PID
	primary.cluster.writeSecrets(primary)
	require.Eventually(t, func() bool {
		now, err := primary.serial()
		return err == nil && now != before
	}, short, often)
	assert.Equal(t, pid, primary.agent.server.Snapshot().PID)
}

func testPromotedByHand(t *testing.T, primary, standby *testAgent) {
	_, err := standby.query("postgres", "SELECT pg_promote()")
	t.Logf("promoting: %v", err) // nor need it live to answer that
	_, err = standby.query("app", "CREATE TABLE astray (n int)")
	t.Logf("writing astray: %v", err) // it may have been stopped already
	standby.await(short, "stopped", func(s agentapi.Status) bool { return !s.Ready })
	standby.await(long, "copied again and streaming", func(s agentapi.Status) bool { return s.Ready && s.Streaming && s.Timeline == 1 })
	answer, err := standby.query("app", "SELECT count(*)::text FROM pg_class WHERE relname = 'astray'")
	require.NoError(t, err)
	assert.Equal(t, "0", answer)
	assert.True(t, primary.status().Ready)
}

func testSlots(t *testing.T, primary, _ *testAgent) {
	slots := "SELECT string_agg(slot_name, ',' ORDER BY slot_name) FROM pg_replication_slots"
	primary.ask("SELECT pg_create_physical_replication_slot('users_own')")
	primary.cluster.change(func(c *agentapi.Config) {
		c.Members = append(c.Members, agentapi.Member{Name: "db-9", Host: "127.0.0.99"})
	})
	primary.answers(slots, "pgsteward_db_2,pgsteward_db_9,users_own")
	primary.cluster.change(func(c *agentapi.Config) { c.Members = c.Members[:2] })
	primary.answers(slots, "pgsteward_db_2,users_own")
	primary.ask("SELECT pg_drop_replication_slot('users_own')")
}

// restarted restarts PostgreSQL in the Pod, as the operator asks for it.
func restarted(t *testing.T, a *testAgent) {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), short)
	defer cancel()
	require.NoError(t, a.cluster.client(naming.OperatorUser).Restart(ctx, a.address, agentapi.RestartRequest{Why: "a test"}))
	a.await(long, "restarted", func(s agentapi.Status) bool {
		return s.Ready && s.ServerStarted != nil && s.ServerStarted.After(began)
	})
}

// switchover asks for it as the operator does, and says how it went.
func (a *testAgent) switchover(target string) error {
	ctx, cancel := context.WithTimeout(context.Background(), short)
	defer cancel()
	return a.cluster.client(naming.OperatorUser).Switchover(ctx, a.address, agentapi.SwitchoverRequest{Target: target})
}

func testStop(t *testing.T, primary, standby *testAgent) {
	c := primary.cluster
	_, err := primary.app("app-secret", "require", "INSERT INTO t VALUES (43)")
	require.NoError(t, err)
	began := time.Now()
	primary.stop()
	assert.Equal(t, "db-2", c.lease.holder(), "it hands over to the standby")
	assert.True(t, strings.Contains(primary.log.String(), "database system is shut down"))
	_, err = os.Stat(primary.dataDir() + "/postmaster.pid")
	require.ErrorIs(t, err, os.ErrNotExist)
	standby.awaitReady(agentapi.RolePrimary)
	t.Logf("the standby is primary %s after the Pod of the primary began to stop", time.Since(began))
	count, err := standby.query("app", "SELECT count(*)::text FROM t")
	require.NoError(t, err)
	assert.Equal(t, "2", count, "it has received everything")

	began = time.Now()
	mark := len(primary.log.String())
	primary = c.start("db-1")
	primary.awaitReady(agentapi.RoleStandby)
	t.Logf("a standby %s after its Pod has come back", time.Since(began))
	assert.NotContains(t, primary.log.String()[mark:], "ewind", "what was handed over has not diverged")

	require.NoError(t, standby.switchover("db-1"))
	primary.awaitReady(agentapi.RolePrimary)
	standby.awaitReady(agentapi.RoleStandby)
}

func testSwitchover(t *testing.T, primary, standby *testAgent) {
	c := primary.cluster
	began := time.Now()
	c.lease.give("db-2")
	standby.await(long, "the primary", func(s agentapi.Status) bool { return s.Ready && s.Role == agentapi.RolePrimary })
	t.Logf("promoted after %s", time.Since(began))
	assert.Equal(t, naming.RolePrimary, c.labels.role("db-2-0"))
	_, err := standby.app("app-secret", "require", "INSERT INTO t VALUES (44)")
	require.NoError(t, err)
	status := primary.await(long, "a standby", func(s agentapi.Status) bool {
		return s.Ready && s.Role == agentapi.RoleStandby && s.Streaming && s.Timeline == standby.status().Timeline
	})
	assert.Equal(t, "db-2", status.Upstream)
	require.Eventually(t, func() bool { return c.labels.role("db-1-0") == naming.RoleStandby }, short, often)
}

// serial is the serial number of the certificate that PostgreSQL shows.
func (a *testAgent) serial() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), short)
	defer cancel()
	connection, err := pgx.Connect(ctx, "host="+a.address+" port="+portText(a)+" user=app password=app-secret dbname=app sslmode=require")
	if err != nil {
		return "", err
	}
	defer func() { _ = connection.Close(ctx) }()
	secure, ok := connection.PgConn().Conn().(*tls.Conn)
	if !ok {
		return "", errors.New("no TLS")
	}
	return secure.ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
}

// crash kills the server's first process as the kernel would.
func (a *testAgent) crash() {
	_ = syscall.Kill(a.agent.server.Snapshot().PID, syscall.SIGKILL)
}
