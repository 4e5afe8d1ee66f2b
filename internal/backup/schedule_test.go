package backup_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/backup"
)

var noon = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

func TestParseSchedule(t *testing.T) {
	t.Parallel()
	for text, next := range map[string]string{
		"0 2 * * *":             "2026-03-02T02:00:00Z",
		"*/15 * * * *":          "2026-03-01T12:15:00Z",
		"30 1,13 * * 1-5":       "2026-03-02T01:30:00Z",
		"@daily":                "2026-03-02T00:00:00Z",
		"@hourly":               "2026-03-01T13:00:00Z",
		"@weekly":               "2026-03-08T00:00:00Z",
		"0 0 29 2 *":            "2028-02-29T00:00:00Z",
		" 0   3 * * SUN ":       "2026-03-08T03:00:00Z",
		"0 0 1 JAN,APR-JUN/2 *": "2026-04-01T00:00:00Z",
	} {
		schedule, err := backup.ParseSchedule(text)
		if assert.NoError(t, err, text) {
			assert.Equal(t, next, schedule.Next(noon).Format(time.RFC3339), text)
		}
	}
	for text, why := range map[string]string{
		"":                 "must not be empty",
		"  ":               "must not be empty",
		"61 * * * *":       "minute 0-59",
		"0 25 * * *":       "hour 0-23",
		"0 0 30 2 *":       "never fires",
		"0 0 31 4,6 *":     "never fires",
		"0 2 * *":          "five fields",
		"0 0 2 * * *":      "five fields",
		"@every 1h":        "@every is not supported",
		"TZ=UTC 0 2 * * *": "use timeZone",
		"every day":        "five fields",
	} {
		_, err := backup.ParseSchedule(text)
		assert.ErrorContains(t, err, why, "%q", text)
	}
}

func TestOpening(t *testing.T) {
	t.Parallel()
	schedule, err := backup.ParseSchedule("0 11 * * *")
	require.NoError(t, err)
	for open, want := range map[time.Duration]time.Time{
		59 * time.Minute: noon.Add(23 * time.Hour),
		time.Hour:        noon.Add(23 * time.Hour), // it closes at that moment
		61 * time.Minute: {},
		48 * time.Hour:   {}, // always
	} {
		assert.Equal(t, want, schedule.Opening(noon, open), open)
	}
	assert.Zero(t, schedule.Opening(noon.Add(-time.Hour), time.Hour), "it opens at that moment")
	assert.Equal(t, noon.Add(-time.Hour), schedule.Opening(noon.Add(-time.Hour-time.Second), time.Hour))
}

func TestInterval(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"0 2 * * *": 24 * time.Hour, "0 * * * *": time.Hour, "0 2 * * 1-5": 72 * time.Hour, "@weekly": 7 * 24 * time.Hour,
	} {
		schedule, err := backup.ParseSchedule(text)
		require.NoError(t, err)
		assert.Equal(t, want, schedule.Interval(noon), text)
	}
}

func TestParseTimeZone(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "UTC", "Etc/UTC", "Europe/Berlin"} {
		_, err := backup.ParseTimeZone(name)
		assert.NoError(t, err, name)
	}
	for _, name := range []string{"Local", "Mars/Olympus", "../etc/passwd"} {
		_, err := backup.ParseTimeZone(name)
		assert.Error(t, err, name)
	}
}

func TestParsePeriod(t *testing.T) {
	t.Parallel()
	for text, days := range map[string]int{"1d": 1, "30d": 30, "4w": 28, "3650d": 3650, "521w": 3647} {
		period, err := backup.ParsePeriod(text)
		assert.NoError(t, err, text)
		assert.Equal(t, time.Duration(days)*24*time.Hour, period, text)
	}
	for _, text := range []string{"", "d", "0d", "-1d", "forever", "30", "30h", "1.5d", "3651d", "9999w", "999999999999999999999d"} {
		_, err := backup.ParsePeriod(text)
		assert.Error(t, err, text)
	}
}
