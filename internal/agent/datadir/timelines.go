package datadir

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/pgsteward/pgsteward/internal/postgres"
)

// A promotion takes the lowest timeline above its own that has no history file. The Lease says which one it must be: if that is
// further, the numbers between get history files of timelines on which nothing was ever written. A running standby takes no notice
// of them, since they leave its own timeline long before the present; others, which later follow across them, find them in the
// archive or at the primary as they would any other.

const historySuffix = ".history"

// reservedReason is what a history file of a reserved timeline says last.
const reservedReason = "reserved"

// reservedAt is where a reserved timeline leaves its parent: the first WAL that initdb makes, so before any present position.
const reservedAt = "0/1000000"

var historyPattern = regexp.MustCompile(`^([0-9A-F]{8})\.history$`)

// newest is the highest timeline that has a history file in the data directory; 0 if none has.
func (v *Volume) newest() (int64, error) {
	entries, err := os.ReadDir(filepath.Join(v.Dir(), walDirectory))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading the WAL directory: %w", err)
	}
	newest := int64(0)
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), historySuffix) {
			continue
		}
		if match := historyPattern.FindStringSubmatch(entry.Name()); match != nil {
			if timeline, err := strconv.ParseInt(match[1], 16, 64); err == nil {
				newest = max(newest, timeline)
			}
		}
	}
	return newest, nil
}

const walDirectory = "pg_wal"

func (v *Volume) historyPath(timeline int64) string {
	return filepath.Join(v.Dir(), walDirectory, postgres.HistoryFile(timeline))
}

// ReserveTimelines makes a promotion from the timeline of the data take that number, and no lower one.
func (v *Volume) ReserveTimelines(own, number int64) error {
	if number <= own {
		return fmt.Errorf("timeline %d cannot follow on %d", number, own)
	}
	var parents []byte
	if own > 1 {
		content, err := os.ReadFile(v.historyPath(own))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("reading the history of timeline %d: %w", own, err)
		}
		parents = content
	}
	for timeline := own + 1; timeline < number; timeline++ {
		if present, err := exists(v.historyPath(timeline)); err != nil || present {
			if err != nil {
				return err
			}
			continue
		}
		content := fmt.Appendf(bytes.Clone(parents), "%d\t%s\t%s\n", own, reservedAt, reservedReason)
		if err := v.WriteFile(v.historyPath(timeline), content); err != nil {
			return err
		}
	}
	if present, err := exists(v.historyPath(number)); err != nil || present {
		return errors.Join(err, fmt.Errorf("timeline %d has a history already, and cannot be promoted to", number))
	}
	return nil
}

// IsReserved says whether the content of a history file is that of a reserved timeline.
func IsReserved(content []byte) bool {
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.HasSuffix(lines[len(lines)-1], "\t"+reservedReason)
}

// DropReserved removes reserved timelines that are newer than any real one: a promotion that was meant to skip them did not come,
// and a standby that is started would take the newest for the one to follow.
func (v *Volume) DropReserved() error {
	for {
		newest, err := v.newest()
		if err != nil || newest == 0 {
			return err
		}
		content, err := os.ReadFile(v.historyPath(newest))
		if err != nil {
			return fmt.Errorf("reading the history of timeline %d: %w", newest, err)
		}
		if !IsReserved(content) {
			return nil
		}
		if err := os.Remove(v.historyPath(newest)); err != nil {
			return fmt.Errorf("removing the history of a timeline that was not used: %w", err)
		}
	}
}
