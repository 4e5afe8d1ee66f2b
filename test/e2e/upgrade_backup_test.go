//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// TestUpgradeBackup: a cluster that is backed up is backed up once more before its upgrade begins, and by the new version as soon as that has the
// writes. Afterwards both sides can be recovered, each by its own version.
func TestUpgradeBackup(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	store := startStore(t, namespace)
	wanted := backedUp(namespace, "db", "15", 2)
	wanted.Spec.Backup.Repository = store.repository()
	u := upgraded{cluster: create(t, wanted.DeepCopy())}
	startClient(t, namespace)
	u.waitReady(t)
	u.waitServed(t, "before")
	eventually(t, boundBackup, "there is a first backup", func(collect *assert.CollectT) { require.NotNil(collect, u.get(collect).Status.LastBackup) })

	u.to(t, "17", v1.UpgradeObserve, v1.UpgradeRevert, v1.UpgradeFailed)
	upgrade := u.get(t).Status.Upgrade
	before := u.backup(t, naming.UpgradeBackup(u.name, "17", upgrade.StartedAt.Time)).Status
	require.Equal(t, v1.BackupCompleted, before.Phase, before.Message)
	require.False(t, before.StartedAt.Before(upgrade.StartedAt), "it is not an older one")
	require.True(t, before.FinishedAt.Before(upgrade.SwitchedOverAt))
	eventually(t, 2*boundBackup, "the new version is backed up while one can still go back", func(collect *assert.CollectT) {
		s := u.get(collect).Status
		require.Equal(collect, v1.UpgradeObserve, s.Upgrade.Phase)
		require.Contains(collect, s.Backup.Stanza, "pg17-")
		require.NotNil(collect, s.LastBackup)
		require.True(collect, s.LastBackup.After(upgrade.SwitchedOverAt.Time))
		u.requireCondition(collect, v1.ConditionBackupHealthy, metav1.ConditionTrue, "")
	})
	u.write(t, "after")
	u.waitArchived(t, u.switchWAL(t))
	for version, rows := range map[string][]string{"15": {"before"}, "17": {"after", "before"}} {
		t.Run("recovered with "+version, func(t *testing.T) {
			r := newCluster(namespace, "recovered-"+version, version, 1)
			r.Spec.Bootstrap = recoveryOf(wanted, "")
			recovered := create(t, r)
			recovered.waitReady(t)
			require.Equal(t, rows, recovered.rows(t, naming.ServiceRW(recovered.name)))
		})
	}
}
