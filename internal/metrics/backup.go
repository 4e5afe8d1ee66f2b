package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
)

// readBound is how long a scrape waits for what is to be shown.
const readBound = 5 * time.Second

// gauge is a number that each cluster with backups has.
type gauge struct {
	description *prometheus.Desc
	// value is the number; false: it is not known, and is left out.
	value func(c *v1.PostgresCluster) (float64, bool)
}

// Backups collects the metrics of backups.
type Backups struct {
	// read reads all clusters and their backups; nothing while another operator tells of them.
	read   func(ctx context.Context) ([]v1.PostgresCluster, []v1.PostgresBackup, error)
	gauges []gauge
	phases *prometheus.Desc
}

// NewBackups is a collector of what read reads.
func NewBackups(read func(ctx context.Context) ([]v1.PostgresCluster, []v1.PostgresBackup, error)) *Backups {
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("pgsteward_cluster_"+name, help, append([]string{"namespace", "cluster"}, labels...), nil)
	}
	return &Backups{
		read: read,
		gauges: []gauge{
			{describe("last_backup_timestamp_seconds", "When the last good backup ended."),
				moment(func(c *v1.PostgresCluster) *metav1.Time { return c.Status.LastBackup })},
			{describe("first_recoverable_timestamp_seconds", "The earliest moment that can be recovered."),
				moment(func(c *v1.PostgresCluster) *metav1.Time { return c.Status.FirstRecoverable })},
			{describe("last_archived_timestamp_seconds", "When WAL was last archived."),
				moment(func(c *v1.PostgresCluster) *metav1.Time { return c.Status.LastArchived })},
			{describe("backup_healthy", "Whether there is a good backup that is as new as the schedule says."), condition(v1.ConditionBackupHealthy)},
			{describe("archiving_healthy", "Whether WAL reaches the repository."), condition(v1.ConditionContinuousArchiving)},
			{describe("repository_backups", "How many backups the repository has."), func(c *v1.PostgresCluster) (float64, bool) {
				if c.Status.Backup == nil {
					return 0, false
				}
				return float64(c.Status.Backup.Count), true
			}},
			{describe("missed_backups", "How many times of the schedule have passed without a backup."), func(c *v1.PostgresCluster) (float64, bool) {
				if c.Status.Backup == nil {
					return 0, false
				}
				return float64(c.Status.Backup.Missed), true
			}},
			{describe("last_verification_timestamp_seconds", "When a backup was last restored and found to be good."),
				moment(func(c *v1.PostgresCluster) *metav1.Time { return verification(c).LastSucceeded })},
			{describe("verification_succeeded", "Whether the backup that was verified last was found to be good."), func(c *v1.PostgresCluster) (float64, bool) {
				switch verification(c).Phase {
				case v1.VerificationSucceeded:
					return 1, true
				case v1.VerificationFailed:
					return 0, true
				}
				return 0, false
			}},
		},
		phases: describe("postgresbackups", "How many PostgresBackups there are, by their phase.", "phase"),
	}
}

// Describe implements prometheus.Collector.
func (b *Backups) Describe(descriptions chan<- *prometheus.Desc) {
	for _, g := range b.gauges {
		descriptions <- g.description
	}
	descriptions <- b.phases
}

// Collect implements prometheus.Collector.
func (b *Backups) Collect(values chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), readBound)
	defer cancel()
	clusters, backups, err := b.read(ctx)
	if err != nil {
		values <- prometheus.NewInvalidMetric(b.phases, err)
		return
	}
	for i := range clusters {
		c := &clusters[i]
		if c.Spec.Backup == nil {
			continue
		}
		for _, g := range b.gauges {
			if value, known := g.value(c); known {
				values <- prometheus.MustNewConstMetric(g.description, prometheus.GaugeValue, value, c.Namespace, c.Name)
			}
		}
		for phase, count := range countPhases(c, backups) {
			values <- prometheus.MustNewConstMetric(b.phases, prometheus.GaugeValue, float64(count), c.Namespace, c.Name, string(phase))
		}
	}
}

// countPhases counts the cluster's PostgresBackups. Every phase has a number, so that the first failure is a change from 0.
func countPhases(c *v1.PostgresCluster, backups []v1.PostgresBackup) map[v1.BackupPhase]int {
	counts := map[v1.BackupPhase]int{v1.BackupPending: 0, v1.BackupRunning: 0, v1.BackupCompleted: 0, v1.BackupFailed: 0}
	for i := range backups {
		b := &backups[i]
		if b.Namespace != c.Namespace || b.Spec.Cluster != c.Name {
			continue
		}
		phase := b.Status.Phase
		if phase == "" {
			phase = v1.BackupPending // the operator has not seen it yet
		}
		counts[phase]++
	}
	return counts
}

// verification is what the status says of the last verification; the zero one says nothing.
func verification(c *v1.PostgresCluster) v1.VerificationStatus {
	if c.Status.Backup == nil || c.Status.Backup.Verification == nil {
		return v1.VerificationStatus{}
	}
	return *c.Status.Backup.Verification
}

func moment(of func(*v1.PostgresCluster) *metav1.Time) func(*v1.PostgresCluster) (float64, bool) {
	return func(c *v1.PostgresCluster) (float64, bool) {
		t := of(c)
		if t == nil {
			return 0, false
		}
		return float64(t.Unix()), true
	}
}

// condition is 1 while the condition is true, 0 while it is false, and nothing while that is not known.
func condition(kind string) func(*v1.PostgresCluster) (float64, bool) {
	return func(c *v1.PostgresCluster) (float64, bool) {
		found := apimeta.FindStatusCondition(c.Status.Conditions, kind)
		switch {
		case found == nil || found.Status == metav1.ConditionUnknown:
			return 0, false
		case found.Status == metav1.ConditionTrue:
			return 1, true
		default:
			return 0, true
		}
	}
}
