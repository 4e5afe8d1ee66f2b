package admission

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/observe"
)

// Setup makes the manager's webhook server convert and judge PostgresClusters. Its scheme must know all their versions.
func Setup(mgr manager.Manager, reader *observe.Reader) error {
	// A replica that does not lead has no other use for these, and would first read them when somebody waits for an answer.
	for _, object := range []client.Object{&storagev1.StorageClass{}, &corev1.PersistentVolumeClaim{}} {
		if _, err := mgr.GetCache().GetInformer(context.Background(), object); err != nil {
			return fmt.Errorf("watching %T: %w", object, err)
		}
	}
	err := builder.WebhookManagedBy(mgr, &v1.PostgresCluster{}).WithValidator(&validator{reader: reader}).Complete()
	if err != nil {
		return fmt.Errorf("setting up the webhook: %w", err)
	}
	return nil
}
