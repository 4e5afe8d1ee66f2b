package backup_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/backup"
)

// wish is one in a cluster of two that can be backed up, changed by the test.
func wish(change func(*backup.Wish)) backup.Wish {
	w := backup.Wish{
		Now: noon, ID: "w", Created: noon.Add(-time.Minute),
		Instances: []backup.Instance{{Name: "db-1", Primary: true, Serves: true}, {Name: "db-2", Standby: true, Serves: true, Lag: 5}},
		Runners:   []backup.Runner{{Name: "db-1", Heard: true, Ready: true}, {Name: "db-2", Heard: true, Ready: true}},
	}
	change(&w)
	return w
}

// running is one whose first attempt db-2 makes.
func running(change func(*backup.Wish)) backup.Wish {
	return wish(func(w *backup.Wish) {
		w.Attempts, w.Running, w.Runner, w.Started = 1, true, "db-2", noon.Add(-10*time.Minute)
		change(w)
	})
}

func attempt(a backup.Attempt) func(*backup.Wish) {
	return func(w *backup.Wish) { w.Runners[1].Attempt = &a }
}

func TestNext(t *testing.T) {
	t.Parallel()
	result := full(0)
	for name, test := range map[string]struct {
		wish    backup.Wish
		step    backup.Step
		runner  string
		message string
	}{
		"reads the standby":                      {wish(func(*backup.Wish) {}), backup.Begin, "db-2", ""},
		"reads the primary if there is no other": {wish(func(w *backup.Wish) { w.Instances[1].Serves = false }), backup.Begin, "db-1", ""},
		"has the host do it": {wish(func(w *backup.Wish) {
			w.Host, w.Runners = "host", append(w.Runners, backup.Runner{Name: "host", Heard: true, Ready: true})
		}), backup.Begin, "host", ""},
		"waits for a primary":                         {wish(func(w *backup.Wish) { w.Instances[0].Serves = false }), backup.Wait, "", "no primary"},
		"waits for the host":                          {wish(func(w *backup.Wish) { w.Host = "host" }), backup.Wait, "", "host is not heard"},
		"waits for the repository":                    {wish(func(w *backup.Wish) { w.Runners[1].Ready, w.Runners[1].Error = false, "no bucket" }), backup.Wait, "", "no bucket"},
		"waits for another":                           {wish(func(w *backup.Wish) { w.Before = []string{"b", "a"} }), backup.Wait, "", "waits for a"},
		"waits for a cluster":                         {wish(func(w *backup.Wish) { w.Obstacle = "suspended" }), backup.Wait, "", "suspended"},
		"does not wait for ever":                      {wish(func(w *backup.Wish) { w.Obstacle, w.Created = "suspended", noon.Add(-2*time.Hour) }), backup.GiveUp, "", "suspended"},
		"has not waited while nobody watched":         {wish(func(w *backup.Wish) { w.Instances, w.Created, w.Watched = nil, noon.Add(-3*time.Hour), noon }), backup.Wait, "", "no primary"},
		"waits for others for long":                   {wish(func(w *backup.Wish) { w.Before, w.Created = []string{"a"}, noon.Add(-9*time.Hour) }), backup.Wait, "", ""},
		"does not wait in vain":                       {wish(func(w *backup.Wish) { w.Obstacle, w.Hopeless = "deleted", true }), backup.GiveUp, "", "deleted"},
		"pauses after a failure":                      {wish(func(w *backup.Wish) { w.Attempts, w.Failed = 1, noon.Add(-10*time.Second) }), backup.Wait, "", ""},
		"waits for one that nobody asks for any more": {wish(attempt(backup.Attempt{ID: "gone/1"})), backup.Wait, "", "waits for a backup that db-2 still makes"},
		"waits for one that is silent": {wish(func(w *backup.Wish) {
			w.Runners[1] = backup.Runner{Name: "db-2", Silent: time.Minute, Attempt: &backup.Attempt{ID: "gone/1"}}
		}), backup.Wait, "", "waits for a backup that db-2 still makes"},
		"does not wait for one that is lost": {wish(func(w *backup.Wish) {
			w.Instances[1].Serves = false
			w.Runners[1] = backup.Runner{Name: "db-2", Silent: time.Hour, Attempt: &backup.Attempt{ID: "gone/1"}}
		}), backup.Begin, "db-1", ""},
		"does not wait for one that has ended": {wish(attempt(backup.Attempt{ID: "gone/1", Ended: true})), backup.Begin, "db-2", ""},
		"tries again":                          {wish(func(w *backup.Wish) { w.Attempts, w.Failed = 1, noon.Add(-time.Minute) }), backup.Begin, "db-2", ""},

		"follows":     {running(attempt(backup.Attempt{ID: "w/1"})), backup.Follow, "db-2", ""},
		"is complete": {running(attempt(backup.Attempt{ID: "w/1", Ended: true, Result: &result})), backup.Complete, "db-2", ""},
		"failed":      {running(attempt(backup.Attempt{ID: "w/1", Ended: true, Error: "no room"})), backup.Retry, "", "no room"},
		"failed too often": {running(func(w *backup.Wish) {
			w.Attempts = 3
			attempt(backup.Attempt{ID: "w/3", Ended: true, Error: "no room"})(w)
		}), backup.GiveUp, "", "no room"},
		"was lost":                    {running(func(*backup.Wish) {}), backup.Retry, "", "was restarted"},
		"was just begun":              {running(func(w *backup.Wish) { w.Started = noon.Add(-time.Second) }), backup.Follow, "db-2", ""},
		"is not an older attempt":     {running(attempt(backup.Attempt{ID: "w/0", Ended: true, Result: &result})), backup.Retry, "", "was restarted"},
		"is patient with silence":     {running(func(w *backup.Wish) { w.Runners[1].Heard, w.Runners[1].Silent = false, time.Minute }), backup.Follow, "db-2", ""},
		"but not for ever":            {running(func(w *backup.Wish) { w.Runners[1].Heard, w.Runners[1].Silent = false, time.Hour }), backup.Retry, "", "not heard"},
		"nor with a Pod that is gone": {running(func(w *backup.Wish) { w.Runners = w.Runners[:1] }), backup.Retry, "", "not heard"},
		"is bounded":                  {running(func(w *backup.Wish) { w.Started = noon.Add(-25 * time.Hour); attempt(backup.Attempt{ID: "w/1"})(w) }), backup.Cancel, "db-2", "24h"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := backup.Next(test.wish)
			assert.Equal(t, test.step, d.Step, d.Message)
			assert.Equal(t, test.runner, d.Runner)
			assert.Contains(t, d.Message, test.message)
			if d.Step == backup.Wait || d.Step == backup.Follow || d.Step == backup.Cancel {
				assert.Positive(t, d.Recheck, "every wait looks again")
			}
		})
	}
}

func TestFindPlace(t *testing.T) {
	t.Parallel()
	standby := func(name, system string, lag int64) backup.Instance {
		return backup.Instance{Name: name, Standby: true, Serves: true, Lag: lag, System: system}
	}
	primary := backup.Instance{Name: "a", Primary: true, Serves: true, System: "1"}
	for name, test := range map[string]struct {
		instances []backup.Instance
		standby   string
		err       string
	}{
		"the standby with the least lag": {[]backup.Instance{primary, standby("b", "1", 9), standby("c", "1", 3)}, "c", ""},
		"the first of two alike":         {[]backup.Instance{standby("c", "1", 3), standby("b", "1", 3), primary}, "b", ""},
		"none that does not stream":      {[]backup.Instance{primary, {Name: "d", Standby: true, System: "1"}, standby("b", "1", 9)}, "b", ""},
		"none whose role is not known":   {[]backup.Instance{primary, {Name: "e", Serves: true, System: "1"}}, "", ""},
		"none of the other generation":   {[]backup.Instance{standby("c", "2", 0), primary, standby("b", "1", 9)}, "b", ""},
		"only the other generation":      {[]backup.Instance{primary, standby("b", "2", 0), standby("c", "2", 0)}, "", ""},
		"nor one whose data is unknown":  {[]backup.Instance{primary, standby("b", "", 0)}, "", ""},
		"no primary":                     {[]backup.Instance{standby("b", "1", 0)}, "", "no primary that serves"},
		"nothing":                        {nil, "", "no primary that serves"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			place, err := backup.FindPlace(test.instances)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, backup.Place{Primary: "a", Standby: test.standby}, place)
		})
	}
}
