package postgres

import (
	"fmt"
	"strconv"
	"strings"
)

// Fork is where a timeline was left for the next one.
type Fork struct {
	// Timeline that ended, and the position at which the next one began.
	Timeline int64
	End      LSN
}

// History is how a timeline came to be: its ancestors, the oldest first. That of timeline 1 is empty.
type History []Fork

// HistoryFile is the name of a timeline's history file in pg_wal.
func HistoryFile(timeline int64) string { return fmt.Sprintf("%08X.history", timeline) }

// ParseHistory reads a history file: lines of a timeline, the LSN at which it was left and a reason; or comments
// (https://www.postgresql.org/docs/current/continuous-archiving.html#BACKUP-TIMELINES). A recovery to a moment before the timeline that it
// aims at has begun notes the end of that one only: the ancestors, which the file has as if they had gone on to where they were left, ended
// there too, and what was written to them since is no part of it. So an ancestor ends at the latest where the next one does.
func ParseHistory(content []byte) (History, error) {
	var history History
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) < 2 {
			return nil, fmt.Errorf("%q is no line of a timeline's history", strings.TrimSpace(line))
		}
		timeline, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil || timeline <= 0 {
			return nil, fmt.Errorf("%q is no timeline", fields[0])
		}
		end, err := ParseLSN(fields[1])
		if err != nil {
			return nil, err
		}
		if len(history) > 0 && history[len(history)-1].Timeline >= timeline {
			return nil, fmt.Errorf("timeline %d does not come after %d", timeline, history[len(history)-1].Timeline)
		}
		history = append(history, Fork{Timeline: timeline, End: end})
	}
	for i := len(history) - 2; i >= 0; i-- {
		history[i].End = min(history[i].End, history[i+1].End)
	}
	return history, nil
}

// End is the position at which an ancestor was left; false if the timeline is none.
func (h History) End(timeline int64) (LSN, bool) {
	for _, fork := range h {
		if fork.Timeline == timeline {
			return fork.End, true
		}
	}
	return 0, false
}

// Start is the position at which the timeline itself began; 0 for timeline 1.
func (h History) Start() LSN {
	if len(h) == 0 {
		return 0
	}
	return h[len(h)-1].End
}
