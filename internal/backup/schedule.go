package backup

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Schedule is when backups are made.
type Schedule struct{ cron cron.Schedule }

// reference is a time from which every schedule that ever fires does so within the years that the library looks ahead: the next
// 29 February is in less than four years.
var reference = time.Date(2025, time.January, 1, 0, 0, 0, 0, time.UTC)

// ParseSchedule understands what a CronJob does: five fields with lists, ranges and steps, or @hourly, @daily, @weekly, @monthly,
// @yearly. A schedule that never fires is an error.
func ParseSchedule(text string) (Schedule, error) {
	trimmed := strings.TrimSpace(text)
	switch {
	case trimmed == "":
		return Schedule{}, errors.New(`must not be empty: give five fields such as "0 2 * * *" (every day at two), or leave it out for no schedule`)
	case strings.Contains(trimmed, "TZ"):
		return Schedule{}, errors.New("must not name a time zone: use timeZone")
	case strings.HasPrefix(trimmed, "@every"):
		return Schedule{}, errors.New(`@every is not supported, since it counts from whenever the operator started: give five fields such as "0 */6 * * *"`)
	}
	parsed, err := cron.ParseStandard(trimmed)
	if err != nil {
		return Schedule{}, fmt.Errorf(`%w: give five fields (minute 0-59, hour 0-23, day of month 1-31, month 1-12, day of week 0-6), such as "0 2 * * *"`, err)
	}
	if parsed.Next(reference).IsZero() {
		return Schedule{}, errors.New("never fires: there is no such day in any year")
	}
	return Schedule{cron: parsed}, nil
}

// Next is the first time after t at which a backup is due; t's location is the schedule's time zone.
func (s Schedule) Next(t time.Time) time.Time { return s.cron.Next(t) }

// Opening is when a window opens next that the schedule opens and that stays open for so long; zero: it is open at t.
func (s Schedule) Opening(t time.Time, open time.Duration) time.Time {
	if last := s.cron.Next(t.Add(-open)); !last.After(t) {
		return time.Time{}
	}
	return s.cron.Next(t)
}

// Interval is about how long two backups are apart: the longest of the next few pauses.
func (s Schedule) Interval(now time.Time) time.Duration {
	longest, last := time.Duration(0), s.cron.Next(now)
	for range 10 {
		next := s.cron.Next(last)
		if next.IsZero() {
			break
		}
		longest, last = max(longest, next.Sub(last)), next
	}
	return longest
}

// ParseTimeZone is the time zone of a schedule; empty is UTC.
func ParseTimeZone(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, errors.New(`must be the name of a time zone such as Europe/Berlin, not "Local"`)
	}
	location, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("%q is not the name of a time zone such as Europe/Berlin", name)
	}
	return location, nil
}
