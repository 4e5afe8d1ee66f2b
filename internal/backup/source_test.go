package backup_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/backup"
)

func TestStanza(t *testing.T) {
	t.Parallel()
	name := backup.Stanza(16, "7341234567890")
	assert.Equal(t, "pg16-7341234567890", name)
	major, system, ok := backup.ParseStanza(name)
	assert.True(t, ok)
	assert.Equal(t, 16, major)
	assert.Equal(t, "7341234567890", system)
	for _, other := range []string{"", "main", "pg-1", "pg16", "pg16-", "16-1"} {
		_, _, ok := backup.ParseStanza(other)
		assert.False(t, ok, other)
	}
}

func TestChoose(t *testing.T) {
	t.Parallel()
	lsn := func(b backup.Backup, name, stop string) backup.Backup { b.Name, b.StopLSN = name, stop; return b }
	contents := []backup.Contents{
		{Stanza: "pg15-1", Backups: []backup.Backup{lsn(full(100), "old", "0/1000000")}},
		{Stanza: "pg16-2", Backups: []backup.Backup{lsn(full(10), "ten", "0/2000000"), lsn(full(5), "five", "1/0"), damaged(lsn(full(1), "bad", "2/0"))}},
		{Stanza: "something else", Backups: []backup.Backup{full(1)}},
	}
	when := func(days float64) *time.Time { at := noon.Add(-time.Duration(days * float64(day))); return &at }
	for name, test := range map[string]struct {
		target backup.Target
		want   string
		err    string
	}{
		"the newest good one":            {backup.Target{}, "five", ""},
		"before a time":                  {backup.Target{Time: when(6)}, "ten", ""},
		"at the very end of a backup":    {backup.Target{Time: when(5)}, "five", ""},
		"before a position":              {backup.Target{LSN: "0/FFFFFFFF"}, "ten", ""},
		"by name":                        {backup.Target{Backup: "ten"}, "ten", ""},
		"by label":                       {backup.Target{Backup: full(10).Label}, "ten", ""},
		"a damaged one by name":          {backup.Target{Backup: "bad"}, "bad", ""},
		"too early":                      {backup.Target{Time: when(11)}, "", "is before the first backup"},
		"too early a position":           {backup.Target{LSN: "0/1"}, "", "targetLSN 0/1 is before the end of the first backup"},
		"in the future":                  {backup.Target{Time: when(-1)}, "", "is in the future"},
		"no such backup":                 {backup.Target{Backup: "none"}, "", `no backup "none"`},
		"of another major":               {backup.Target{Backup: "old"}, "", `no backup "old"`},
		"a named one after the time":     {backup.Target{Backup: "five", Time: when(6)}, "", "after targetTime"},
		"a named one after the position": {backup.Target{Backup: "five", LSN: "0/3000000"}, "", "after targetLSN"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source, err := backup.Choose(contents, 16, test.target, noon)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.want, source.Backup.Name)
			assert.Equal(t, "pg16-2", source.Stanza)
		})
	}
	two := append(slices.Clone(contents), backup.Contents{Stanza: "pg16-3", Backups: []backup.Backup{lsn(full(0.5), "empty", "0/1600000")}})
	for _, target := range []backup.Target{{}, {Time: when(6)}} {
		_, err := backup.Choose(two, 16, target, noon)
		require.ErrorContains(t, err, "the repository has backups of 2 PostgreSQL systems, of which the newest are: empty, which ended at ")
		require.ErrorContains(t, err, "of system 2. Create the cluster anew with the one to begin with as backup")
	}
	one, err := backup.Choose(two, 16, backup.Target{Backup: "ten", Time: when(6)}, noon)
	require.NoError(t, err)
	assert.Equal(t, "pg16-2", one.Stanza)
	_, err = backup.Choose(contents, 17, backup.Target{}, noon)
	require.ErrorContains(t, err, "PostgreSQL 15, 16 only, and spec.version is 17")
	_, err = backup.Choose(nil, 16, backup.Target{}, noon)
	require.ErrorContains(t, err, "has no backup")
	_, err = backup.Choose([]backup.Contents{{Stanza: "pg16-2", Backups: []backup.Backup{damaged(full(1))}}}, 16, backup.Target{}, noon)
	require.ErrorContains(t, err, "damaged")
}

func TestParseTime(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"2026-03-01T12:00:00Z", "2026-03-01 12:00:00Z", "2026-03-01t13:00:00.000+01:00", "2026-03-01 10:00:00-02:00"} {
		at, err := backup.ParseTime(text)
		assert.NoError(t, err, text)
		assert.True(t, noon.Equal(at), text)
	}
	for _, text := range []string{"", "2026-03-01", "2026-03-01T12:00:00", "2026-02-30T12:00:00Z", "yesterday"} {
		_, err := backup.ParseTime(text)
		assert.Error(t, err, text)
	}
}
