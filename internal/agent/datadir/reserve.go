package datadir

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// The reserve is room on the volume that nobody uses until the volume is full: given up then, it lets PostgreSQL recover and write
// a checkpoint, for which it needs a WAL segment of 16 MiB and some more.
const (
	reserveLeast = 32 << 20
	reserveMost  = 64 << 20
	reservePart  = 64
	// reserveRoom is how many times the reserve must be free before it is taken.
	reserveRoom = 4
)

func (v *Volume) reserve() string { return filepath.Join(v.AgentDir(), "reserve") }

// ReserveSize is the size of the reserve on a volume of that size.
func ReserveSize(volume int64) int64 { return min(max(volume/reservePart, reserveLeast), reserveMost) }

// ReserveRoom is how much must be free on a volume of that size for the reserve to be taken.
func ReserveRoom(volume int64) int64 { return reserveRoom * ReserveSize(volume) }

// HasReserve says whether there is a reserve.
func (v *Volume) HasReserve() bool {
	_, err := os.Lstat(v.reserve())
	return err == nil
}

// TakeReserve takes the reserve if there is room enough, and says whether it is there.
func (v *Volume) TakeReserve() (bool, error) {
	if v.HasReserve() {
		return true, nil
	}
	size, free, err := v.Space()
	if err != nil {
		return false, err
	}
	want := ReserveSize(size)
	if free < ReserveRoom(size) {
		return false, nil
	}
	temporary := v.reserve() + ".new"
	file, err := os.OpenFile(temporary, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return false, fmt.Errorf("taking the reserve: %w", err)
	}
	err = unix.Fallocate(int(file.Fd()), 0, 0, want)
	if errors.Is(err, unix.EOPNOTSUPP) {
		_, err = io.CopyN(file, zeros{}, want)
	}
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return false, errors.Join(fmt.Errorf("taking the reserve: %w", err), os.Remove(temporary))
	}
	if err := os.Rename(temporary, v.reserve()); err != nil {
		return false, fmt.Errorf("taking the reserve: %w", err)
	}
	return true, nil
}

// GiveUpReserve makes the room of the reserve free.
func (v *Volume) GiveUpReserve() error {
	if err := os.Remove(v.reserve()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("giving up the reserve: %w", err)
	}
	return nil
}

type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
