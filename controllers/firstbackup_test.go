package controllers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/plan"
)

// TestFirstBackup: one is asked for when there is none, and again, under a name of its own, when none leads to where the cluster is.
func TestFirstBackup(t *testing.T) {
	t.Parallel()
	report := func(timeline int64, backups ...backup.Backup) agentapi.RepositoryReport {
		return agentapi.RepositoryReport{Stanza: "pg16-1", Ready: true, Known: true, Timeline: timeline, Backups: backups}
	}
	good, left := backup.Backup{Label: "good"}, backup.Backup{Label: "left", Abandoned: true}
	for what, test := range map[string]struct {
		report agentapi.RepositoryReport
		first  bool
		want   string
	}{
		"none is there":               {report(0), false, "db-pg16-1"},
		"none, but it was asked for":  {report(0), true, ""},
		"one is there":                {report(0, good), false, ""},
		"one leads there":             {report(2, good, left), false, ""},
		"none leads there":            {report(2, left), false, "db-pg16-1-2"},
		"none, but that was asked":    {report(2, left), true, ""},
		"the repository is not ready": {agentapi.RepositoryReport{Stanza: "pg16-1", Known: true}, false, ""},
	} {
		f := facts.Cluster{Name: "db", Backup: &facts.Backup{Interval: time.Hour, Repository: facts.Know(test.report), First: test.first}}
		assert.Equal(t, test.want, firstBackup(f, plan.Decision{Rule: "done"}), what)
	}
}
