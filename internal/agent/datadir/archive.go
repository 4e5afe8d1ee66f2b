package datadir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/pgsteward/pgsteward/internal/postgres"
)

// walName is the name of a complete file of WAL, or of a timeline's history.
var walName = regexp.MustCompile(`^([0-9A-F]{24}|[0-9A-F]{8}\.history)$`)

// ArchiveAgain marks all WAL that is there, and that PostgreSQL does not wait to archive, as to be archived, and says how much that was.
// A standby marks what it receives as done (xlogarchive.c), whether its primary came to archive it or not. Histories of timelines that
// were skipped (ReserveTimelines) have no mark at all: they must get to the repository too. A recovery looks there for one timeline after
// the other, and the first number without a history ends the search: it would miss all that came after, and begin a timeline that is taken.
// timeline is the one that the server is on.
func (v *Volume) ArchiveAgain(timeline int64) (int, error) {
	history, err := v.History(timeline)
	if err != nil {
		return 0, err
	}
	wal := filepath.Join(v.Dir(), "pg_wal")
	done, err := filepath.Glob(filepath.Join(wal, "archive_status", "*.done"))
	if err != nil {
		return 0, fmt.Errorf("looking for WAL: %w", err)
	}
	count := 0
	for _, path := range done {
		name := strings.TrimSuffix(filepath.Base(path), ".done")
		info, err := os.Stat(filepath.Join(wal, name))
		if err != nil || !walName.MatchString(name) || !whole(name, info.Size(), timeline, history) {
			continue
		}
		if err := os.Rename(path, strings.TrimSuffix(path, ".done")+".ready"); err != nil && !os.IsNotExist(err) {
			return count, fmt.Errorf("marking WAL as to be archived: %w", err)
		}
		count++
	}
	reserved, err := v.archiveHistories()
	return count + reserved, err
}

// whole says whether a file of that size, which a standby may have received, is what everybody has under that name. The one in which an ancestor
// of the timeline was left is not: a standby marks it as done with whatever it has after that, and the repository refuses another content under a
// name that it has, for ever, so that the archiver would not get past it. Nothing is missing without: the next timeline's begins with the same.
func whole(name string, size, timeline int64, history postgres.History) bool {
	if strings.HasSuffix(name, historySuffix) {
		return true
	}
	var numbers [3]int64 // timeline, upper half of the position, number of the file in it
	for i := range numbers {
		numbers[i], _ = strconv.ParseInt(name[8*i:8*i+8], 16, 64) // as walName says
	}
	if numbers[0] == timeline {
		return true
	}
	left, leads := history.End(numbers[0])
	return leads && postgres.LSN(numbers[1]<<32+(numbers[2]+1)*size) <= left //nolint:gosec // all of them are small
}

// archiveHistories marks the histories that have no mark as to be archived.
func (v *Volume) archiveHistories() (int, error) {
	wal := filepath.Join(v.Dir(), walDirectory)
	histories, err := filepath.Glob(filepath.Join(wal, "*"+historySuffix))
	if err != nil {
		return 0, fmt.Errorf("looking for histories of timelines: %w", err)
	}
	count := 0
	for _, path := range histories {
		status := filepath.Join(wal, "archive_status", filepath.Base(path))
		done, errDone := exists(status + ".done")
		ready, errReady := exists(status + ".ready")
		if err := errors.Join(errDone, errReady); err != nil {
			return count, err
		}
		if done || ready || !walName.MatchString(filepath.Base(path)) {
			continue
		}
		if err := v.WriteFile(status+".ready", nil); err != nil {
			return count, err
		}
		count++
	}
	return count, nil
}

// WaitingWAL is how many bytes of WAL wait to be archived.
func (v *Volume) WaitingWAL() (int64, error) {
	wal := filepath.Join(v.Dir(), "pg_wal")
	ready, err := filepath.Glob(filepath.Join(wal, "archive_status", "*.ready"))
	if err != nil {
		return 0, fmt.Errorf("looking for WAL: %w", err)
	}
	var total int64
	for _, path := range ready {
		if info, err := os.Stat(filepath.Join(wal, strings.TrimSuffix(filepath.Base(path), ".ready"))); err == nil {
			total += info.Size()
		}
	}
	return total, nil
}
