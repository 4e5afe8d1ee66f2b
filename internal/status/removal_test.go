package status_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/status"
)

// TestRemoval: what a deleted PostgresBackup says, and since when it fails, through a removal that does not come off.
func TestRemoval(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	s := v1.PostgresBackupStatus{Phase: v1.BackupCompleted, Label: "1F", Attempts: 1, Runner: "db-2"}
	for n, step := range []struct {
		verdict  backup.Verdict
		reason   string
		message  string
		attempts int32
		failing  time.Duration // since when, after the start; negative: it does not
	}{
		{backup.Verdict{Removal: backup.Held, Message: "others need it"}, v1.ReasonBackupNeeded, "others need it", 0, -1},
		{backup.Verdict{Removal: backup.Queued, Message: "waits for a"}, v1.ReasonWaitingForBackup, "waits for a", 0, -1},
		{backup.Verdict{Removal: backup.Remove, Runner: "db-1"}, v1.ReasonRemovingBackup, "Removing", 1, -1},
		{backup.Verdict{Removal: backup.Hindered, Message: "denied"}, v1.ReasonBackupRemovalFailed, "denied", 1, 3 * time.Minute},
		{backup.Verdict{Removal: backup.Hindered}, v1.ReasonBackupRemovalFailed, "denied", 1, 3 * time.Minute},
		{backup.Verdict{Removal: backup.Remove, Runner: "db-1"}, v1.ReasonRemovingBackup, "Removing", 2, 3 * time.Minute},
		{backup.Verdict{Removal: backup.Removing}, v1.ReasonRemovingBackup, "Removing", 2, 3 * time.Minute},
		{backup.Verdict{Removal: backup.Hindered, Message: "denied again"}, v1.ReasonBackupRemovalFailed, "denied again", 2, 3 * time.Minute},
	} {
		s = status.Removal(s, start.Add(time.Duration(n)*time.Minute), step.verdict)
		assert.Equal(t, step.reason, s.Reason, "step %d", n)
		assert.Contains(t, s.Message, step.message, "step %d", n)
		assert.Equal(t, step.attempts, s.Removal.Attempts, "step %d", n)
		if step.failing < 0 {
			assert.Nil(t, s.Removal.FailingSince, "step %d", n)
		} else if assert.NotNil(t, s.Removal.FailingSince, "step %d", n) {
			assert.Equal(t, start.Add(step.failing), s.Removal.FailingSince.Time, "step %d", n)
		}
		assert.Equal(t, "db-2", s.Runner, "who made the backup is not forgotten")
	}
}
