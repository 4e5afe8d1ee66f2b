package plan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/plan"
	"github.com/pgsteward/pgsteward/internal/testing/given"
)

// TestDecideFinalBackup: nothing of a cluster goes before its last backup is there, and whoever waits is told why, and how to do without.
func TestDecideFinalBackup(t *testing.T) {
	t.Parallel()
	backup := func(phase v1.BackupPhase, message string) facts.WantedBackup {
		return facts.WantedBackup{Name: "prod-db-final-1", Asked: true, Phase: phase, Message: message}
	}
	without := naming.AnnotationSkipFinalBackup + "=true"
	for what, test := range map[string]struct {
		cluster *given.ClusterBuilder
		action  plan.Action
		reason  string
		words   []string
	}{
		"it is asked for first": {
			healthyThree().Deleting().FinalBackup(facts.WantedBackup{Name: "prod-db-final-1"}),
			plan.MakeFinalBackup{Name: "prod-db-final-1"}, v1.ReasonFinalBackup, []string{"spec.deletion.finalBackup"},
		},
		"it begins": {
			healthyThree().Deleting().FinalBackup(backup("", "")), plan.None{}, v1.ReasonFinalBackup, []string{"prod-db-final-1"},
		},
		"it runs for long": {
			healthyThree().Deleting().Since(time.Hour).FinalBackup(backup(v1.BackupRunning, "")), plan.None{}, v1.ReasonFinalBackup, []string{"prod-db-final-1"},
		},
		"it cannot begin": {
			healthyThree().Deleting().Since(3 * time.Minute).FinalBackup(backup(v1.BackupPending, "s3 is out of reach")),
			plan.None{}, v1.ReasonFinalBackupFailed, []string{"s3 is out of reach", without},
		},
		"it failed": {
			healthyThree().Deleting().FinalBackup(backup(v1.BackupFailed, "the store is full")),
			plan.None{}, v1.ReasonFinalBackupFailed, []string{"the store is full", "delete that PostgresBackup", without},
		},
		"it is there": {
			healthyThree().Deleting().FinalBackup(backup(v1.BackupCompleted, "")), plan.RemoveInstances{}, v1.ReasonDeleting, nil,
		},
		"the cluster is forced to go": {
			healthyThree().Deleting().Forced().FinalBackup(backup(v1.BackupFailed, "")), plan.Release{}, v1.ReasonDeleting, nil,
		},
		"the instances are going": {
			cluster().HasSystem().Deleting().With(given.Member(1).Primary().Deleting()).FinalBackup(facts.WantedBackup{Name: "prod-db-final-1"}),
			plan.None{}, v1.ReasonDeleting, nil,
		},
	} {
		d := plan.Decide(test.cluster.Facts())
		assert.Equal(t, test.action, d.Action, what)
		assert.Equal(t, test.reason, d.Reason, what)
		assert.NotZero(t, d.Recheck, what)
		for _, word := range test.words {
			assert.Contains(t, d.Message, word, what)
		}
	}
}
