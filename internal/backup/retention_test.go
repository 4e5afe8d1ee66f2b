package backup_test

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/backup"
)

const day = 24 * time.Hour

// at is a backup that ended that many days before noon.
func at(days float64, kind backup.Type, of string) backup.Backup {
	stopped := noon.Add(-time.Duration(days * float64(day)))
	b := backup.Backup{Type: kind, Started: stopped.Add(-time.Minute), Stopped: stopped, Label: stopped.Format("20060102-150405") + "F"}
	if kind != backup.Full {
		suffix := map[backup.Type]string{backup.Differential: "D", backup.Incremental: "I"}[kind]
		b.Label = of + "_" + stopped.Format("20060102-150405") + suffix
		b.Needs = []string{of}
	}
	return b
}

func full(days float64) backup.Backup { return at(days, backup.Full, "") }

func damaged(b backup.Backup) backup.Backup { b.Damaged = true; return b }

func TestRetain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		all      []backup.Backup
		keepFull int
		keep     []float64 // days of those that stay, the oldest first
	}{
		"nothing there is":             {nil, 1, nil},
		"the last one, however old":    {[]backup.Backup{full(400)}, 1, []float64{400}},
		"all within the period":        {[]backup.Backup{full(1), full(2), full(29)}, 3, []float64{29, 2, 1}},
		"and the newest before it":     {[]backup.Backup{full(1), full(29), full(31), full(32)}, 3, []float64{31, 29, 1}},
		"one that is exactly as old":   {[]backup.Backup{full(1), full(30), full(31)}, 2, []float64{30, 1}},
		"not a damaged one for a good": {[]backup.Backup{full(1), damaged(full(31)), full(40), full(50)}, 3, []float64{40, 31, 1}},
		"the last good behind damaged": {[]backup.Backup{damaged(full(1)), damaged(full(2)), full(90), full(99)}, 3, []float64{90, 2, 1}},
		"all if none is good":          {[]backup.Backup{damaged(full(40)), damaged(full(50))}, 2, []float64{50, 40}},
		"what needs a kept one":        {[]backup.Backup{full(35), at(34, backup.Incremental, full(35).Label), full(45), at(44, backup.Differential, full(45).Label)}, 1, []float64{35, 34}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := backup.Retain(test.all, 30*day, noon)
			assert.Equal(t, test.keepFull, r.KeepFull)
			var days []float64
			for _, b := range r.Keep {
				days = append(days, noon.Sub(b.Stopped).Hours()/24)
			}
			assert.Equal(t, test.keep, days)
			assert.Len(t, r.Remove, len(test.all)-len(r.Keep))
		})
	}
}

// TestRetainOverAYear makes backups for a year by random methods, with failures and damage, and applies the retention after each, as it
// is done in life. After every step all that must hold is checked in the slow and obvious way.
func TestRetainOverAYear(t *testing.T) {
	t.Parallel()
	for seed := range int64(20) {
		random := rand.New(rand.NewSource(seed))
		period := time.Duration(1+random.Intn(60)) * day
		var all []backup.Backup
		begin := noon
		for n := range 365 {
			now := begin.Add(time.Duration(n)*day + time.Duration(random.Intn(3600))*time.Second)
			if random.Intn(10) > 0 { // else it failed
				all = append(all, next(random, all, now))
			}
			before := slices.Clone(all)
			random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			r := backup.Retain(all, period, now)
			check(t, fmt.Sprintf("seed %d, day %d, period %s", seed, n, period), before, r, period, now)
			all = r.Keep
		}
	}
}

// next is a backup that ends now.
func next(random *rand.Rand, all []backup.Backup, now time.Time) backup.Backup {
	b := backup.Backup{Type: backup.Full, Label: now.Format("20060102-150405") + "F", Started: now.Add(-time.Minute), Stopped: now, Damaged: random.Intn(20) == 0}
	if newest, ok := backup.Newest(all); ok && random.Intn(3) > 0 {
		b.Type, b.Label = backup.Incremental, newest.FullLabel()+"_"+now.Format("20060102-150405")+"I"
	}
	return b
}

func check(t *testing.T, what string, all []backup.Backup, r backup.Retention, period time.Duration, now time.Time) {
	t.Helper()
	require.GreaterOrEqual(t, r.KeepFull, 1, what)
	require.Len(t, r.Keep, len(all)-len(r.Remove), what)
	kept := map[string]bool{}
	fulls := 0
	for _, b := range r.Keep {
		kept[b.Label] = true
		if b.Type == backup.Full {
			fulls++
		}
	}
	for _, b := range r.Keep {
		require.True(t, kept[b.FullLabel()], "%s: %s is kept without the full one that it needs", what, b.Label)
	}
	for _, label := range r.Remove {
		require.False(t, kept[label], what)
	}
	if len(all) > 0 {
		require.Equal(t, r.KeepFull, fulls, "%s: what the engine counts is what stays", what)
	}
	good := func(list []backup.Backup, by time.Time) bool { // whether that time can be recovered
		return slices.ContainsFunc(list, func(b backup.Backup) bool { return b.Type == backup.Full && b.Good() && !b.Stopped.After(by) })
	}
	require.Equal(t, good(all, now), good(r.Keep, now), "%s: the last good one", what)
	for moment := now.Add(-period); !moment.After(now); moment = moment.Add(period / 7) {
		require.Equal(t, good(all, moment), good(r.Keep, moment), "%s: %s could be recovered", what, moment)
	}
	// no more than that is kept: of the good full ones that are older than the period, only the newest
	old := 0
	for _, b := range r.Keep {
		if b.Type == backup.Full && b.Good() && b.Stopped.Before(now.Add(-period)) {
			old++
		}
	}
	require.LessOrEqual(t, old, 1, what)
}

func TestTypeDue(t *testing.T) {
	t.Parallel()
	week := 7 * day
	recent := []backup.Backup{full(3)}
	assert.Equal(t, backup.Full, backup.TypeDue(backup.Full, recent, week, noon))
	assert.Equal(t, backup.Full, backup.TypeDue("", recent, week, noon))
	assert.Equal(t, backup.Incremental, backup.TypeDue(backup.Incremental, recent, week, noon))
	assert.Equal(t, backup.Full, backup.TypeDue(backup.Incremental, nil, week, noon))
	assert.Equal(t, backup.Full, backup.TypeDue(backup.Differential, []backup.Backup{full(7)}, week, noon))
	assert.Equal(t, backup.Full, backup.TypeDue(backup.Incremental, []backup.Backup{damaged(full(1))}, week, noon))
}
