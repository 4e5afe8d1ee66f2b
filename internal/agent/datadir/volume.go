package datadir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pgsteward/pgsteward/internal/postgres"
)

const (
	standbySignal = "standby.signal"
	pidFile       = "postmaster.pid"
	versionFile   = "PG_VERSION"
)

// ErrInUse is that another agent works on the volume.
var ErrInUse = errors.New("another process works on the data volume")

// Volume is the data volume, seen by an instance of one major.
type Volume struct {
	path  string
	major int
	// Chown gives a path to the user that PostgreSQL runs as, if that is another than the agent's.
	Chown func(path string) error
}

// NewVolume is the volume that is mounted there.
func NewVolume(path string, major int, chown func(string) error) *Volume {
	return &Volume{path: path, major: major, Chown: chown}
}

// Dir is the data directory.
func (v *Volume) Dir() string { return filepath.Join(v.root(), strconv.Itoa(v.major)) }

// Seeding is the path under which the data directory is made.
func (v *Volume) Seeding() string { return v.seeding() }

// AgentDir has the agent's own files.
func (v *Volume) AgentDir() string { return filepath.Join(v.path, "pgsteward") }

func (v *Volume) root() string    { return filepath.Join(v.path, "pgdata") }
func (v *Volume) seeding() string { return v.Dir() + ".seeding" }
func (v *Volume) old() string     { return v.Dir() + ".old" }

// rewinding is the file that says that the data directory is being rewound, or removed, and must not be started.
func (v *Volume) rewinding() string { return v.Dir() + ".rewinding" }

// Lock takes the volume for this process until the file is closed, or the process ends.
func Lock(path string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(path, ".pgsteward.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the data volume: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrInUse
		}
		return nil, fmt.Errorf("locking the data volume: %w", err)
	}
	return file, nil
}

// Prepare makes the directories around the data directory.
func (v *Volume) Prepare() error {
	for _, path := range []string{v.root(), v.AgentDir()} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return fmt.Errorf("preparing the data volume: %w", err)
		}
		if err := v.Chown(path); err != nil {
			return fmt.Errorf("preparing the data volume: %w", err)
		}
	}
	return nil
}

// Found is what is on the volume.
type Found struct {
	// Complete says whether there is a data directory of our major.
	Complete bool
	// Torn says that there is one which cannot be used, because rewinding or removing it was not finished. It does not count as complete.
	Torn bool
	// Standby says whether it will start as a standby, or was last one.
	Standby bool
	Control postgres.Control
	// Newest is the highest timeline of which the data directory has a history; 0 if it has none.
	Newest int64
	// Others are the majors of other data directories.
	Others []int
}

// Inspect looks at the volume. An error means that nothing is known.
func (v *Volume) Inspect() (Found, error) {
	var found Found
	entries, err := os.ReadDir(v.root())
	if errors.Is(err, os.ErrNotExist) {
		return found, nil
	}
	if err != nil {
		return found, fmt.Errorf("reading the data volume: %w", err)
	}
	for _, entry := range entries {
		major, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if major == v.major {
			found.Complete = true
		} else {
			found.Others = append(found.Others, major)
		}
	}
	if !found.Complete {
		return found, nil
	}
	torn, err := exists(v.rewinding())
	if err != nil {
		return found, err
	}
	if torn {
		found.Complete, found.Torn = false, true
		return found, nil
	}
	content, err := os.ReadFile(filepath.Join(v.Dir(), postgres.ControlFile))
	if err != nil {
		return found, fmt.Errorf("reading the control file: %w", err)
	}
	if found.Control, err = postgres.ParseControl(content); err != nil {
		return found, err
	}
	if found.Newest, err = v.newest(); err != nil {
		return found, err
	}
	signal, err := exists(filepath.Join(v.Dir(), standbySignal))
	if err != nil {
		return found, err
	}
	found.Standby = signal || found.Control.InRecovery()
	return found, nil
}

func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("looking for %s: %w", path, err)
	}
	return err == nil, nil
}

// History is how a timeline of the data directory came to be.
func (v *Volume) History(timeline int64) (postgres.History, error) {
	if timeline <= 1 {
		return nil, nil
	}
	content, err := os.ReadFile(filepath.Join(v.Dir(), "pg_wal", postgres.HistoryFile(timeline)))
	if err != nil {
		return nil, fmt.Errorf("reading the history of timeline %d: %w", timeline, err)
	}
	return postgres.ParseHistory(content)
}

// SetStandby makes the data directory start as a standby, or as a primary.
func (v *Volume) SetStandby(standby bool) error {
	path := filepath.Join(v.Dir(), standbySignal)
	if !standby {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return syncDirectory(v.Dir())
	}
	return v.WriteFile(path, nil)
}

// RemovePIDFile removes what a server left behind that did not end by itself. The lock on the volume and the end of the
// process make sure that no server runs, but another process may have the same number now, and PostgreSQL would not start.
func (v *Volume) RemovePIDFile() error {
	if err := os.Remove(filepath.Join(v.Dir(), pidFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing a stale %s: %w", pidFile, err)
	}
	return nil
}

// forced is the file that says that a takeover by force was done.
func (v *Volume) forced() string { return filepath.Join(v.root(), "forced") }

// ForceDone says whether this instance has taken over by the present force, also in an earlier run of its agent.
func (v *Volume) ForceDone() (bool, error) { return exists(v.forced()) }

// NoteForce takes note that it has, or that there is a force no more.
func (v *Volume) NoteForce(done bool) error {
	if done {
		return v.WriteFile(v.forced(), nil)
	}
	if err := os.Remove(v.forced()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("forgetting a takeover by force: %w", err)
	}
	return nil
}

// WriteFile writes a file so that after a crash there is the old content or the new one, on disk.
func (v *Volume) WriteFile(path string, content []byte) error {
	temporary := path + ".new"
	file, err := os.OpenFile(temporary, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	_, errWrite := file.Write(content)
	if err := errors.Join(errWrite, file.Sync(), file.Close(), v.Chown(temporary)); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return syncDirectory(filepath.Dir(path))
}

// Space is the volume's size and what is free of it, in bytes.
func (v *Volume) Space() (size, free int64, err error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(v.path, &stat); err != nil {
		return 0, 0, fmt.Errorf("asking for free space: %w", err)
	}
	return int64(stat.Blocks) * stat.Bsize, int64(stat.Bavail) * stat.Bsize, nil
}

// used is the size of everything below a path.
func used(path string) int64 {
	var total int64
	_ = filepath.WalkDir(path, func(_ string, entry os.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // an estimate; files come and go
		}
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
			total += info.Size()
		}
		return nil
	})
	return total
}

func syncDirectory(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("syncing %s: %w", path, err)
	}
	if err := errors.Join(directory.Sync(), directory.Close()); err != nil {
		return fmt.Errorf("syncing %s: %w", path, err)
	}
	return nil
}

// MajorOf is the major of the data directory at path; 0 if it has none.
func MajorOf(path string) int {
	content, err := os.ReadFile(filepath.Join(path, versionFile))
	if err != nil {
		return 0
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return 0
	}
	return major
}
