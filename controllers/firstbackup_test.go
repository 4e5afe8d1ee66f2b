package controllers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/plan"
)

// TestFirstBackup: the backup that is due is asked for when nothing else is being done, and there is a schedule.
func TestFirstBackup(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		change func(*facts.Backup)
		rule   string
		want   string
	}{
		"it is due":                   {func(*facts.Backup) {}, "done", "db-pg16-1"},
		"another is being made":       {func(b *facts.Backup) { b.Asked = []string{"other"} }, "done", ""},
		"there is no schedule":        {func(b *facts.Backup) { b.Interval = 0 }, "done", ""},
		"something else is done":      {func(*facts.Backup) {}, "roll", ""},
		"the new version is observed": {func(*facts.Backup) {}, "upgrade", "db-pg16-1"},
		"the repository is not ready": {func(b *facts.Backup) { b.Repository = facts.Know(agentapi.RepositoryReport{}) }, "done", ""},
	} {
		b := &facts.Backup{Interval: time.Hour, Repository: facts.Know(agentapi.RepositoryReport{Ready: true}), First: "db-pg16-1"}
		test.change(b)
		f := facts.Cluster{Name: "db", Backup: b}
		if test.rule == "upgrade" {
			f.Upgrade.Status = &v1.UpgradeStatus{Phase: v1.UpgradeObserve}
		}
		assert.Equal(t, test.want, firstBackup(f, plan.Decision{Rule: test.rule}), what)
	}
}
