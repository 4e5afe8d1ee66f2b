package backup_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/backup"
)

// TestCourse: of the times that have passed each is begun, may yet be begun, or is missed; and of those that are missed none is counted twice.
func TestCourse(t *testing.T) {
	t.Parallel()
	at := func(text string) time.Time {
		moment, err := time.Parse("2 15:04", text)
		require.NoError(t, err)
		return time.Date(2026, time.March, moment.Day(), moment.Hour(), moment.Minute(), 0, 0, time.UTC)
	}
	for what, test := range map[string]struct {
		schedule    string
		from        string
		begun       []string
		now         string
		waits, last string
		missed      int
		recheck     string
	}{
		"none was due":                        {"0 2 * * *", "2 02:00", nil, "1 12:00", "", "", 0, "2 02:01"},
		"one was begun":                       {"0 2 * * *", "2 02:00", []string{"2 02:00"}, "2 02:01", "", "", 0, "3 02:01"},
		"one was begun late":                  {"0 2 * * *", "2 02:00", []string{"2 02:00"}, "2 07:00", "", "", 0, "3 02:01"},
		"one may yet begin":                   {"0 2 * * *", "2 02:00", nil, "2 07:00", "2 02:00", "", 0, "2 08:01"},
		"one cannot begin any more":           {"0 2 * * *", "2 02:00", nil, "2 08:01", "", "2 02:00", 1, "3 02:01"},
		"three nights, the last is caught up": {"0 2 * * *", "2 02:00", []string{"4 02:00"}, "4 05:00", "", "3 02:00", 2, "5 02:01"},
		"three nights, the last may yet":      {"0 2 * * *", "2 02:00", []string{"1 02:00"}, "4 05:00", "4 02:00", "3 02:00", 2, "4 08:01"},
		"the next comes before the deadline":  {"0 * * * *", "2 02:00", []string{"2 03:00"}, "2 03:30", "", "2 02:00", 1, "2 04:01"},
		"the next has just come":              {"0 * * * *", "2 02:00", nil, "2 03:00", "2 02:00", "", 0, "2 03:01"},
		"it is a month later":                 {"0 2 * * *", "1 02:00", nil, "90 12:00", "", "", 31, ""},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			schedule, err := backup.ParseSchedule(test.schedule)
			require.NoError(t, err)
			var begun []time.Time
			for _, text := range test.begun {
				begun = append(begun, at(text))
			}
			if test.now == "90 12:00" {
				got := schedule.Course(at(test.from), begun, at("1 12:00").AddDate(0, 3, 0))
				assert.Equal(t, test.missed, got.Missed)
				return
			}
			want := backup.Course{Missed: test.missed, Recheck: at(test.recheck)}
			if test.waits != "" {
				want.Waits = at(test.waits)
			}
			if test.last != "" {
				want.Last = at(test.last)
			}
			assert.Equal(t, want, schedule.Course(at(test.from), begun, at(test.now)))
		})
	}
	hourly, err := backup.ParseSchedule("0 * * * *")
	require.NoError(t, err)
	assert.Zero(t, hourly.Course(time.Time{}, nil, at("1 12:00")).Missed, "nothing is known of when the first was due")
}
