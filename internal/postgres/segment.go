package postgres

import (
	"fmt"
	"strconv"
)

// SegmentSize is how many bytes a file of WAL has, as initdb makes it unless it is told otherwise, which we do not
// (https://www.postgresql.org/docs/current/app-initdb.html, --wal-segsize).
const SegmentSize = 16 << 20

const (
	// segmentsPerLog is how many files of WAL share the first 16 digits of their names.
	segmentsPerLog = 1 << 32 / SegmentSize
	segmentDigits  = 24
)

// Segment is a file of WAL: of that timeline, the one that begins at that multiple of SegmentSize.
type Segment struct {
	Timeline int64
	Number   int64
}

// SegmentAt is the file that has the byte before that position: the last one of all that comes before it.
func SegmentAt(timeline int64, end LSN) Segment {
	return Segment{Timeline: timeline, Number: int64(max(end, 1)-1) / SegmentSize} //nolint:gosec // a position has 63 bits at most
}

// ParseSegment reads the name of a file of WAL; false if it is none.
func ParseSegment(name string) (Segment, bool) {
	if len(name) != segmentDigits {
		return Segment{}, false
	}
	var parts [3]int64
	for i := range parts {
		part, err := strconv.ParseUint(name[8*i:8*i+8], 16, 32)
		if err != nil {
			return Segment{}, false
		}
		parts[i] = int64(part) //nolint:gosec // 32 bits
	}
	return Segment{Timeline: parts[0], Number: parts[1]*segmentsPerLog + parts[2]}, parts[2] < segmentsPerLog
}

// String is its name in pg_wal.
func (s Segment) String() string {
	return fmt.Sprintf("%08X%08X%08X", s.Timeline, s.Number/segmentsPerLog, s.Number%segmentsPerLog)
}

// ParseLog reads what the names of 256 files of WAL begin with, which is the name of a folder in an archive: the first of them and the last;
// false if it is no such name.
func ParseLog(name string) (first, last Segment, ok bool) {
	first, ok = ParseSegment(name + "00000000")
	last = Segment{Timeline: first.Timeline, Number: first.Number + segmentsPerLog - 1}
	return first, last, ok
}

// Start is the position at which it begins.
func (s Segment) Start() LSN { return LSN(s.Number) * SegmentSize } //nolint:gosec // never negative
