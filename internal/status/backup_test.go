package status_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/status"
)

// TestArchivingPatience: what is not told yet is told without anything else having happened.
func TestArchivingPatience(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, time.November, 30, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) *time.Time {
		at := now.Add(-d)
		return &at
	}
	for what, test := range map[string]struct {
		backup *facts.Backup
		want   time.Duration
	}{
		"no backups":        {nil, 0},
		"nobody is heard":   {&facts.Backup{}, 0},
		"it works":          {&facts.Backup{Archive: facts.Know(agentapi.Archive{LastAt: ago(time.Second)})}, 0},
		"it fails":          {&facts.Backup{Archive: facts.Know(agentapi.Archive{Failing: ago(20 * time.Second)})}, 41 * time.Second},
		"it fails for long": {&facts.Backup{Archive: facts.Know(agentapi.Archive{Failing: ago(2 * time.Minute)})}, 0},
	} {
		require.Equal(t, test.want, status.ArchivingPatience(facts.Cluster{Now: now, Backup: test.backup}), what)
	}
}
