package cmd

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/metrics"
	"github.com/pgsteward/pgsteward/internal/observe"
)

// addMetrics shows what is known of backups, by the operator that works: one that waits for its turn would count everything twice.
func addMetrics(mgr manager.Manager, reader *observe.Reader) error {
	backups := metrics.NewBackups(func(ctx context.Context) ([]v1.PostgresCluster, []v1.PostgresBackup, error) {
		select {
		case <-mgr.Elected():
			return reader.Everything(ctx)
		default:
			return nil, nil, nil
		}
	})
	ctrlmetrics.Registry.Unregister(backups) // that of an earlier manager in the same process
	if err := ctrlmetrics.Registry.Register(backups); err != nil {
		return fmt.Errorf("adding metrics: %w", err)
	}
	return nil
}
