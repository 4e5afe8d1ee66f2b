package datadir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/pgsteward/pgsteward/internal/agent/supervise"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// Seeder makes data directories with PostgreSQL's programs.
type Seeder struct {
	Children *supervise.Children
	Programs Programs
	Volume   *Volume
	// Reachable says why there is nothing to copy from; nil if there is. It is asked before data is removed to make room for the
	// copy.
	Reachable func(context.Context) error
}

// InitDB makes a new PostgreSQL system. No password is needed: nobody can connect but the agent, over the socket, until the
// agent has set one.
func (s *Seeder) InitDB(ctx context.Context) error {
	return s.seed(ctx, func(target string) error {
		return s.run(ctx, s.Programs.InitDB,
			"--pgdata="+target, "--username="+naming.Superuser, "--encoding=UTF8", "--locale=C.UTF-8", "--data-checksums",
			"--auth-local=peer", "--auth-host=reject", "--no-instructions")
	})
}

// Clone copies the data of the server that the connection string names, by its replication slot, which must exist.
func (s *Seeder) Clone(ctx context.Context, conninfo, slot string) error {
	return s.seed(ctx, func(target string) error {
		err := s.run(ctx, s.Programs.BaseBackup,
			"--pgdata="+target, "--dbname="+conninfo, "--wal-method=stream", "--slot="+slot, "--checkpoint=fast", "--no-password")
		if err != nil {
			return err
		}
		return s.Volume.WriteFile(filepath.Join(target, standbySignal), nil)
	})
}

// Make makes a data directory by other means than InitDB and Clone: create makes it at the path that it is given.
func (s *Seeder) Make(ctx context.Context, create func(target string) error) error {
	return s.seed(ctx, create)
}

// Run runs a program; its error has the end of what the program said.
func (s *Seeder) Run(ctx context.Context, program string, args ...string) error {
	return s.run(ctx, program, args...)
}

// seed makes a data directory under another name and renames it when it is complete.
func (s *Seeder) seed(ctx context.Context, create func(target string) error) error {
	volume := s.Volume
	if err := volume.Prepare(); err != nil {
		return err
	}
	target := volume.seeding()
	if err := os.RemoveAll(target); err != nil {
		return fmt.Errorf("removing an unfinished data directory: %w", err)
	}
	if err := s.makeRoom(ctx); err != nil {
		return err
	}
	if err := create(target); err != nil {
		return err
	}
	if major := MajorOf(target); major != volume.major {
		return fmt.Errorf("the copied data is of PostgreSQL %d, not %d", major, volume.major)
	}
	// initdb and pg_basebackup have synced every file; the directories' own entries are left.
	if err := syncDirectory(target); err != nil {
		return err
	}
	return s.replace(target)
}

// makeRoom removes a data directory that is to be replaced if there is no room for both.
func (s *Seeder) makeRoom(ctx context.Context) error {
	volume := s.Volume
	present := volume.Dir()
	if _, err := os.Stat(present); err != nil {
		return nil //nolint:nilerr // there is nothing to replace
	}
	_, free, err := volume.Space()
	if err != nil {
		return err
	}
	if need := used(present); free > need+need/10 {
		return nil
	}
	if s.Reachable != nil {
		if err := s.Reachable(ctx); err != nil {
			return fmt.Errorf("the data must make room for a copy, and stays while there is nothing to copy: %w", err)
		}
	}
	// Neither what a crash leaves of it must be taken for data, nor what is left of an older one.
	if err := os.RemoveAll(volume.old()); err != nil {
		return fmt.Errorf("removing an old data directory: %w", err)
	}
	if err := volume.WriteFile(volume.rewinding(), nil); err != nil {
		return err
	}
	if err := os.RemoveAll(present); err != nil {
		return fmt.Errorf("removing the replaced data directory: %w", err)
	}
	if err := syncDirectory(volume.root()); err != nil {
		return err
	}
	return volume.whole()
}

// replace puts a complete data directory in its place.
func (s *Seeder) replace(target string) error {
	volume := s.Volume
	if err := os.RemoveAll(volume.old()); err != nil {
		return fmt.Errorf("removing an old data directory: %w", err)
	}
	if err := os.Rename(volume.Dir(), volume.old()); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("replacing the data directory: %w", err)
	}
	if err := os.Rename(target, volume.Dir()); err != nil {
		return fmt.Errorf("naming the new data directory: %w", err)
	}
	if err := syncDirectory(volume.root()); err != nil {
		return err
	}
	if err := volume.whole(); err != nil {
		return err
	}
	return volume.RemoveLeftovers()
}

// RemoveLeftovers removes what a crash may have left beside a complete data directory. If there is none, an old one that was
// moved away is put back: the crash was between two renames.
func (v *Volume) RemoveLeftovers() error {
	if _, err := os.Stat(v.Dir()); os.IsNotExist(err) {
		for _, path := range []string{v.old(), v.before()} {
			err := os.Rename(path, v.Dir())
			if err == nil || !os.IsNotExist(err) {
				return wrapped("putting back the data directory", err)
			}
		}
		return nil
	}
	for _, path := range []string{v.old(), v.seeding()} {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("removing %s: %w", path, err)
		}
	}
	return nil
}

// finished is the file, in a directory Volume.Seeding, that says that it was made to the end.
const finished = "pgsteward.finished"

// Begin makes the directory Volume.Seeding anew. It stays there until it is adopted.
func (v *Volume) Begin(create func(target string) error) error {
	if err := errors.Join(v.Prepare(), os.RemoveAll(v.seeding())); err != nil {
		return fmt.Errorf("removing an unfinished data directory: %w", err)
	}
	if err := create(v.seeding()); err != nil {
		return err
	}
	return v.WriteFile(filepath.Join(v.seeding(), finished), nil)
}

// IsFinished says whether Begin has come to its end.
func (v *Volume) IsFinished() bool {
	_, err := os.Stat(filepath.Join(v.seeding(), finished))
	return err == nil
}

// Adopt puts the directory Volume.Seeding in the data directory's place, once it is complete and on disk.
func (s *Seeder) Adopt() error { return s.replace(s.Volume.seeding()) }

// Remove removes the data directory and whatever is left of attempts to make one.
func (v *Volume) Remove() error {
	for _, path := range []string{v.Dir(), v.seeding(), v.old(), v.rewinding()} {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("removing %s: %w", path, err)
		}
	}
	if err := syncDirectory(v.root()); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

// run runs a program; its error has the end of what the program said.
func (s *Seeder) run(ctx context.Context, program string, args ...string) error {
	var output tail
	cmd := s.Children.Command(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "LANG=C.UTF-8", "TMPDIR=/tmp")
	if err := s.Children.Run(cmd); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("%s: %w: %s", filepath.Base(program), err, output.String())
	}
	return nil
}

// tail keeps the end of what is written.
type tail struct{ text []byte }

const tailBytes = 1024

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if extra := len(t.text) - tailBytes; extra > 0 {
		t.text = t.text[extra:]
	}
	return len(p), nil
}

// String is what was kept, without PostgreSQL's progress messages that are of no use.
func (t *tail) String() string {
	var lines []string
	for line := range strings.SplitSeq(string(t.text), "\n") {
		if line = strings.TrimSpace(line); line != "" && !strings.HasSuffix(line, "... ok") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}
