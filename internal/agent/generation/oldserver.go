package generation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgsteward/pgsteward/internal/agent/supervise"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

const (
	// stopOldBound is how long the old server may take to stop in an orderly way.
	stopOldBound = 2 * time.Minute
	// oldInterval is how often the old server is looked at.
	oldInterval = 200 * time.Millisecond
	// ours begins what is written to the old postgresql.conf, which is not a standby's any more.
	ours = "\n# From here on written by pgsteward for a major upgrade.\n"
)

// alone is the folder with the sockets of servers that nobody but this process talks to.
func (p *Place) alone() string { return filepath.Join(p.RunDirectory, "upgrade") }

// makeAlone makes the folder.
func (p *Place) makeAlone() error {
	if err := os.MkdirAll(p.alone(), 0o700); err != nil {
		return fmt.Errorf("making a folder for the old server's socket: %w", err)
	}
	return p.New.Chown(p.alone())
}

// localTrust is a pg_hba.conf for a server without a network, whose socket nobody else can open.
const localTrust = "local all all trust\nlocal replication all trust\n"

// configureOld makes the old data directory one that replays to the position, and then is a primary of which nobody knows.
func (p *Place) configureOld(m *Marker, minimums map[string]int) error {
	settings := postgres.Parameters{
		// Nobody asks it before it is promoted, so that no setting must be as great as the primary's but one, without which prepared
		// transactions could not be replayed.
		"hot_standby": "off", "max_prepared_transactions": fmt.Sprint(minimums["max_prepared_transactions"]),
		// Nothing may work by itself on data that was promoted: no subscription, no scheduled job.
		"max_logical_replication_workers": "0", "max_worker_processes": "0", "autovacuum": "off", "synchronous_standby_names": "",
		"recovery_target_timeline": "latest", "default_transaction_read_only": "off", "restart_after_crash": "off",
	}
	if m.Method != agentapi.MethodInPlace { // which is replayed to the end
		maps.Copy(settings, postgres.Parameters{
			"recovery_target_lsn": m.Position, "recovery_target_inclusive": "off", "recovery_target_action": "promote",
		})
	}
	return p.writeOld(m, settings)
}

// writeOld configures the old server: it has no network, and streams from the source.
func (p *Place) writeOld(m *Marker, more postgres.Parameters) error {
	dir := p.Old.Dir()
	path := filepath.Join(dir, "postgresql.conf")
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the old configuration: %w", err)
	}
	before, _, _ := strings.Cut(string(content), ours)
	settings := postgres.Parameters{
		"listen_addresses": "", "port": fmt.Sprint(p.Port), "unix_socket_directories": p.alone(), "unix_socket_permissions": "0700",
		"hba_file": filepath.Join(dir, "pg_hba.conf"), "ident_file": filepath.Join(dir, "pg_ident.conf"), "ssl": "off",
		"logging_collector": "off", "log_destination": "stderr", "lc_messages": "C", "archive_mode": "off",
		"primary_conninfo": p.Replication(m.Source), "primary_slot_name": p.slot(), "restore_command": "", "recovery_min_apply_delay": "0",
	}
	maps.Copy(settings, more)
	for name, content := range map[string]string{
		"postgresql.conf": before + ours + settings.String(), "postgresql.auto.conf": "", "pg_hba.conf": localTrust, "pg_ident.conf": "",
	} {
		if err := p.Old.WriteFile(filepath.Join(dir, name), []byte(content)); err != nil {
			return err
		}
	}
	return p.makeAlone()
}

// withOld runs the old server until use returns, and stops it in an orderly way. The connection comes once the server takes some.
func (p *Place) withOld(ctx context.Context, waiting func(), use func(ctx context.Context, c *pgx.Conn) error) error {
	program, err := p.oldProgram("postgres")
	if err != nil {
		return err
	}
	if err := p.endAll(); err != nil {
		return err
	}
	_ = os.Remove(filepath.Join(p.alone(), fmt.Sprintf(".s.PGSQL.%d.lock", p.Port)))
	// Not bound to the context: it is to stop as its data needs it.
	cmd := p.Children.Command(context.WithoutCancel(ctx), program, "-D", p.Old.Dir())
	var said ending
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "LANG=C.UTF-8")
	if err := p.Children.Start(cmd); err != nil {
		return fmt.Errorf("starting the old server: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Children.Wait(cmd) }()

	c, err := p.connectOld(ctx, ended, waiting)
	if err == nil {
		err = use(ctx, c)
		closeConn(c)
	}
	if errors.Is(err, errOldEnded) {
		return fmt.Errorf("%w: %s", err, said.String())
	}
	mode := syscall.SIGINT
	if err != nil {
		mode = syscall.SIGQUIT
	}
	return errors.Join(err, stopOld(cmd.Process.Pid, mode, ended))
}

// endAll makes sure that no server works on either data directory: pg_upgrade starts some, and leaves them behind when it is ended.
func (p *Place) endAll() error {
	for _, dir := range []string{p.Old.Dir(), p.New.Seeding()} {
		if !supervise.EndIn(dir, stopOldBound) {
			return fmt.Errorf("a server that works in %s does not end", dir)
		}
	}
	return p.Old.RemovePIDFile()
}

var errOldEnded = errors.New("the old server has ended by itself")

// connectOld waits until the old server takes connections: until it is promoted.
func (p *Place) connectOld(ctx context.Context, ended chan error, waiting func()) (*pgx.Conn, error) {
	ticker := time.NewTicker(oldInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case err := <-ended:
			return nil, fmt.Errorf("%w: %w", errOldEnded, errOrNil(err))
		case <-ticker.C:
		}
		waiting()
		if c, err := p.dialOld(ctx); err == nil {
			return c, nil
		}
	}
}

// dialOld opens a connection to the old server.
func (p *Place) dialOld(ctx context.Context) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(fmt.Sprintf("host=%s port=%d user=%s dbname=template1 sslmode=disable", p.alone(), p.Port, naming.Superuser))
	if err != nil {
		return nil, err
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	return pgx.ConnectConfig(ctx, config)
}

func errOrNil(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// stopOld stops it, and by force when it takes too long.
func stopOld(pid int, mode syscall.Signal, ended chan error) error {
	for _, signal := range []syscall.Signal{mode, syscall.SIGQUIT, syscall.SIGKILL} {
		_ = syscall.Kill(pid, signal)
		select {
		case err := <-ended:
			if err != nil && mode == syscall.SIGINT {
				return fmt.Errorf("stopping the old server: %w", err)
			}
			return nil
		case <-time.After(stopOldBound):
		}
	}
	return errors.New("the old server does not stop")
}
