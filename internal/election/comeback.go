package election

import "github.com/pgsteward/pgsteward/internal/postgres"

// Way is how an instance with data becomes a standby of the holder.
type Way int

// The ways. The zero value is that it cannot be said yet.
const (
	// WaitForUpstream: it is not known where the holder's history left that of the data.
	WaitForUpstream Way = iota
	// Follow: all data is part of the holder's history.
	Follow
	// Rewind: the data has, or may have, what the holder's history has not; pg_rewind takes it back.
	Rewind
	// Reclone: it cannot be taken back.
	Reclone
)

// Upstream is the holder, as far as it matters to who comes back to it.
type Upstream struct {
	// Primary says whether it runs read-write: only then its history is complete.
	Primary  bool
	Timeline int64
	// Ends says where its history left each earlier timeline.
	Ends map[int64]postgres.LSN
	// Refused says whether PostgreSQL has run with this data as its standby and said that it cannot follow.
	Refused bool
}

// ComeBack says how data that is not running becomes a standby of the upstream. Timelines are given once, so data of a timeline
// that is in the upstream's history is the same up to where that timeline was left.
//
// A standby that runs needs no decision: PostgreSQL follows where it can and says so where it cannot. A standby is started even if
// there is no primary, or it does not answer (the zero Upstream): only a server that runs can say what it has, and only one that
// runs can take over. So is a primary that was shut down properly: its data ends where it says. One that crashed waits: nobody knows
// how much it has, so that it comes before all others of its timeline.
func ComeBack(own Data, upstream Upstream, canRewind bool) Way {
	return comeBack(own, upstream, canRewind, nil)
}

func comeBack(own Data, upstream Upstream, canRewind bool, off without) Way {
	rewind := Reclone
	if canRewind {
		rewind = Rewind
	}
	switch {
	case !own.Kind.HasData(), own.Kind == DataPrimary && !own.Clean && !upstream.Primary:
		return WaitForUpstream
	case !upstream.Primary:
		return Follow // it must run in order to say what it has; if it has too much PostgreSQL says so later
	}
	timeline, lsn := own.Position.Timeline, own.Position.LSN
	if timeline == upstream.Timeline {
		if own.Kind == DataPrimary {
			return Reclone // two wrote on one timeline, which must not be: their data cannot be told apart
		}
		if upstream.Refused && !off["come-back/refused"] {
			return rewind
		}
		return Follow
	}
	end, shared := upstream.Ends[timeline]
	switch {
	case off["come-back/fork"]:
		return Follow
	case timeline > upstream.Timeline || !shared || upstream.Refused && !off["come-back/refused"]:
		return rewind
	case own.Kind == DataPrimary && own.Clean && lsn < end: // its last record, the shutdown checkpoint, begins there
		return Follow
	case own.Kind == DataStandby && lsn <= end:
		return Follow
	}
	return rewind
}
