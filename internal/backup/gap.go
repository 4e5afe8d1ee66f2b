package backup

import (
	"fmt"

	"github.com/pgsteward/pgsteward/internal/postgres"
)

// Gap is WAL that an archive lacks although it has newer. A recovery ends there: PostgreSQL takes the first file that it does not get for the
// end of all.
type Gap struct {
	// WAL is the first file that is missing, LSN where that begins, Files how many are missing, and Next the file that is there after them.
	WAL   string `json:"wal"`
	LSN   string `json:"lsn"`
	Files int    `json:"files"`
	Next  string `json:"next"`
}

// String says what is missing.
func (g Gap) String() string {
	if g.Files == 1 {
		return fmt.Sprintf("WAL %s is missing in the archive, and the next, %s, is there", g.WAL, g.Next)
	}
	return fmt.Sprintf("%d files of WAL from %s on are missing in the archive, and the next, %s, is there", g.Files, g.WAL, g.Next)
}

// Within is the target for an archive that lacks that WAL, if it lacks any: PostgreSQL would go to the end of all, which that is then, and not say so.
// Who wishes that gives the position at which the gap begins.
func (t Target) Within(gap *Gap) (Target, error) {
	switch {
	case gap == nil:
	case t.LSN == gap.LSN:
		t.LSN = ""
	case t.Time == nil && t.LSN == "" && t.Name == "" && !t.Immediate:
		return t, fmt.Errorf("%s: a recovery to the end would lack all from there on. To recover what comes before, create the cluster anew with targetLSN %s", gap, gap.LSN)
	}
	return t, nil
}

// span is the files of WAL that a recovery along a line takes of one timeline: from the one in which it began to the last before the one in which it was
// left. That is the next one's: the old timeline's file of that number may go on with what the next one does not have.
type span struct{ timeline, first, last int64 }

// spans are those of the line, the oldest timeline first.
func (l Line) spans(from Backup) []span {
	const open = 1<<63 - 1
	if l.Timeline == 0 { // there is only the one of the backup
		return []span{{timeline: from.Timeline, last: open}}
	}
	var all []span
	began := int64(0)
	for _, fork := range l.History {
		next := postgres.SegmentAt(0, fork.End+1).Number
		all = append(all, span{timeline: fork.Timeline, first: began, last: next - 1})
		began = next
	}
	return append(all, span{timeline: l.Timeline, first: began, last: open})
}

// Needs says whether a recovery along the line that begins with the backup may need one of the files of WAL of one timeline, from the one to the
// other.
func (l Line) Needs(from Backup, first, last postgres.Segment) bool {
	stop, err := postgres.ParseLSN(from.StopLSN)
	if err != nil || last.Number < postgres.SegmentAt(0, stop).Number {
		return false
	}
	for _, p := range l.spans(from) {
		if first.Timeline == p.timeline && p.first <= last.Number && first.Number <= p.last {
			return true
		}
	}
	return false
}

// Gap is the first gap in the archive, which has those files, after the backup, in a recovery along the line; false if there is none.
func (l Line) Gap(from Backup, archived []postgres.Segment) (Gap, bool) {
	stop, err := postgres.ParseLSN(from.StopLSN)
	if err != nil || from.Abandoned {
		return Gap{}, false
	}
	there, newest := map[int64]bool{}, int64(0)
	for _, s := range archived {
		if l.Needs(from, s, s) {
			there[s.Number], newest = true, max(newest, s.Number)
		}
	}
	missing := postgres.SegmentAt(0, stop).Number
	for there[missing] {
		missing++
	}
	if missing > newest {
		return Gap{}, false
	}
	next := missing
	for !there[next] {
		next++
	}
	first := postgres.Segment{Timeline: l.owner(from, missing), Number: missing}
	return Gap{
		WAL: first.String(), LSN: first.Start().String(), Files: int(next - missing),
		Next: postgres.Segment{Timeline: l.owner(from, next), Number: next}.String(),
	}, true
}

// owner is the newest of the timelines that have a file of that number.
func (l Line) owner(from Backup, number int64) (timeline int64) {
	for _, p := range l.spans(from) {
		if p.first <= number {
			timeline = p.timeline
		}
	}
	return timeline
}
