package observe

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// TestFirstBackup: one is due when there is none, and again, under a name of its own, when the newest cannot be recovered from those that there
// are, or the cluster has moved to another repository.
func TestFirstBackup(t *testing.T) {
	t.Parallel()
	report := func(timeline int64, backups ...backup.Backup) agentapi.RepositoryReport {
		return agentapi.RepositoryReport{Stanza: "pg16-1", Known: true, Timeline: timeline, Backups: backups}
	}
	good, left := backup.Backup{Label: "good"}, backup.Backup{Label: "left", Abandoned: true}
	gap := report(0, good)
	gap.Gap = &backup.Gap{WAL: "00000001000000000000000A"}
	record := func(name, location string) v1.PostgresBackup {
		return v1.PostgresBackup{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.PostgresBackupStatus{Location: location}}
	}
	wanted := Wanted{Repository: "abcd", InRepository: func(location string) bool { return strings.HasPrefix(location, "s3://now/") }}
	for what, test := range map[string]struct {
		report agentapi.RepositoryReport
		all    []v1.PostgresBackup
		want   string
	}{
		"none is there":                        {report(0), nil, "db-pg16-1"},
		"none, but it was asked for":           {report(0), []v1.PostgresBackup{record("db-pg16-1", "")}, ""},
		"none, and the first was removed":      {report(0), []v1.PostgresBackup{record("db-pg16-1", "s3://now/x")}, ""},
		"none, and the first is elsewhere":     {report(0), []v1.PostgresBackup{record("db-pg16-1", "s3://before/x")}, "db-pg16-1-abcd"},
		"that was asked for, too":              {report(0), []v1.PostgresBackup{record("db-pg16-1", "s3://before/x"), record("db-pg16-1-abcd", "")}, ""},
		"one is there":                         {report(0, good), nil, ""},
		"one leads there":                      {report(2, good, left), nil, ""},
		"none leads there":                     {report(2, left), nil, "db-pg16-1-2"},
		"none, but that was asked":             {report(2, left), []v1.PostgresBackup{record("db-pg16-1-2", "")}, ""},
		"WAL is missing":                       {gap, nil, "db-pg16-1-00000001000000000000000a"},
		"WAL is missing, and it was asked for": {gap, []v1.PostgresBackup{record("db-pg16-1-00000001000000000000000a", "")}, ""},
		"nothing is known":                     {agentapi.RepositoryReport{Stanza: "pg16-1"}, nil, ""},
	} {
		name, due := firstBackup("db", test.report, test.all, wanted)
		if !due || named(test.all, name) != nil {
			name = ""
		}
		assert.Equal(t, test.want, name, what)
	}
}

// TestFailedLongAgo: a first backup that failed is tried again, after a while.
func TestFailedLongAgo(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	ended := func(phase v1.BackupPhase, ago time.Duration) *v1.PostgresBackup {
		return &v1.PostgresBackup{Status: v1.PostgresBackupStatus{Phase: phase, FinishedAt: &metav1.Time{Time: now.Add(-ago)}}}
	}
	assert.True(t, failedLongAgo(ended(v1.BackupFailed, anewAfter+time.Second), now))
	assert.False(t, failedLongAgo(ended(v1.BackupFailed, anewAfter-time.Second), now))
	assert.False(t, failedLongAgo(ended(v1.BackupCompleted, 2*anewAfter), now))
	assert.False(t, failedLongAgo(&v1.PostgresBackup{}, now))
}

// TestBeforeUpgrade: one backup for each upgrade, and only while that waits.
func TestBeforeUpgrade(t *testing.T) {
	t.Parallel()
	began := metav1.Unix(0x10, 0)
	c := &v1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Name: "db"}}
	assert.Nil(t, beforeUpgrade(c, nil), "there is no upgrade")
	c.Status.Upgrade = &v1.UpgradeStatus{To: "17", Phase: v1.UpgradePreflight, StartedAt: &began}
	assert.Equal(t, &facts.WantedBackup{Name: "db-before-17-10"}, beforeUpgrade(c, nil))
	made := v1.PostgresBackup{ObjectMeta: metav1.ObjectMeta{Name: "db-before-17-10"}, Status: v1.PostgresBackupStatus{Phase: v1.BackupFailed, Message: "no space"}}
	assert.Equal(t, &facts.WantedBackup{Name: "db-before-17-10", Asked: true, Phase: v1.BackupFailed, Message: "no space"},
		beforeUpgrade(c, []v1.PostgresBackup{{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, made}))
	c.Annotations = map[string]string{naming.AnnotationSkipUpgradeBackup: "true"}
	assert.Nil(t, beforeUpgrade(c, nil))
	c.Annotations, c.Status.Upgrade.Phase = nil, v1.UpgradeCatchUp
	assert.Nil(t, beforeUpgrade(c, nil), "it has begun")
}
