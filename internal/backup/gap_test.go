package backup_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// TestGap: WAL that is missing in the middle is found, and nothing is that only seems to be missing.
func TestGap(t *testing.T) {
	t.Parallel()
	// timeline 1 was left in the middle of file 5 for timeline 2, that at once for 3, and that at the end of file 8 for 5
	lines := map[string]backup.Line{
		"first": {},
		"fifth": {Timeline: 5, History: postgres.History{{Timeline: 1, End: 0x5000800}, {Timeline: 2, End: 0x5000900}, {Timeline: 3, End: 0x9000000}}},
		// a recovery to a moment before timeline 2 began made timeline 3
		"before": {Timeline: 3, History: postgres.History{{Timeline: 1, End: 0x4000100}, {Timeline: 2, End: 0x4000100}}},
	}
	for name, c := range map[string]struct {
		line, stop, archived, want string
	}{
		"nothing was archived":             {"first", "0/3000100", "", ""},
		"only the backup's own":            {"first", "0/3000100", "1:3", ""},
		"all is there":                     {"first", "0/3000100", "1:1 1:2 1:3 1:4 1:5 1:6", ""},
		"older is missing":                 {"first", "0/3000100", "1:1 1:3 1:4", ""},
		"one is missing":                   {"first", "0/3000100", "1:3 1:5", "WAL 000000010000000000000004 is missing in the archive, and the next, 000000010000000000000005, is there"},
		"two are missing":                  {"first", "0/3000100", "1:3 1:6 1:8", "2 files of WAL from 000000010000000000000004 on are missing in the archive, and the next, 000000010000000000000006, is there"},
		"other timelines do not count":     {"first", "0/3000100", "1:3 2:9 7:9", ""},
		"across timelines":                 {"fifth", "0/3000100", "1:3 1:4 3:5 3:6 3:7 3:8 5:9", ""},
		"the old one's file of the fork":   {"fifth", "0/3000100", "1:3 1:4 1:5 3:6 3:7 3:8 5:9", "WAL 000000030000000000000005 is missing in the archive, and the next, 000000030000000000000006, is there"},
		"nothing after the fork":           {"fifth", "0/3000100", "1:3 1:4 1:5", ""},
		"the old timeline after its end":   {"fifth", "0/3000100", "1:3 1:4 1:5 1:6 3:7", "2 files of WAL from 000000030000000000000005 on are missing in the archive, and the next, 000000030000000000000007, is there"},
		"the new timeline before it began": {"fifth", "0/3000100", "1:3 5:4 5:5", ""},
		"the file of the fork":             {"fifth", "0/3000100", "1:3 1:4 3:6", "WAL 000000030000000000000005 is missing in the archive, and the next, 000000030000000000000006, is there"},
		"the first of the last timeline":   {"fifth", "0/3000100", "1:3 1:4 3:5 3:6 3:7 3:8 5:A", "WAL 000000050000000000000009 is missing in the archive, and the next, 00000005000000000000000A, is there"},
		"a backup at the end of a file":    {"first", "0/4000000", "1:3 1:4", ""},
		"ends that go backwards":           {"before", "0/3000100", "1:3 3:4 3:5", ""},
		"a backup without a position":      {"first", "", "1:3 1:5", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var archived []postgres.Segment
			for _, file := range strings.Fields(c.archived) {
				timeline, number, _ := strings.Cut(file, ":")
				segment, ok := postgres.ParseSegment("0000000" + timeline + "00000000" + "0000000" + number)
				require.True(t, ok)
				archived = append(archived, segment)
			}
			gap, found := lines[c.line].Gap(backup.Backup{Timeline: 1, StopLSN: c.stop}, archived)
			require.Equal(t, c.want != "", found)
			if found {
				require.Equal(t, c.want, gap.String())
				first, _ := postgres.ParseSegment(gap.WAL)
				require.Equal(t, first.Start().String(), gap.LSN)
			}
		})
	}
}

// TestWithin: a recovery to the end does not pass a gap over in silence.
func TestWithin(t *testing.T) {
	t.Parallel()
	gap := &backup.Gap{WAL: "000000010000000000000004", LSN: "0/4000000", Files: 1, Next: "000000010000000000000005"}
	at := noon
	for _, target := range []backup.Target{{Time: &at}, {LSN: "0/3000200"}, {Name: "before"}, {Immediate: true}} {
		got, err := target.Within(gap)
		require.NoError(t, err)
		require.Equal(t, target, got)
	}
	_, err := backup.Target{}.Within(gap)
	require.ErrorContains(t, err, "a recovery to the end would lack all from there on. To recover what comes before, create the cluster anew with targetLSN 0/4000000")
	got, err := backup.Target{LSN: "0/4000000", Timeline: 2}.Within(gap)
	require.NoError(t, err)
	require.Equal(t, backup.Target{Timeline: 2}, got)
	got, err = backup.Target{}.Within(nil)
	require.NoError(t, err)
	require.Equal(t, backup.Target{}, got)
}
