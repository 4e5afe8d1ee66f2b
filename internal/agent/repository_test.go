package agent

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agent/backrest"
	"github.com/pgsteward/pgsteward/internal/agent/repository"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// testHost is a repository host of a test's cluster.
type testHost struct {
	cluster *testCluster
	address string
	dir     string
	log     syncBuffer
}

// startRepositoryHost gives the cluster a repository host, and starts it.
func startRepositoryHost(t *testing.T, c *testCluster) *testHost {
	t.Helper()
	h := &testHost{cluster: c, address: "127.0.0.99", dir: filepath.Join(c.dir, "host")}
	c.ports.Backup = freePort(t)
	for _, folder := range []string{"data", "run"} {
		require.NoError(t, os.MkdirAll(filepath.Join(h.dir, folder), 0o755))
		own(t, filepath.Join(h.dir, folder))
	}
	self := &testAgent{cluster: c, address: h.address, paths: Paths{Secrets: filepath.Join(h.dir, "secrets")}}
	c.writeSecrets(self)
	c.change(func(config *agentapi.Config) {
		config.Backup = &agentapi.BackupConfig{
			Repository: agentapi.Repository{Kind: agentapi.RepositoryHost, Path: "repository", Host: h.address}, RetentionDays: 30,
		}
	})
	host, err := repository.New(repository.Options{
		Name: "db-repository", PodUID: "host-pod", Version: "test",
		Data: filepath.Join(h.dir, "data"), Run: filepath.Join(h.dir, "run"), Secrets: self.paths.Secrets,
		Config:        c.agents["db-1"].paths.Config, // it is told what the instances are
		ListenAddress: h.address, AgentPort: c.ports.Agent, HealthPort: c.ports.Health, BackupPort: c.ports.Backup, PostgresPort: c.ports.Postgres,
		Credential: serverUser(), Output: &h.log,
		HostOf: func(instance string, host backrest.Host) backrest.Host {
			other := c.agents[instance]
			host.Address, host.Data, host.Socket = other.address, other.dataDir(), other.paths.Run
			host.Config = filepath.Join(other.paths.backupWork(), backrest.HostConfiguration+".conf")
			return host
		},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- host.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			assert.NoError(t, err)
		case <-time.After(long):
			t.Error("the repository host does not stop")
		}
		if t.Failed() {
			t.Logf("log of the repository host:\n%s", tailOf(h.log.String(), 200))
		}
	})
	return h
}

// config is where the host's configuration of pgBackRest is.
func (h *testHost) config() string {
	return filepath.Join(h.dir, "run", "backrest", backrest.HostConfiguration+".conf")
}

// await waits until the host says what is wanted.
func (h *testHost) await(what string, wanted func(agentapi.Status) bool) agentapi.Status {
	h.cluster.t.Helper()
	client := h.cluster.client(naming.OperatorUser)
	var status agentapi.Status
	require.EventuallyWithT(h.cluster.t, func(t *assert.CollectT) {
		var err error
		status, err = client.Status(h.cluster.t.Context(), h.address)
		require.NoError(t, err)
		text, _ := json.Marshal(status)
		require.True(t, wanted(status), "%s", text)
	}, backupBound, often, what)
	return status
}

// startWithHost starts an instance that knows where the host's configuration is.
func startWithHost(c *testCluster, h *testHost, name string) *testAgent {
	a := startForBackups(c, name)
	a.agent.options.HostConfig = h.config()
	return a
}

// TestRepositoryHost: a cluster archives to a host that has the repository, which makes backups of the standby and gives them to a cluster
// that is recovered.
func TestRepositoryHost(t *testing.T) {
	t.Parallel()
	needBackrest(t)
	c := newTestCluster(t, 2)
	h := startRepositoryHost(t, c)
	primary, standby := startWithHost(c, h, "db-1"), startWithHost(c, h, "db-2")
	system := primary.awaitReady(agentapi.RolePrimary).SystemIdentifier
	standby.awaitReady(agentapi.RoleStandby)
	c.change(func(config *agentapi.Config) { config.SystemIdentifier = system })
	status := h.await("it has a stanza", func(s agentapi.Status) bool { return s.Repository != nil && s.Repository.Ready })
	require.Equal(t, backup.Stanza(c.major, system), status.Repository.Stanza)
	_, err := primary.query("postgres", "CREATE TABLE t AS SELECT 1 AS n")
	require.NoError(t, err)
	primary.archived()

	client := c.client(naming.OperatorUser)
	request := agentapi.BackupRequest{ID: "one", Name: "first", Type: backup.Full, Primary: "db-1", Standby: "db-2"}
	require.NoError(t, client.Backup(t.Context(), h.address, request))
	status = h.await("it has made the backup", func(s agentapi.Status) bool { return s.Backup != nil && s.Backup.Ended != nil })
	require.Empty(t, status.Backup.Error)
	require.Equal(t, "db-2", status.Backup.Instance)
	require.Equal(t, "first", status.Backup.Result.Name)
	require.Len(t, status.Repository.Backups, 1)
	_, err = primary.query("postgres", "INSERT INTO t VALUES (2)")
	require.NoError(t, err)
	primary.archived()

	r := newTestCluster(t, 1)
	r.ports.Backup = c.ports.Backup
	cert, key := c.ca.issue(t, "db", net.ParseIP("127.0.0.2"))
	for name, content := range map[string]string{naming.KeyTLSCert: cert, naming.KeyTLSKey: key, naming.KeyCACert: c.ca.pem} {
		path := r.agents["db-1"].paths.secret(naming.DirRecovery, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o640))
		if credential := serverUser(); credential != nil {
			require.NoError(t, os.Chown(path, 0, int(credential.Gid)))
		}
	}
	r.change(func(config *agentapi.Config) {
		config.Version = strconv.Itoa(c.major)
		config.Recovery = &agentapi.Recovery{Repository: agentapi.Repository{Kind: agentapi.RepositoryHost, Host: h.address}}
	})
	recovered := r.start("db-1")
	recovered.agent.options.HostConfig = h.config()
	recovered.await(backupBound, "a primary made from a backup", func(s agentapi.Status) bool { return s.Ready && s.Role == agentapi.RolePrimary })
	require.Equal(t, "3", recovered.ask("SELECT sum(n)::text FROM t"))

	came := c.verify(t, h.config())
	require.Empty(t, came.Error)
	require.Equal(t, "first", came.Name)
}
