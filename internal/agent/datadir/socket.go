package datadir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// RemoveSockets removes the sockets, and their lock files, that a server left in the directory when it did not end by itself. No
// server runs, as for RemovePIDFile; and as there, another process may have the number in the lock file by now: the directory
// outlives the container, in which numbers begin anew.
func RemoveSockets(directory string) error {
	left, err := filepath.Glob(filepath.Join(directory, ".s.PGSQL.*"))
	if err != nil {
		return fmt.Errorf("looking for stale sockets: %w", err)
	}
	for _, path := range left {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("removing a stale socket: %w", err)
		}
	}
	return nil
}
