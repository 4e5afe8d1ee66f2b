package metrics

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
)

func at(second int64) *metav1.Time { return new(metav1.NewTime(time.Unix(second, 0))) }

func backupOf(cluster string, phase v1.BackupPhase) v1.PostgresBackup {
	b := v1.PostgresBackup{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}, Spec: v1.PostgresBackupSpec{Cluster: cluster}}
	b.Status.Phase = phase
	return b
}

// TestBackups: what an alert needs is there, for clusters that have backups only.
func TestBackups(t *testing.T) {
	t.Parallel()
	well := v1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}}
	well.Spec.Backup = &v1.BackupSpec{}
	well.Status.LastBackup, well.Status.FirstRecoverable, well.Status.LastArchived = at(2000), at(1000), at(3000)
	well.Status.Backup = &v1.BackupStatus{Count: 2, Missed: 3, Verification: &v1.VerificationStatus{Phase: v1.VerificationFailed, LastSucceeded: at(1500)}}
	well.Status.Conditions = []metav1.Condition{
		{Type: v1.ConditionBackupHealthy, Status: metav1.ConditionTrue}, {Type: v1.ConditionContinuousArchiving, Status: metav1.ConditionFalse},
	}
	fresh := v1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "new"}}
	fresh.Spec.Backup, fresh.Status.Backup = &v1.BackupSpec{}, &v1.BackupStatus{Verification: &v1.VerificationStatus{}}
	fresh.Status.Conditions = []metav1.Condition{{Type: v1.ConditionContinuousArchiving, Status: metav1.ConditionUnknown}}
	without := v1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "plain"}}
	without.Status.LastBackup = at(1)
	collector := NewBackups(func(context.Context) ([]v1.PostgresCluster, []v1.PostgresBackup, error) {
		return []v1.PostgresCluster{well, fresh, without}, []v1.PostgresBackup{
			backupOf("db", v1.BackupCompleted), backupOf("db", v1.BackupFailed), backupOf("db", v1.BackupCompleted), backupOf("new", ""),
		}, nil
	})
	require.Equal(t, []string{
		`archiving_healthy{cluster=db namespace=shop} 0`,
		`backup_healthy{cluster=db namespace=shop} 1`,
		`first_recoverable_timestamp_seconds{cluster=db namespace=shop} 1000`,
		`last_archived_timestamp_seconds{cluster=db namespace=shop} 3000`,
		`last_backup_timestamp_seconds{cluster=db namespace=shop} 2000`,
		`last_verification_timestamp_seconds{cluster=db namespace=shop} 1500`,
		`missed_backups{cluster=db namespace=shop} 3`,
		`missed_backups{cluster=new namespace=shop} 0`,
		`postgresbackups{cluster=db namespace=shop phase=Completed} 2`,
		`postgresbackups{cluster=db namespace=shop phase=Failed} 1`,
		`postgresbackups{cluster=db namespace=shop phase=Pending} 0`,
		`postgresbackups{cluster=db namespace=shop phase=Running} 0`,
		`postgresbackups{cluster=new namespace=shop phase=Completed} 0`,
		`postgresbackups{cluster=new namespace=shop phase=Failed} 0`,
		`postgresbackups{cluster=new namespace=shop phase=Pending} 1`,
		`postgresbackups{cluster=new namespace=shop phase=Running} 0`,
		`repository_backups{cluster=db namespace=shop} 2`,
		`repository_backups{cluster=new namespace=shop} 0`,
		`verification_succeeded{cluster=db namespace=shop} 0`,
	}, gather(t, collector))
}

// gather is what Prometheus would see, without the prefix that all names have.
func gather(t *testing.T, collector prometheus.Collector) []string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(collector))
	families, err := registry.Gather()
	require.NoError(t, err)
	var lines []string
	for _, family := range families {
		name, ok := strings.CutPrefix(family.GetName(), "pgsteward_cluster_")
		require.True(t, ok, family.GetName())
		for _, one := range family.GetMetric() {
			var labels []string
			for _, label := range one.GetLabel() {
				labels = append(labels, label.GetName()+"="+label.GetValue())
			}
			lines = append(lines, fmt.Sprintf("%s{%s} %g", name, strings.Join(labels, " "), one.GetGauge().GetValue()))
		}
	}
	return lines
}

// TestUnreadable: a scrape says that nothing could be read, rather than that there is nothing.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(NewBackups(func(context.Context) ([]v1.PostgresCluster, []v1.PostgresBackup, error) {
		return nil, nil, errors.New("the cache has not been filled")
	})))
	_, err := registry.Gather()
	require.ErrorContains(t, err, "the cache has not been filled")
}
