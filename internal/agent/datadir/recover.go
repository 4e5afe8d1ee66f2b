package datadir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// Recovery is how data is made from a backup.
type Recovery struct {
	// Restore puts the backup into the empty folder.
	Restore func(ctx context.Context, folder string) error
	// Parameters are those of recovery in that folder: restore_command, and the target.
	Parameters func(folder string) postgres.Parameters
	// Socket is a folder for the socket of the server that recovers, Port its port, and Users who may connect there.
	Socket string
	Port   int
	Users  []string
	// Recovering says whether that server still recovers; an error means that it does not answer.
	Recovering func(ctx context.Context) (bool, error)
	// Use is called when it has recovered, before it is stopped; its error is that of the recovery. Nil: there is nothing to do.
	Use func(ctx context.Context) error
}

const (
	recoverySignal = "recovery.signal"
	// recoveryPoll is how often the server that recovers is asked whether it is done.
	recoveryPoll = 500 * time.Millisecond
	// recoveryStop bounds its shutdown.
	recoveryStop = 10 * time.Minute
	// recoveryBound bounds the whole of a recovery.
	recoveryBound = 14 * 24 * time.Hour
)

// Recover makes the data from a backup and WAL: it is restored, a server of its own recovers it up to the target and begins a new
// timeline there, and stops. So what comes into place is the data of a primary, as if it had always been here.
func (s *Seeder) Recover(ctx context.Context, r Recovery) error {
	return s.seed(ctx, func(target string) error { return s.recoverTo(ctx, target, r) })
}

// recoverTo makes the data in that folder, which is not there.
func (s *Seeder) recoverTo(ctx context.Context, target string, r Recovery) error {
	ctx, cancel := context.WithTimeoutCause(ctx, recoveryBound, errors.New("the recovery took longer than 14 days"))
	defer cancel()
	if err := os.MkdirAll(target, 0o700); err != nil {
		return fmt.Errorf("making the data directory: %w", err)
	}
	if err := s.Volume.Chown(target); err != nil {
		return fmt.Errorf("making the data directory: %w", err)
	}
	if err := r.Restore(ctx, target); err != nil {
		return err
	}
	if major := MajorOf(target); major != s.Volume.major {
		return fmt.Errorf("the backup is of PostgreSQL %d, not %d", major, s.Volume.major)
	}
	if err := s.configureRecovery(target, r); err != nil {
		return err
	}
	return s.runRecovery(ctx, target, r)
}

// configureRecovery writes the files of a server that nobody but the agent can reach.
func (s *Seeder) configureRecovery(target string, r Recovery) error {
	content, err := os.ReadFile(filepath.Join(target, postgres.ControlFile))
	if err != nil {
		return fmt.Errorf("reading the control file of the backup: %w", err)
	}
	control, err := postgres.ParseControl(content)
	if err != nil {
		return fmt.Errorf("reading the control file of the backup: %w", err)
	}
	if err := os.MkdirAll(r.Socket, 0o755); err != nil {
		return fmt.Errorf("preparing the recovery: %w", err)
	}
	if err := s.Volume.Chown(r.Socket); err != nil {
		return fmt.Errorf("preparing the recovery: %w", err)
	}
	parameters := postgres.Recovering(postgres.Settings{Major: s.Volume.major, Port: r.Port, SocketDirectory: r.Socket, Minimums: control.Minimums}, r.Parameters(target))
	for name, text := range map[string]string{
		"postgresql.conf":      parameters.String(),
		"postgresql.auto.conf": "# Emptied by pgsteward.\n",
		"pg_hba.conf":          "local all postgres peer map=" + postgres.IdentMap + "\n",
		"pg_ident.conf":        postgres.Ident(naming.Superuser, r.Users...),
		recoverySignal:         "",
	} {
		if err := s.Volume.WriteFile(filepath.Join(target, name), []byte(text)); err != nil {
			return err
		}
	}
	if err := os.Remove(filepath.Join(target, standbySignal)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("preparing the recovery: %w", err)
	}
	return nil
}

// runRecovery runs the server until it has recovered, and stops it.
func (s *Seeder) runRecovery(ctx context.Context, target string, r Recovery) error {
	var output tail
	cmd := s.Children.Command(context.WithoutCancel(ctx), s.Programs.Postgres, "-D", target)
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "LANG=C.UTF-8")
	if err := s.Children.Start(cmd); err != nil {
		return fmt.Errorf("starting the recovery: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Children.Wait(cmd) }()
	end := func(signal syscall.Signal) error {
		_ = cmd.Process.Signal(signal)
		timeout := time.NewTimer(recoveryStop)
		defer timeout.Stop()
		select {
		case err := <-ended:
			return err
		case <-timeout.C:
			_ = cmd.Process.Kill()
			return errors.Join(errors.New("the server that recovered does not stop"), <-ended)
		}
	}
	ticker := time.NewTicker(recoveryPoll)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			_ = end(syscall.SIGQUIT)
			return context.Cause(ctx)
		case err := <-ended:
			return fmt.Errorf("the recovery failed: %s", recoveryComplaint(output.text, err))
		case <-ticker.C:
		}
		if recovering, err := r.Recovering(ctx); err != nil || recovering {
			continue
		}
		var used error
		if r.Use != nil {
			used = r.Use(ctx)
		}
		if err := end(syscall.SIGINT); err != nil {
			return errors.Join(used, fmt.Errorf("stopping after the recovery: %w: %s", err, output.String()))
		}
		return used
	}
}

var fatalPattern = regexp.MustCompile(`(?:FATAL|PANIC):\s+(.*)`)

// recoveryComplaint is the last thing that ended a server.
func recoveryComplaint(output []byte, err error) string {
	found := fatalPattern.FindAllStringSubmatch(string(output), -1)
	if len(found) == 0 {
		return fmt.Sprintf("%v: %s", err, strings.TrimSpace(string(output)))
	}
	return found[len(found)-1][1]
}
