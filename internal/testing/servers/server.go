package servers

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/naming"
)

const (
	startBound = 60 * time.Second
	often      = 100 * time.Millisecond
)

// Server is a real PostgreSQL, which trusts everybody who reaches its socket.
type Server struct {
	Major     int
	Data, Run string
	Port      int
	// User is whom its programs run as; nil: as the test.
	User *syscall.Credential

	t   *testing.T
	cmd *exec.Cmd
}

// Bin is the folder with the programs of a major. The test is skipped if there is none.
func Bin(t *testing.T, major int) string {
	t.Helper()
	bin := fmt.Sprintf("/usr/lib/postgresql/%d/bin", major)
	if _, err := os.Stat(filepath.Join(bin, "postgres")); err != nil {
		t.Skipf("no PostgreSQL %d in %s", major, bin)
	}
	return bin
}

// Newest is the newest major on this machine, but none above most. The test is skipped if there is none.
func Newest(t *testing.T, most int) int {
	t.Helper()
	for major := most; major > 15; major-- {
		if _, err := os.Stat(fmt.Sprintf("/usr/lib/postgresql/%d/bin/postgres", major)); err == nil {
			return major
		}
	}
	Bin(t, 15)
	return 15
}

// ServerUser is who PostgreSQL runs as, since it refuses to run as root.
func ServerUser(t *testing.T) *syscall.Credential {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	found, err := user.Lookup("postgres")
	if err != nil {
		return &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	uid, err := strconv.Atoi(found.Uid)
	require.NoError(t, err)
	gid, err := strconv.Atoi(found.Gid)
	require.NoError(t, err)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// Dir is a folder of that user's, with a short path, since sockets are in it.
func Dir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "pgs")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	Own(t, dir)
	return dir
}

// Own gives a path to the user that PostgreSQL runs as.
func Own(t *testing.T, path string) {
	t.Helper()
	if credential := ServerUser(t); credential != nil {
		require.NoError(t, os.Chown(path, int(credential.Uid), int(credential.Gid)))
	}
}

// NewServer makes a system with initdb and these options, and starts it.
func NewServer(t *testing.T, major int, options ...string) *Server {
	t.Helper()
	dir := Dir(t)
	s := &Server{t: t, Major: major, Data: filepath.Join(dir, "data"), Run: dir, User: ServerUser(t)}
	arguments := append([]string{
		"--pgdata=" + s.Data, "--username=" + naming.Superuser, "--no-sync", "--auth=trust", "--encoding=UTF8",
	}, options...)
	s.run("initdb", append(arguments, "--locale=C.UTF-8")...)
	s.Start()
	return s
}

// Existing is a server for a data directory that something else has made.
func Existing(t *testing.T, major int, data, run string) *Server {
	t.Helper()
	return &Server{t: t, Major: major, Data: data, Run: run, User: ServerUser(t)}
}

func (s *Server) command(program string, arguments ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.WithoutCancel(s.t.Context()), filepath.Join(Bin(s.t, s.Major), program), arguments...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.User, Setpgid: true}
	cmd.Dir = s.Run
	return cmd
}

func (s *Server) run(program string, arguments ...string) {
	s.t.Helper()
	output, err := s.command(program, arguments...).CombinedOutput()
	require.NoError(s.t, err, "%s: %s", program, output)
}

// Start starts the server until the test ends, or it is stopped.
func (s *Server) Start() {
	t := s.t
	t.Helper()
	if s.Port == 0 {
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		s.Port = listener.Addr().(*net.TCPAddr).Port
		require.NoError(t, listener.Close())
	}
	require.NoError(t, os.WriteFile(filepath.Join(s.Data, "pg_hba.conf"), []byte("local all all trust\nlocal replication all trust\n"), 0o600))
	Own(t, filepath.Join(s.Data, "pg_hba.conf"))
	log, err := os.OpenFile(filepath.Join(s.Run, fmt.Sprintf("log%d", s.Major)), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o644)
	require.NoError(t, err)
	arguments := []string{"-D", s.Data}
	for name, value := range map[string]string{
		"port": strconv.Itoa(s.Port), "unix_socket_directories": s.Run, "listen_addresses": "", "wal_level": "logical", "fsync": "off",
		"max_logical_replication_workers": "12", "max_worker_processes": "24", "max_wal_senders": "20", "max_replication_slots": "20",
		"shared_buffers": "32MB", "wal_retrieve_retry_interval": "200ms", "max_prepared_transactions": "5",
	} {
		arguments = append(arguments, "-c", name+"="+value)
	}
	cmd := s.command("postgres", arguments...)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	s.cmd = cmd
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		_ = cmd.Wait()
		_ = log.Close()
		if t.Failed() {
			content, _ := os.ReadFile(log.Name())
			t.Logf("PostgreSQL %d:\n%s", s.Major, content[max(0, len(content)-6000):])
		}
	})
	require.Eventually(t, func() bool {
		c, err := s.Open(context.Background(), "template1")
		if err != nil {
			return false
		}
		return c.Close(context.Background()) == nil
	}, startBound, often, "PostgreSQL %d starts", s.Major)
}

// Stop stops the server in an orderly way, whoever is connected. It may be started again.
func (s *Server) Stop() {
	s.t.Helper()
	require.NoError(s.t, s.cmd.Process.Signal(syscall.SIGINT))
	require.NoError(s.t, s.cmd.Wait())
}

// Conninfo is a connection string of the superuser.
func (s *Server) Conninfo(database string) string {
	return fmt.Sprintf("host=%s port=%d user=%s dbname='%s'", s.Run, s.Port, naming.Superuser, database)
}

// Open opens a connection of the superuser.
func (s *Server) Open(ctx context.Context, database string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(s.Conninfo(database) + " sslmode=disable")
	if err != nil {
		return nil, err
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	return pgx.ConnectConfig(ctx, config)
}

// Connect is a connection of the superuser until the test ends.
func (s *Server) Connect(database string) *pgx.Conn {
	s.t.Helper()
	c, err := s.Open(context.Background(), database)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// Exec carries out statements as the superuser.
func (s *Server) Exec(database, statements string) {
	s.t.Helper()
	c, err := s.Open(context.Background(), database)
	require.NoError(s.t, err)
	defer func() { _ = c.Close(context.Background()) }()
	_, err = c.Exec(context.Background(), statements)
	require.NoError(s.t, err, statements)
}
