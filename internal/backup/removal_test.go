package backup_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pgsteward/pgsteward/internal/backup"
)

// chain is two full backups, the second of which an incremental one needs, and that another.
func chain() []backup.Backup {
	at := func(n int) time.Time { return noon.Add(time.Duration(n-10) * time.Hour) }
	return []backup.Backup{
		{Label: "1F", Type: backup.Full, Stopped: at(1)},
		{Label: "2F", Type: backup.Full, Stopped: at(2)},
		{Label: "2F_3I", Type: backup.Incremental, Needs: []string{"2F"}, Stopped: at(3), Name: "nightly"},
		{Label: "2F_4I", Type: backup.Incremental, Needs: []string{"2F", "2F_3I"}, Stopped: at(4)},
	}
}

func TestHolds(t *testing.T) {
	t.Parallel()
	damaged := func(label string) []backup.Backup {
		all := chain()
		for i := range all {
			all[i].Damaged = all[i].Label == label
		}
		return all
	}
	for name, test := range map[string]struct {
		label string
		all   []backup.Backup
		why   string
	}{
		"an older full one goes":                {"1F", chain(), ""},
		"one that others need stays":            {"2F", chain(), "nightly (2F_3I), 2F_4I"},
		"also an incremental one":               {"2F_3I", chain(), "2F_4I"},
		"the last of a chain goes":              {"2F_4I", chain(), ""},
		"the only full one stays":               {"1F", chain()[:1], "last good full one"},
		"what needs it is said first":           {"2F", chain()[1:], "nightly"},
		"a damaged one does not count":          {"1F", damaged("2F"), "last good full one"},
		"a damaged one goes while there is one": {"1F", damaged("1F"), ""},
		"even the only one stays if damaged":    {"1F", damaged("1F")[:1], "last good full one"},
		"what is not there is not held":         {"9F", chain(), ""},
	} {
		why := backup.Holds(test.label, test.all)
		if test.why == "" {
			assert.Empty(t, why, name)
		} else {
			assert.Contains(t, why, test.why, name)
		}
	}
}

// unwanted is the first backup of the chain, in a cluster of two, changed by the test.
func unwanted(change func(*backup.Deletion)) backup.Deletion {
	d := backup.Deletion{
		Now: noon, ID: "b", Label: "1F", Known: true, All: chain(),
		Instances: []backup.Instance{{Name: "db-1", Primary: true, Serves: true}, {Name: "db-2", Standby: true, Serves: true}},
		Runners: []backup.Remover{
			{Runner: backup.Runner{Name: "db-1", Heard: true, Ready: true}}, {Runner: backup.Runner{Name: "db-2", Heard: true, Ready: true}},
		},
	}
	change(&d)
	return d
}

// begun is one that db-2 removes, as it tells.
func begun(ago time.Duration, attempt *backup.Attempt, change func(*backup.Deletion)) backup.Deletion {
	return unwanted(func(d *backup.Deletion) {
		d.Attempts, d.Running, d.Runner, d.Begun = 1, true, "db-2", noon.Add(-ago)
		d.Runners[1].Removal = attempt
		change(d)
	})
}

func TestDecideRemoval(t *testing.T) {
	t.Parallel()
	none := func(*backup.Deletion) {}
	for name, test := range map[string]struct {
		deletion backup.Deletion
		removal  backup.Removal
		message  string
	}{
		"is removed":                {unwanted(none), backup.Remove, ""},
		"is gone":                   {unwanted(func(d *backup.Deletion) { d.All = chain()[1:] }), backup.Removed, ""},
		"is not gone if not known":  {unwanted(func(d *backup.Deletion) { d.All, d.Known = nil, false }), backup.Hindered, "not known"},
		"is left on request":        {unwanted(func(d *backup.Deletion) { d.Leave, d.Label = "wished", "2F" }), backup.Left, "wished"},
		"is left without a cluster": {unwanted(func(d *backup.Deletion) { d.Lost, d.Label = "no cluster", "2F" }), backup.Left, "no cluster"},
		"is held":                   {unwanted(func(d *backup.Deletion) { d.Label = "2F" }), backup.Held, "nightly"},
		"is held for ever":          {unwanted(func(d *backup.Deletion) { d.Label, d.Failing = "2F", noon.Add(-9*time.Hour) }), backup.Held, ""},
		"waits for a backup":        {unwanted(func(d *backup.Deletion) { d.Before, d.Failing = "a", noon.Add(-9*time.Hour) }), backup.Queued, "waits for a"},
		"waits for who makes one":   {unwanted(func(d *backup.Deletion) { d.Runners[1].Attempt = &backup.Attempt{ID: "x"} }), backup.Queued, "a backup"},
		"waits for a primary":       {unwanted(func(d *backup.Deletion) { d.Instances[0].Serves = false }), backup.Hindered, "no primary"},
		"waits for the host":        {unwanted(func(d *backup.Deletion) { d.Host = "host" }), backup.Hindered, "host is not heard"},
		"has the host do it": {unwanted(func(d *backup.Deletion) {
			d.Host, d.Instances = "host", nil
			d.Runners = append(d.Runners, backup.Remover{Runner: backup.Runner{Name: "host", Heard: true, Ready: true}})
		}), backup.Remove, ""},
		"says what the repository says": {unwanted(func(d *backup.Deletion) { d.Runners[1].Ready, d.Runners[1].Error = false, "no such bucket" }), backup.Hindered, "no such bucket"},
		"is left after a time":          {unwanted(func(d *backup.Deletion) { d.Obstacle, d.Failing = "suspended", noon.Add(-time.Hour) }), backup.Left, "30m0s: suspended"},
		"pauses after a failure": {unwanted(func(d *backup.Deletion) {
			d.Attempts, d.Begun, d.Failing = 1, noon.Add(-20*time.Second), noon.Add(-10*time.Second)
		}), backup.Hindered, ""},
		"tries again": {unwanted(func(d *backup.Deletion) {
			d.Attempts, d.Begun, d.Failing = 1, noon.Add(-2*time.Minute), noon.Add(-time.Minute)
		}), backup.Remove, ""},

		"was just begun":          {begun(time.Second, nil, none), backup.Removing, ""},
		"goes on":                 {begun(time.Minute, &backup.Attempt{ID: "b/remove-1"}, none), backup.Removing, ""},
		"failed":                  {begun(time.Minute, &backup.Attempt{ID: "b/remove-1", Ended: true, Error: "denied"}, none), backup.Hindered, "denied"},
		"was lost":                {begun(time.Minute, nil, none), backup.Hindered, "restarted"},
		"is not an older attempt": {begun(time.Minute, &backup.Attempt{ID: "b/remove-0", Ended: true}, none), backup.Hindered, "restarted"},
		"is about to be seen":     {begun(time.Minute, &backup.Attempt{ID: "b/remove-1", Ended: true}, none), backup.Removing, ""},
		"is patient with silence": {begun(time.Minute, nil, func(d *backup.Deletion) { d.Runners[1].Heard = false }), backup.Removing, "not heard"},
		"but not for ever":        {begun(time.Hour, nil, func(d *backup.Deletion) { d.Runners = d.Runners[:1] }), backup.Hindered, "not heard"},
		"is bounded":              {begun(time.Hour, &backup.Attempt{ID: "b/remove-1"}, none), backup.Hindered, "within 30m"},
		"is seen":                 {begun(time.Minute, nil, func(d *backup.Deletion) { d.All = chain()[1:] }), backup.Removed, ""},
	} {
		verdict := test.deletion.Decide()
		assert.Equal(t, test.removal, verdict.Removal, "%s: %s", name, verdict.Message)
		assert.Contains(t, verdict.Message, test.message, name)
		if verdict.Removal != backup.Removed && verdict.Removal != backup.Left {
			assert.Positive(t, verdict.Recheck, "%s: every wait looks again", name)
		}
	}
}
