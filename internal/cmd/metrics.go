package cmd

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/metrics"
	"github.com/pgsteward/pgsteward/internal/observe"
)

// addMetrics shows what is known of backups and major upgrades, by the operator that works: one that waits for its turn would count everything twice.
func addMetrics(mgr manager.Manager, reader *observe.Reader) error {
	read := func(ctx context.Context) ([]v1.PostgresCluster, []v1.PostgresBackup, error) {
		select {
		case <-mgr.Elected():
			return reader.Everything(ctx)
		default:
			return nil, nil, nil
		}
	}
	clusters := func(ctx context.Context) ([]v1.PostgresCluster, error) {
		all, _, err := read(ctx)
		return all, err
	}
	for _, collector := range []prometheus.Collector{metrics.NewBackups(read), metrics.NewUpgrades(clusters)} {
		ctrlmetrics.Registry.Unregister(collector) // that of an earlier manager in the same process
		if err := ctrlmetrics.Registry.Register(collector); err != nil {
			return fmt.Errorf("adding metrics: %w", err)
		}
	}
	return nil
}
