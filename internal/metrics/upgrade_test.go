package metrics

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
)

// TestUpgrades: how far an upgrade is, and what it cost; nothing of clusters that have had none.
func TestUpgrades(t *testing.T) {
	t.Parallel()
	done := v1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}}
	done.Status.Upgrade = &v1.UpgradeStatus{
		From: "16", To: "17", Phase: v1.UpgradeObserve, StartedAt: at(1000), SwitchedOverAt: at(1060), RollbackUntil: at(4660),
		LastWritePause: "640ms", LagBytes: new(int64(4096)), Attempt: 2,
	}
	begun := v1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "new"}}
	begun.Status.Upgrade = &v1.UpgradeStatus{From: "15", To: "17", Phase: v1.UpgradePreflight}
	plain := v1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "plain"}}
	require.Equal(t, []string{
		`upgrade_attempt{cluster=db namespace=shop} 2`,
		`upgrade_attempt{cluster=new namespace=shop} 0`,
		`upgrade_lag_bytes{cluster=db namespace=shop} 4096`,
		`upgrade_phase{cluster=db from=16 namespace=shop phase=Observe to=17} 1`,
		`upgrade_phase{cluster=new from=15 namespace=shop phase=Preflight to=17} 1`,
		`upgrade_refused_switchovers{cluster=db namespace=shop} 0`,
		`upgrade_refused_switchovers{cluster=new namespace=shop} 0`,
		`upgrade_rollback_until_timestamp_seconds{cluster=db namespace=shop} 4660`,
		`upgrade_started_timestamp_seconds{cluster=db namespace=shop} 1000`,
		`upgrade_switched_over_timestamp_seconds{cluster=db namespace=shop} 1060`,
		`upgrade_write_pause_seconds{cluster=db namespace=shop} 0.64`,
	}, gather(t, NewUpgrades(func(context.Context) ([]v1.PostgresCluster, error) {
		return []v1.PostgresCluster{done, begun, plain}, nil
	})))
}
