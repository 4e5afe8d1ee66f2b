package datadir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/pgsteward/pgsteward/internal/postgres"
)

// A standby marks no WAL as to be archived, and removes what it does not need itself, whether that waits to be archived or not (xlogarchive.c,
// XLogArchiveCheckDone). When a primary becomes one while the repository is out of reach, what waits is in no other place: the next primary
// has removed as much of it as it does not need. So it is moved out of the data directory, and archived from there.

// saved is the folder of WAL of that stanza that was moved out of the way.
func (v *Volume) saved(stanza string) string { return filepath.Join(v.savedOfAll(), stanza) }

func (v *Volume) savedOfAll() string { return filepath.Join(v.AgentDir(), "wal") }

// SaveWAL moves the WAL that waits to be archived, and says how many files that were. The server has stopped as a primary, cleanly, so that it needs
// none from before redo, the position of its last checkpoint, unless it has to be rewound (PutBackWAL). That position's own file is not complete.
func (v *Volume) SaveWAL(stanza string, redo postgres.LSN) (int, error) {
	ready, err := filepath.Glob(filepath.Join(v.Dir(), walDirectory, "archive_status", "*.ready"))
	if err != nil {
		return 0, fmt.Errorf("looking for WAL that waits to be archived: %w", err)
	}
	count := 0
	for _, mark := range ready {
		name := strings.TrimSuffix(filepath.Base(mark), ".ready")
		segment, ok := postgres.ParseSegment(name)
		if !ok || segment.Number >= postgres.SegmentAt(0, redo+1).Number {
			continue
		}
		if count == 0 {
			if err := v.prepareSaved(stanza); err != nil {
				return 0, err
			}
		}
		err := os.Rename(filepath.Join(v.Dir(), walDirectory, name), filepath.Join(v.saved(stanza), name))
		if err != nil && !errors.Is(err, os.ErrNotExist) { // it was moved before, and its mark left
			return count, fmt.Errorf("saving WAL that waits to be archived: %w", err)
		}
		count++
		if err := os.Remove(mark); err != nil {
			return count, fmt.Errorf("saving WAL that waits to be archived: %w", err)
		}
	}
	return count, nil
}

func (v *Volume) prepareSaved(stanza string) error {
	for _, folder := range []string{v.savedOfAll(), v.saved(stanza)} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return fmt.Errorf("saving WAL that waits to be archived: %w", err)
		}
		if err := v.Chown(folder); err != nil {
			return fmt.Errorf("saving WAL that waits to be archived: %w", err)
		}
	}
	return nil
}

// SavedWAL are the paths of what SaveWAL has saved and nobody has archived yet, the oldest first.
func (v *Volume) SavedWAL(stanza string) ([]string, error) {
	entries, err := os.ReadDir(v.saved(stanza)) // sorted by name
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for WAL that was saved: %w", err)
	}
	var paths []string
	for _, entry := range entries {
		paths = append(paths, filepath.Join(v.saved(stanza), entry.Name()))
	}
	return paths, nil
}

// PutBackWAL gives the data directory what was saved, too: pg_rewind reads the target's WAL from before the fork on.
func (v *Volume) PutBackWAL(stanza string) error {
	paths, err := v.SavedWAL(stanza)
	if err != nil {
		return err
	}
	for _, path := range paths {
		if err := os.Link(path, filepath.Join(v.Dir(), walDirectory, filepath.Base(path))); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("putting back WAL that was saved: %w", err)
		}
	}
	return nil
}

// IsOnLine says whether everybody on that timeline has the same under that name of a file of WAL: not if it is from after the fork.
func (v *Volume) IsOnLine(name string, timeline int64) (bool, error) {
	history, err := v.History(timeline)
	if err != nil {
		return false, err
	}
	return whole(name, postgres.SegmentSize, timeline, history), nil
}

// DropSavedWAL removes what was saved of all stanzas but that one, and says of which; empty: of all.
func (v *Volume) DropSavedWAL(but string) (stanzas []string, err error) {
	entries, err := os.ReadDir(v.savedOfAll())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for WAL that was saved: %w", err)
	}
	for _, entry := range entries {
		if entry.Name() == but {
			continue
		}
		if err := os.RemoveAll(v.saved(entry.Name())); err != nil {
			return stanzas, fmt.Errorf("removing WAL that was saved: %w", err)
		}
		stanzas = append(stanzas, entry.Name())
	}
	return stanzas, nil
}
