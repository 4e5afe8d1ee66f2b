package backup_test

import (
	"fmt"
	"math/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// on is the backup as one that ended there.
func on(b backup.Backup, timeline int64, stop string) backup.Backup {
	b.Timeline, b.StopLSN = timeline, stop
	return b
}

func abandoned(b backup.Backup) backup.Backup { b.Abandoned = true; return b }

// third is timeline 3, which left 2 at 0/5000000, which left 1 at 0/3000148.
var third = backup.Line{Timeline: 3, History: postgres.History{{Timeline: 1, End: 0x3000148}, {Timeline: 2, End: 0x5000000}}}

func TestAbandons(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		line     backup.Line
		timeline int64
		stop     string
		want     bool
	}{
		"on the line":                       {third, 3, "0/6000000", false},
		"before its timeline was left":      {third, 1, "0/3000000", false},
		"just when it was left":             {third, 1, "0/3000148", false},
		"after it was left":                 {third, 1, "0/3000149", true},
		"after the next one was left":       {third, 2, "1/0", true},
		"on a timeline that is no ancestor": {third, 4, "0/2000000", true},
		"a skipped one that is no ancestor": {backup.Line{Timeline: 3, History: postgres.History{{Timeline: 1, End: 9}}}, 2, "0/1", true},
		"to an ancestor that is wanted":     {backup.Line{Timeline: 1}, 2, "0/4000000", true},
		"on the ancestor that is wanted":    {backup.Line{Timeline: 1}, 1, "0/4000000", false},
		"nothing is known of the line":      {backup.Line{}, 1, "0/4000000", false},
		"nothing is known of the backup":    {third, 0, "0/4000000", false},
		"its end cannot be read":            {third, 1, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.want, test.line.Abandons(on(full(1), test.timeline, test.stop)))
		})
	}
}

func TestFollow(t *testing.T) {
	t.Parallel()
	before := backup.Contents{Stanza: "pg16-2", Archive: "16-1", Backups: []backup.Backup{on(full(3), 1, "0/3000000"), on(full(2), 1, "0/4000000"), on(full(1), 3, "0/6000000")}}
	after := before.Follow(third)
	assert.Equal(t, int64(3), after.Line.Timeline)
	assert.Equal(t, "16-1", after.Archive)
	var left []bool
	for _, b := range after.Backups {
		left = append(left, b.Abandoned)
	}
	assert.Equal(t, []bool{false, true, false}, left)
	assert.False(t, before.Backups[1].Abandoned, "what it was given is as it was")
	assert.Equal(t, before.Backups, after.Follow(backup.Line{}).Backups, "nothing is known, and so nothing abandoned")
}

func TestChooseAmongTimelines(t *testing.T) {
	t.Parallel()
	named := func(b backup.Backup, name string) backup.Backup { b.Name = name; return b }
	all := backup.Contents{Stanza: "pg16-2", Backups: []backup.Backup{
		named(on(full(10), 1, "0/2000000"), "ten"), named(on(full(5), 1, "0/4000000"), "five"), named(on(full(4), 2, "0/4500000"), "four"),
		named(on(full(3), 2, "0/7000000"), "three"), named(damaged(on(full(2), 1, "0/2500000")), "bad"),
	}}
	when := func(days float64) *time.Time { at := noon.Add(-time.Duration(days * float64(day))); return &at }
	for name, test := range map[string]struct {
		line   backup.Line
		target backup.Target
		want   string
		err    string
	}{
		"the newest that leads there":       {third, backup.Target{}, "four", ""},
		"before a time":                     {third, backup.Target{Time: when(4.5)}, "ten", ""},
		"before a position":                 {third, backup.Target{LSN: "0/4100000"}, "ten", ""},
		"nothing is known":                  {backup.Line{}, backup.Target{}, "three", ""},
		"along a timeline that was left":    {backup.Line{Timeline: 1}, backup.Target{Timeline: 1}, "five", ""},
		"one by name that leads nowhere":    {third, backup.Target{Backup: "five"}, "", "backup five ended on timeline 1 at 0/4000000, which does not lead to the newest timeline: name another backup, or give targetTimeline 1"},
		"one of another than the wanted":    {backup.Line{Timeline: 1}, backup.Target{Backup: "four", Timeline: 1}, "", "does not lead to targetTimeline 1"},
		"no timeline that any leads to":     {backup.Line{Timeline: 9}, backup.Target{Timeline: 9}, "", "no good backup in the repository leads to targetTimeline 9: give another one, or none"},
		"all were left":                     {backup.Line{Timeline: 9}, backup.Target{}, "", "give targetTimeline; that of the newest backup, three, is 2"},
		"before the first that leads there": {third, backup.Target{Time: when(11)}, "", "is before the first backup"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source, err := backup.Choose([]backup.Contents{all.Follow(test.line)}, 16, test.target, noon)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.want, source.Backup.Name)
		})
	}
}

// TestAbandonedIsNotGood: what is said of backups is said of those that lead to where the cluster is.
func TestAbandonedIsNotGood(t *testing.T) {
	t.Parallel()
	all := []backup.Backup{abandoned(full(9)), full(8), abandoned(full(1))}
	newest, ok := backup.Newest(all)
	assert.True(t, ok)
	assert.Equal(t, full(8), newest)
	assert.Equal(t, full(8).Stopped, backup.FirstRecoverable(all))
	_, ok = backup.Newest(all[:1])
	assert.False(t, ok)
	assert.Zero(t, backup.FirstRecoverable(all[:1]))
	assert.Equal(t, backup.Full, backup.TypeDue(backup.Incremental, all, 7*day, noon), "the next is not made of an abandoned one")
	r := backup.Retain([]backup.Backup{full(1), abandoned(full(31)), full(40), full(50)}, 30*day, noon)
	assert.Equal(t, 3, r.KeepFull, "the true ancestor stays")
	assert.Equal(t, []string{full(50).Label}, r.Remove)
}

// TestRetainOverTimelines makes backups for a year in which the primary is lost now and then, with or without the end of its WAL, and the
// cluster recovered to an earlier time. After every step each moment within the period that the cluster has come through can be recovered
// if that was so before.
func TestRetainOverTimelines(t *testing.T) {
	t.Parallel()
	for seed := range int64(20) {
		random := rand.New(rand.NewSource(seed))
		period := time.Duration(1+random.Intn(60)) * day
		line, position, newest := backup.Line{Timeline: 1}, postgres.LSN(0), int64(1)
		var all []backup.Backup
		for n := range 365 {
			now := noon.Add(time.Duration(n) * day)
			position += 1000
			if random.Intn(3) > 0 {
				b := next(random, all, now)
				all = append(all, on(b, line.Timeline, position.String()))
			}
			if random.Intn(20) == 0 { // it goes on from up to 40 days before, on a new timeline
				left := max(line.History.Start(), position-postgres.LSN(random.Intn(40_000)), 1)
				newest += 1 + int64(random.Intn(2))
				line = backup.Line{Timeline: newest, History: append(line.History[:len(line.History):len(line.History)], postgres.Fork{Timeline: line.Timeline, End: left})}
				position = left
			}
			all = backup.Contents{Backups: all}.Follow(line).Backups
			r := backup.Retain(all, period, now)
			check(t, fmt.Sprintf("seed %d, day %d, period %s", seed, n, period), all, r, period, now)
			all = r.Keep
		}
	}
}
