package backup_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/backup"
)

func TestParseInPlace(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"name": "a", "targetTime": "2026-03-01T13:00:00+01:00"}`:                            "2026-03-01T12:00:00Z",
		`{"name": "a", "targetTime": "2026-03-01 12:00:00Z", "exclusive": true}`:              "just before 2026-03-01T12:00:00Z",
		`{"name": "after-the-mistake", "targetLSN": "0/5000148", "targetTimeline": 2}`:        "position 0/5000148 on timeline 2",
		`{"name": "a", "targetName": "before", "backup": "nightly", "skipSafetyBackup":true}`: "point before",
		`{"name": "a", "targetImmediate": true, "backup": "nightly"}`:                         "the end of backup nightly",
	} {
		wish, err := backup.ParseInPlace(text)
		if assert.NoError(t, err, text) {
			assert.Equal(t, want, wish.Target.String(), text)
		}
	}
	wish, err := backup.ParseInPlace(`{"name": "a", "targetName": "before", "backup": "nightly", "skipSafetyBackup": true}`)
	require.NoError(t, err)
	assert.Equal(t, backup.InPlace{Name: "a", WithoutBackup: true, Target: backup.Target{Name: "before", Backup: "nightly"}}, wish)
	for text, why := range map[string]string{
		"":                                     "must be JSON",
		"true":                                 "must be JSON",
		"2026-03-01T12:00:00Z":                 "must be JSON",
		`{"targetTime": "yesterday"}`:          "name must be given",
		`{"name": "Über", "targetLSN": "0/1"}`: "name must be given",
		`{"name": "a"}`:                        "must have one of",
		`{"name": "a", "targetLSN": "0/1", "targetName": "b"}`:                     "must have one of",
		`{"name": "a", "targetTime": "yesterday"}`:                                 "no time with a time zone",
		`{"name": "a", "targetTime": "2026-03-01T12:00:00"}`:                       "no time with a time zone",
		`{"name": "a", "targetLSN": "5000148"}`:                                    "must be a position",
		`{"name": "a", "targetName": "b"}`:                                         "backup must be given",
		`{"name": "a", "targetName": "it's", "backup": "b"}`:                       "targetName must be",
		`{"name": "a", "targetImmediate": true}`:                                   "backup must be given",
		`{"name": "a", "targetImmediate": true, "backup": "b", "exclusive": true}`: "exclusive goes with",
		`{"name": "a", "targetLSN": "0/1", "targetTimeline": -1}`:                  "must be positive",
		`{"name": "a", "targetLSN": "0/1", "target": "b"}`:                         "unknown field",
		`{"name": "a", "targetLSN": "0/1"} {}`:                                     "nothing after it",
	} {
		_, err := backup.ParseInPlace(text)
		assert.ErrorContains(t, err, why, text)
	}
}
