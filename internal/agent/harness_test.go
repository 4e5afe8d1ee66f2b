package agent

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agent/lease"
	"github.com/pgsteward/pgsteward/internal/agent/sql"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// long bounds what takes PostgreSQL a while on a slow machine, short what takes it a moment.
const (
	long  = 60 * time.Second
	short = 20 * time.Second
	often = 100 * time.Millisecond
)

// testCluster is a cluster of agents in this process, each on a loopback address of its own, with real PostgreSQL.
type testCluster struct {
	t      *testing.T
	dir    string
	major  int
	ports  Ports
	lease  *fakeLease
	ca     *testCA
	labels *fakeLabeler

	mu     sync.Mutex
	config agentapi.Config
	agents map[string]*testAgent
}

type testAgent struct {
	// rewind is the pg_rewind of the next start: nil for PostgreSQL's, empty for none.
	rewind *string
	// cutOff says whether it starts without reaching the API server.
	cutOff bool
	// stopBound is Options.StopBound of the next start; zero: some seconds.
	stopBound time.Duration
	// checkpointBound is Options.CheckpointBound of the next start.
	checkpointBound time.Duration

	cluster *testCluster
	name    string
	address string
	pod     string
	paths   Paths
	agent   *Agent
	log     *syncBuffer
	access  *fakeAccess
	cancel  context.CancelFunc
	done    chan error
}

// newTestCluster is a cluster whose first instance may make a new system.
func newTestCluster(t *testing.T, members int) *testCluster {
	t.Helper()
	major := installedMajor(t)
	dir, err := os.MkdirTemp("/tmp", "pgs") // short: it is part of a socket's path
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	c := &testCluster{
		t: t, dir: dir, major: major, lease: newFakeLease(), labels: &fakeLabeler{roles: map[string]string{}},
		ca: newTestCA(t), agents: map[string]*testAgent{},
		ports: Ports{Postgres: freePort(t), Agent: freePort(t), Health: freePort(t)},
	}
	c.config = agentapi.Config{
		Cluster: "db", Namespace: "test", Generation: 1, Version: strconv.Itoa(major), Bootstrap: "db-1",
		Database: "app", Owner: "app", Lease: agentapi.Lease{Name: "db-primary", DurationSeconds: 8, RenewSeconds: 2},
	}
	for i := range members {
		name := naming.Instance("db", i+1)
		a := &testAgent{cluster: c, name: name, address: fmt.Sprintf("127.0.0.%d", i+2)}
		a.paths = Paths{
			Data: filepath.Join(dir, name, "data"), Run: filepath.Join(dir, name, "run"),
			Config: filepath.Join(dir, name, "config.json"), Secrets: filepath.Join(dir, name, "secrets"),
		}
		for _, path := range []string{a.paths.Data, a.paths.Run} {
			require.NoError(t, os.MkdirAll(path, 0o755))
			own(t, path)
		}
		c.agents[name] = a
		c.config.Members = append(c.config.Members, agentapi.Member{Name: name, Host: a.address})
		c.writeSecrets(a)
	}
	c.writeConfig()
	return c
}

// installedMajor is the major of some PostgreSQL on this machine.
func installedMajor(t *testing.T) int {
	t.Helper()
	for major := 18; major >= 15; major-- {
		if _, err := os.Stat(fmt.Sprintf("/usr/lib/postgresql/%d/bin/postgres", major)); err == nil {
			return major
		}
	}
	t.Skip("no PostgreSQL in /usr/lib/postgresql: apt-get install postgresql")
	return 0
}

// serverUser is who PostgreSQL runs as, since it refuses to run as root.
func serverUser() *syscall.Credential {
	if os.Getuid() != 0 {
		return nil
	}
	if found, err := user.Lookup("postgres"); err == nil {
		uid, _ := strconv.Atoi(found.Uid)
		gid, _ := strconv.Atoi(found.Gid)
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	return &syscall.Credential{Uid: 65534, Gid: 65534}
}

func own(t *testing.T, path string) {
	t.Helper()
	if credential := serverUser(); credential != nil {
		require.NoError(t, os.Chown(path, int(credential.Uid), int(credential.Gid)))
	}
}

const (
	// firstPort and countPorts are the ports that tests listen on: below those that the kernel gives to connections, and to who asks for any.
	firstPort  = 20000
	countPorts = 12000
)

// portsGiven is how many ports were given: none is given twice, since who got one may not listen yet.
var portsGiven atomic.Int64

func freePort(t *testing.T) int {
	t.Helper()
	for range countPorts {
		port := firstPort + (os.Getpid()*101+int(portsGiven.Add(1)))%countPorts
		if listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			require.NoError(t, listener.Close())
			return port
		}
	}
	require.Fail(t, "no port is free")
	return 0
}

func (c *testCluster) writeConfig() {
	content, err := json.Marshal(c.config)
	require.NoError(c.t, err)
	for _, a := range c.agents {
		require.NoError(c.t, os.WriteFile(a.paths.Config+".new", content, 0o644))
		require.NoError(c.t, os.Rename(a.paths.Config+".new", a.paths.Config))
	}
}

// change changes the configuration of all agents.
func (c *testCluster) change(how func(*agentapi.Config)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	how(&c.config)
	c.config.Generation++
	c.writeConfig()
}

func (c *testCluster) writeSecrets(a *testAgent) {
	write := func(dir, key, content string) {
		path := a.paths.secret(dir, key)
		require.NoError(c.t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(c.t, os.WriteFile(path, []byte(content), 0o640))
		if credential := serverUser(); credential != nil {
			require.NoError(c.t, os.Chown(path, 0, int(credential.Gid)))
		}
	}
	cert, key := c.ca.issue(c.t, "db", net.ParseIP(a.address))
	write(naming.DirServer, naming.KeyTLSCert, cert)
	write(naming.DirServer, naming.KeyTLSKey, key)
	write(naming.DirServer, naming.KeyCACert, c.ca.pem)
	cert, key = c.ca.issue(c.t, naming.ReplicationUser, nil)
	write(naming.DirReplication, naming.KeyTLSCert, cert)
	write(naming.DirReplication, naming.KeyTLSKey, key)
	write(naming.DirReplication, naming.KeyCACert, c.ca.pem)
	write(naming.DirApp, naming.KeyUser, "app")
	write(naming.DirApp, naming.KeyPassword, "app-secret")
	write(naming.DirSuperuser, naming.KeyPassword, "super-secret")
}

// start starts the instance's agent, in a Pod of its own.
func (c *testCluster) start(name string) *testAgent {
	c.t.Helper()
	a := c.agents[name]
	require.Nil(c.t, a.done, "%s runs already", name)
	a.pod = fmt.Sprintf("%s-pod-%d", name, time.Now().UnixNano())
	if a.log == nil {
		a.log = &syncBuffer{}
	}
	a.access = &fakeAccess{fakeLease: c.lease}
	a.access.cutOff.Store(a.cutOff)
	a.agent = New(Options{
		Instance: name, Namespace: "test", Pod: naming.Pod(name), PodUID: a.pod, Version: "test",
		Paths: a.paths, Ports: c.ports, ListenAddress: a.address, StopBound: cmp.Or(a.stopBound, 15*time.Second), FollowBound: 2 * time.Second,
		CheckpointBound: a.checkpointBound,
		Credential:      serverUser(), Users: []string{"root", "postgres", "nobody"},
		Watchdog: []string{os.Args[0], watchdogArgument},
		Lease:    func(string) (lease.API, error) { return a.access, nil },
		Labeler:  c.labels, Output: a.log, LogLevel: slog.LevelDebug,
	})
	var ctx context.Context
	ctx, a.cancel = context.WithCancel(context.Background())
	a.agent.options.Programs = a.programs
	a.done = make(chan error, 1)
	go func() { a.done <- a.agent.Run(ctx) }()
	c.t.Cleanup(a.stop)
	c.t.Cleanup(func() {
		if c.t.Failed() {
			c.t.Logf("log of %s:\n%s", name, tailOf(a.log.String(), 400))
		}
	})
	return a
}

// stop is SIGTERM.
func (a *testAgent) stop() {
	if a.done == nil {
		return
	}
	a.cancel()
	select {
	case err := <-a.done:
		require.NoError(a.cluster.t, err)
	case <-time.After(long):
		a.cluster.t.Errorf("%s does not stop", a.name)
	}
	a.done = nil
}

func (a *testAgent) status() agentapi.Status {
	status, _ := a.agent.board.Status()
	return status
}

// await waits until the status is as wanted.
func (a *testAgent) await(bound time.Duration, what string, wanted func(agentapi.Status) bool) agentapi.Status {
	a.cluster.t.Helper()
	deadline := time.After(bound)
	ticker := time.NewTicker(often)
	defer ticker.Stop()
	for {
		status := a.status()
		if wanted(status) {
			return status
		}
		select {
		case <-deadline:
			text, _ := json.Marshal(status)
			require.FailNow(a.cluster.t, a.name+" is not "+what, "%s\nready: %s", text, a.agent.health.Ready())
		case <-ticker.C:
		}
	}
}

func (a *testAgent) awaitReady(role agentapi.Role) agentapi.Status {
	a.cluster.t.Helper()
	return a.await(long, "a ready "+string(role), func(s agentapi.Status) bool {
		return s.Ready && s.Role == role && (role == agentapi.RolePrimary || s.Streaming)
	})
}

// query asks the server over its socket, as the superuser.
func (a *testAgent) query(database, statement string, args ...any) (string, error) {
	return a.connect(fmt.Sprintf("host=%s port=%d user=postgres dbname=%s", a.paths.Run, a.cluster.ports.Postgres, database), statement, args...)
}

// answers waits for an answer.
func (a *testAgent) answers(statement, wanted string) {
	a.cluster.t.Helper()
	require.EventuallyWithT(a.cluster.t, func(t *assert.CollectT) {
		answer, err := a.query("postgres", statement)
		assert.NoError(t, err)
		assert.Equal(t, wanted, answer)
	}, long, often)
}

// ask is query, which must work.
func (a *testAgent) ask(statement string, args ...any) string {
	a.cluster.t.Helper()
	answer, err := a.query("postgres", statement, args...)
	require.NoError(a.cluster.t, err)
	return answer
}

// connect asks with a connection string; the answer is the first column of the last row.
func (a *testAgent) connect(conninfo, statement string, args ...any) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), short)
	defer cancel()
	connection, err := pgx.Connect(ctx, conninfo)
	if err != nil {
		return "", err
	}
	defer func() { _ = connection.Close(ctx) }()
	rows, err := connection.Query(ctx, statement, args...)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	answer := ""
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			return "", err
		}
		if len(values) > 0 {
			answer = fmt.Sprint(values[0])
		}
	}
	return answer, rows.Err()
}

// app connects as the application does, over TLS.
func (a *testAgent) app(password, sslmode, statement string) (string, error) {
	return a.connect(fmt.Sprintf("host=%s port=%d user=app dbname=app password=%s sslmode=%s connect_timeout=3",
		a.address, a.cluster.ports.Postgres, password, sslmode), statement)
}

// get asks one of the probes.
func (a *testAgent) get(path string) (int, string) {
	client := &http.Client{Timeout: 3 * time.Second}
	response, err := client.Get(fmt.Sprintf("http://%s%s", net.JoinHostPort(a.address, strconv.Itoa(a.cluster.ports.Health)), path))
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	body, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(body)
}

func (a *testAgent) dataDir() string {
	return filepath.Join(a.paths.Data, "pgdata", strconv.Itoa(a.cluster.major))
}

// client is a client of the agents' API with a certificate of that name.
func (c *testCluster) client(name string) *agentapi.Client {
	cert, key := c.ca.issue(c.t, name, nil)
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	require.NoError(c.t, err)
	pool := x509.NewCertPool()
	pool.AddCert(c.ca.cert)
	client := agentapi.NewClient(&tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool})
	client.Port = c.ports.Agent
	return client
}

type syncBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

func tailOf(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func portText(a *testAgent) string { return strconv.Itoa(a.cluster.ports.Postgres) }

// sqlWanted is what a primary is set up with.
func sqlWanted(a *testAgent, password string) sql.Wanted {
	return sql.Wanted{
		Owner: "app", Database: "app", OwnerPassword: password, SuperuserPassword: "super-secret",
		Slots: []string{naming.SlotName("db-2")},
	}
}
