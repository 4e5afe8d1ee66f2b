package backup

import "time"

const (
	// StartingDeadline is how late a backup may begin that was not begun when it was due, such as while Kubernetes was down.
	StartingDeadline = 6 * time.Hour
	// missedMemory is how far back the times of a schedule are looked at.
	missedMemory = 31 * 24 * time.Hour
	// beginGrace is how long after its time a backup may begin without being late.
	beginGrace = time.Minute
)

// Course is what became of the times at which backups were due.
type Course struct {
	// Waits is the time for which none was begun, and may yet be; zero: there is none.
	Waits time.Time
	// Missed is how many passed for good, and Last the last of them.
	Missed int
	Last   time.Time
	// Recheck is when another will have passed, should no news come.
	Recheck time.Time
}

// Course says what became of the times of the schedule from that one, which is the first that is not accounted for; begun are those for which
// backups were begun, also late. A CronJob begins one for the last of the times that have passed only, and not after StartingDeadline. The location of
// now is the schedule's time zone.
func (s Schedule) Course(from time.Time, begun []time.Time, now time.Time) Course {
	minutes := map[int64]bool{}
	for _, t := range begun {
		minutes[t.Unix()/60] = true
	}
	c := Course{}
	due := from.In(now.Location())
	switch earliest := now.Add(-missedMemory); {
	case from.IsZero(): // nothing was ever due
		due = s.Next(now)
	case due.Before(earliest):
		due = s.Next(earliest)
	}
	for !due.IsZero() && !due.After(now) {
		next := s.Next(due)
		late := due.Add(StartingDeadline)
		if !next.IsZero() && next.Before(late) {
			late = next
		}
		late = late.Add(beginGrace)
		switch {
		case minutes[due.Unix()/60]:
		case late.After(now):
			if c.Waits.IsZero() {
				c.Waits, c.Recheck = due, late
			}
		default:
			c.Missed, c.Last = c.Missed+1, due
		}
		due = next
	}
	if c.Recheck.IsZero() && !due.IsZero() {
		c.Recheck = due.Add(beginGrace)
	}
	return c
}
