package postgres

import (
	"fmt"
	"strconv"
	"strings"
)

// LSN is a position in the WAL (https://www.postgresql.org/docs/current/datatype-pg-lsn.html). Zero is no position.
type LSN uint64

// ParseLSN reads the form that PostgreSQL prints, such as 0/3000148.
func ParseLSN(text string) (LSN, error) {
	high, low, ok := strings.Cut(text, "/")
	if !ok {
		return 0, fmt.Errorf("%q is no LSN", text)
	}
	h, err := strconv.ParseUint(high, 16, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is no LSN", text)
	}
	l, err := strconv.ParseUint(low, 16, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is no LSN", text)
	}
	return LSN(h<<32 | l), nil
}

// String is the form that PostgreSQL prints.
func (l LSN) String() string { return fmt.Sprintf("%X/%X", uint64(l)>>32, uint64(l)&0xFFFFFFFF) }

// Position is how far a data directory has come: a higher timeline is always further, whatever the LSN.
type Position struct {
	Timeline int64
	LSN      LSN
}

// Compare is negative if p is behind q, positive if it is ahead.
func (p Position) Compare(q Position) int {
	switch {
	case p.Timeline != q.Timeline:
		return sign(p.Timeline < q.Timeline)
	case p.LSN != q.LSN:
		return sign(p.LSN < q.LSN)
	}
	return 0
}

func sign(less bool) int {
	if less {
		return -1
	}
	return 1
}
