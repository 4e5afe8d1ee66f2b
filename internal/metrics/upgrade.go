package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
)

// Upgrades collects the metrics of major upgrades, of clusters that have had one.
type Upgrades struct {
	// read reads all clusters; nothing while another operator tells of them.
	read   func(ctx context.Context) ([]v1.PostgresCluster, error)
	gauges []gauge
	phase  *prometheus.Desc
}

// NewUpgrades is a collector of what read reads.
func NewUpgrades(read func(ctx context.Context) ([]v1.PostgresCluster, error)) *Upgrades {
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("pgsteward_cluster_upgrade_"+name, help, append([]string{"namespace", "cluster"}, labels...), nil)
	}
	when := func(of func(*v1.UpgradeStatus) *metav1.Time) func(*v1.PostgresCluster) (float64, bool) {
		return moment(func(c *v1.PostgresCluster) *metav1.Time { return of(c.Status.Upgrade) })
	}
	return &Upgrades{
		read: read,
		gauges: []gauge{
			{describe("started_timestamp_seconds", "When the last major upgrade began."), when(func(u *v1.UpgradeStatus) *metav1.Time { return u.StartedAt })},
			{describe("switched_over_timestamp_seconds", "When its new version got the writes."), when(func(u *v1.UpgradeStatus) *metav1.Time { return u.SwitchedOverAt })},
			{describe("completed_timestamp_seconds", "When nothing of it was left to do."), when(func(u *v1.UpgradeStatus) *metav1.Time { return u.CompletedAt })},
			{describe("rollback_until_timestamp_seconds", "Until when setting the version back loses no write."), when(func(u *v1.UpgradeStatus) *metav1.Time { return u.RollbackUntil })},
			{describe("write_pause_seconds", "For how long writes paused in its last switchover."), func(c *v1.PostgresCluster) (float64, bool) {
				pause, err := time.ParseDuration(c.Status.Upgrade.LastWritePause)
				return pause.Seconds(), err == nil
			}},
			{describe("lag_bytes", "How far the side that follows is behind."), func(c *v1.PostgresCluster) (float64, bool) {
				if c.Status.Upgrade.LagBytes == nil {
					return 0, false
				}
				return float64(*c.Status.Upgrade.LagBytes), true
			}},
			{describe("attempt", "Which attempt it is."), func(c *v1.PostgresCluster) (float64, bool) { return float64(c.Status.Upgrade.Attempt), true }},
			{describe("refused_switchovers", "How many switchovers were refused in a row."), func(c *v1.PostgresCluster) (float64, bool) { return float64(c.Status.Upgrade.Refusals), true }},
		},
		phase: describe("phase", "1 for the phase that the last major upgrade is in.", "from", "to", "phase"),
	}
}

// Describe implements prometheus.Collector.
func (u *Upgrades) Describe(descriptions chan<- *prometheus.Desc) {
	for _, g := range u.gauges {
		descriptions <- g.description
	}
	descriptions <- u.phase
}

// Collect implements prometheus.Collector.
func (u *Upgrades) Collect(values chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), readBound)
	defer cancel()
	clusters, err := u.read(ctx)
	if err != nil {
		values <- prometheus.NewInvalidMetric(u.phase, err)
		return
	}
	for i := range clusters {
		c := &clusters[i]
		upgrade := c.Status.Upgrade
		if upgrade == nil {
			continue
		}
		for _, g := range u.gauges {
			if value, known := g.value(c); known {
				values <- prometheus.MustNewConstMetric(g.description, prometheus.GaugeValue, value, c.Namespace, c.Name)
			}
		}
		values <- prometheus.MustNewConstMetric(u.phase, prometheus.GaugeValue, 1, c.Namespace, c.Name, upgrade.From, upgrade.To, string(upgrade.Phase))
	}
}
