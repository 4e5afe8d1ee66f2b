package observe

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
)

// TestExpired: which PostgresBackups tell of nothing any more.
func TestExpired(t *testing.T) {
	t.Parallel()
	const day, period = 24 * time.Hour, 30 * 24 * time.Hour
	now := time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC)
	full := func(label string, age time.Duration) backup.Backup {
		return backup.Backup{Label: label, Type: backup.Full, Stopped: now.Add(-age)}
	}
	report := agentapi.RepositoryReport{Stanza: "pg17-2", Known: true, At: now, Backups: []backup.Backup{full("a", 40*day), full("b", day)}}
	young, unknown := report, report
	young.Backups, unknown.Known = young.Backups[1:], false
	done := func(label, system string, age time.Duration) v1.PostgresBackupStatus {
		return v1.PostgresBackupStatus{Phase: v1.BackupCompleted, Label: label, SystemIdentifier: system, FinishedAt: &metav1.Time{Time: now.Add(-age)}}
	}
	for name, test := range map[string]struct {
		status v1.PostgresBackupStatus
		report agentapi.RepositoryReport
		want   bool
	}{
		"it is there":                          {done("a", "2", 40*day), report, false},
		"it was removed":                       {done("c", "2", 50*day), report, true},
		"the list is older than it":            {done("c", "2", -time.Minute), report, false},
		"nothing is known":                     {done("c", "2", 50*day), unknown, false},
		"an earlier generation's":              {done("c", "1", 45*day), report, true},
		"an earlier generation's, within time": {done("c", "1", 29*day), report, false},
		"the present one does not cover it":    {done("c", "1", 45*day), young, false},
		"it runs":                              {v1.PostgresBackupStatus{Phase: v1.BackupRunning}, report, false},
	} {
		assert.Equal(t, test.want, expired(&v1.PostgresBackup{Status: test.status}, test.report, Wanted{Retention: period}, now), name)
	}
	assert.False(t, expired(&v1.PostgresBackup{Status: done("c", "1", 45*day)}, report, Wanted{}, now), "everything is kept")
	moved := Wanted{Retention: period, InRepository: func(string) bool { return false }}
	before := done("c", "2", 50*day)
	before.Location = "s3://before/x"
	assert.False(t, expired(&v1.PostgresBackup{Status: before}, report, moved, now), "it is in another repository, of which nothing is known")
}
