package main

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"
)

// report is the result of a round.
type report struct {
	Round   int32     `json:"round"`
	Began   time.Time `json:"began"`
	Seconds float64   `json:"seconds"`

	Acked     int            `json:"acked"`     // by all writers
	Written   int            `json:"written"`   // through the Service
	MaxGapMS  float64        `json:"maxGapMS"`  // the longest time without a row through the Service
	SumGapsMS float64        `json:"sumGapsMS"` // of all gaps above the threshold
	Gaps      []gap          `json:"gaps"`
	Errors    map[string]int `json:"errors"`
	Servers   map[string]int `json:"servers"`

	Checked    bool     `json:"checked"`
	Problem    string   `json:"problem,omitempty"`
	Lost       int      `json:"lost"` // acknowledged, and not in the table
	LostSpanMS float64  `json:"lostSpanMS"`
	Losses     []string `json:"losses,omitempty"` // some of them
	Unknown    int      `json:"unknown"`          // in the table, never acknowledged: allowed
	Violations []string `json:"violations,omitempty"`

	Reads       int            `json:"reads"`
	ReadErrors  map[string]int `json:"readErrors"`
	ForeignRead int            `json:"foreignReads"` // of rows that the table does not have in the end
	LastForeign time.Time      `json:"lastForeign"`
}

// gap is a time without an acknowledged row through the Service.
type gap struct {
	At   time.Time `json:"at"`
	MS   float64   `json:"ms"`
	From string    `json:"from"`
	To   string    `json:"to"`
}

// threshold is from where on a pause is listed as a gap: a busy machine makes short ones by itself.
const threshold = 250 * time.Millisecond

// someLosses is how many are listed.
const someLosses = 20

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// measure finds the gaps and what is wrong by itself, without the table.
func (t taken) measure(l *ledger) report {
	r := report{
		Began: l.wall(t.began), Seconds: (t.ended - t.began).Seconds(), Acked: len(t.acks), Gaps: []gap{},
		Errors: t.errors, Servers: map[string]int{}, Reads: len(t.reads), ReadErrors: t.faults,
	}
	last := ack{end: t.began}
	note := func(next ack) {
		d := next.end - last.end
		r.MaxGapMS = max(r.MaxGapMS, milliseconds(d))
		if d > threshold {
			r.SumGapsMS += milliseconds(d)
			r.Gaps = append(r.Gaps, gap{l.wall(last.end), milliseconds(d), last.instance, next.instance})
		}
		last = next
	}
	for _, a := range t.acks {
		if a.writer == throughService {
			r.Written++
			r.Servers[a.instance]++
			note(a)
		}
	}
	note(ack{end: t.ended})
	r.Violations = strangers(t.acks, t.moves)
	for of := range bySystem(t.acks) {
		r.Violations = append(r.Violations, twoPrimaries(of)...)
	}
	return r
}

// twoPrimaries finds rows that were begun on an older timeline after a newer one had acknowledged a row, and timelines on which two
// instances wrote.
func twoPrimaries(acks []ack) []string {
	var found []string
	first := map[int64]ack{} // of each timeline, the row acknowledged first
	for _, a := range acks {
		f, seen := first[a.timeline]
		if seen && f.instance != a.instance {
			found = append(found, fmt.Sprintf("timeline %d: rows by %s (number %d) and by %s (number %d)", a.timeline, f.instance, f.seq, a.instance, a.seq))
		}
		if !seen || a.end < f.end {
			first[a.timeline] = a
		}
	}
	for _, a := range acks {
		for timeline, f := range first {
			if timeline > a.timeline && a.start > f.end {
				found = append(found, fmt.Sprintf("%s acknowledged number %d of timeline %d, begun %.1f ms after %s had acknowledged on timeline %d",
					a.instance, a.seq, a.timeline, milliseconds(a.start-f.end), f.instance, timeline))
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)[:min(len(found), someLosses)]
}

// bySystem gives the rows of each database system: each has timelines of its own.
func bySystem(acks []ack) iter.Seq[[]ack] {
	of := map[int64][]ack{}
	for _, a := range acks {
		of[a.system] = append(of[a.system], a)
	}
	return maps.Values(of)
}

// strangers finds rows of more database systems than the writes have moved to, one after the other.
func strangers(acks []ack, moves int) []string {
	var found []string
	for i := 1; i < len(acks); i++ {
		before, a := acks[i-1], acks[i]
		if a.system == before.system {
			continue
		}
		if moves--; moves < 0 {
			found = append(found, fmt.Sprintf("rows of system %d (%s), then of %d (%s, number %d)", before.system, before.instance, a.system, a.instance, a.seq))
		}
	}
	return found[:min(len(found), someLosses)]
}

// row is what the table has under a number.
type row struct {
	copies   int
	instance string
	timeline int64
}

// compare holds what was acknowledged against the table.
func (r *report) compare(t taken, table map[int64]row, l *ledger) {
	r.Checked = true
	acked := make(map[int64]bool, len(t.acks))
	newest := map[string]int64{} // by writer and timeline, the highest number that was kept
	history := func(a ack) string { return fmt.Sprint(a.writer, "/", a.timeline) }
	var lost []ack
	for _, a := range t.acks {
		acked[a.seq] = true
		kept, there := table[a.seq]
		switch {
		case !there:
			lost = append(lost, a)
		case kept.instance != a.instance || kept.timeline != a.timeline:
			r.Violations = append(r.Violations, fmt.Sprintf("number %d was acknowledged by %s on timeline %d; the table has it from %s on %d",
				a.seq, a.instance, a.timeline, kept.instance, kept.timeline))
		default:
			newest[history(a)] = max(newest[history(a)], a.seq)
		}
	}
	r.lose(lost, newest, history)
	for seq, kept := range table {
		if kept.copies > 1 {
			r.Violations = append(r.Violations, fmt.Sprintf("number %d is in the table %d times", seq, kept.copies))
		}
		if !acked[seq] {
			r.Unknown++
		}
	}
	for _, saw := range t.reads {
		if _, there := table[saw.seq]; !there {
			r.ForeignRead++
			r.LastForeign = l.wall(saw.at)
		}
	}
}

// lose reports lost rows. What is lost in a failover is the end of a timeline: a row lost before one that was kept is damage.
func (r *report) lose(lost []ack, newest map[string]int64, history func(ack) string) {
	r.Lost = len(lost)
	if r.Lost == 0 {
		return
	}
	slices.SortFunc(lost, func(a, b ack) int { return cmp.Compare(a.end, b.end) })
	r.LostSpanMS = milliseconds(lost[len(lost)-1].end - lost[0].end)
	for _, a := range lost {
		if len(r.Losses) < someLosses {
			r.Losses = append(r.Losses, fmt.Sprintf("%s/%d by %s on timeline %d", a.writer, a.seq, a.instance, a.timeline))
		}
		if a.seq < newest[history(a)] {
			r.Violations = append(r.Violations, fmt.Sprintf("number %d of timeline %d is lost, but number %d is there", a.seq, a.timeline, newest[history(a)]))
			return
		}
	}
}
