package apply

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// backupKey tells PostgresBackups from PostgresClusters of the same name in what was written.
type backupKey types.NamespacedName

// OutdatedBackup says whether b is older than what was last written of it here.
func (w *Writer) OutdatedBackup(b *v1.PostgresBackup) bool {
	last, ok := w.written.Load(backupKey(client.ObjectKeyFromObject(b)))
	if !ok {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(b.ResourceVersion, last.(string)) //nolint:forcetypeassert,errcheck // only strings are stored
	return err == nil && order < 0
}

// BackupStatus writes the status of a PostgresBackup, if it differs, and if nobody has changed it meanwhile.
func (w *Writer) BackupStatus(ctx context.Context, b *v1.PostgresBackup, status v1.PostgresBackupStatus) error {
	before := b.DeepCopy()
	b.Status = status
	data, err := client.MergeFrom(before).Data(b)
	if err != nil {
		return fmt.Errorf("status of PostgresBackup %s/%s: %w", b.Namespace, b.Name, err)
	}
	if string(data) == "{}" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if err := w.Client.Status().Patch(ctx, b, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("writing the status of PostgresBackup %s/%s: %w", b.Namespace, b.Name, err))
	}
	key := backupKey(client.ObjectKeyFromObject(b))
	if done := status.Phase == v1.BackupCompleted || status.Phase == v1.BackupFailed; done {
		w.written.Delete(key)
	} else {
		w.written.Store(key, b.ResourceVersion)
	}
	return nil
}

// Backup asks for a backup. Whether it was begun is seen in what the agent tells: a refusal is a run that is not there.
func (w *Writer) Backup(ctx context.Context, agent *agentapi.Client, host string, request agentapi.BackupRequest) error {
	if err := agent.Backup(ctx, host, request); err != nil {
		return fmt.Errorf("asking for the backup %s: %w", request.Name, err)
	}
	return nil
}

// RemoveBackup asks for a backup to be removed from the repository.
func (w *Writer) RemoveBackup(ctx context.Context, agent *agentapi.Client, host string, request agentapi.RemovalRequest) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := agent.RemoveBackup(ctx, host, request); err != nil {
		return fmt.Errorf("asking for the removal of the backup %s: %w", request.Label, err)
	}
	return nil
}

// BackupFinalizer sets or removes our finalizer of a PostgresBackup.
func (w *Writer) BackupFinalizer(ctx context.Context, b *v1.PostgresBackup, want bool) error {
	before := b.DeepCopy()
	changed := false
	if want {
		changed = controllerutil.AddFinalizer(b, naming.BackupFinalizer)
	} else {
		changed = controllerutil.RemoveFinalizer(b, naming.BackupFinalizer)
	}
	if !changed {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := w.Client.Patch(ctx, b, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return client.IgnoreNotFound(fmt.Errorf("changing the finalizer of PostgresBackup %s/%s: %w", b.Namespace, b.Name, err))
	}
	return nil
}

// CancelBackup asks for the end of a backup.
func (w *Writer) CancelBackup(ctx context.Context, agent *agentapi.Client, host, id string) error {
	if err := agent.CancelBackup(ctx, host, id); err != nil {
		return fmt.Errorf("cancelling a backup: %w", err)
	}
	return nil
}

// CreateBackup asks for a backup of the cluster, unless there is a PostgresBackup of that name. An empty kind is what is due.
func (w *Writer) CreateBackup(ctx context.Context, namespace, cluster, name string, kind v1.BackupType) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := w.Client.Create(ctx, &v1.PostgresBackup{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: naming.ClusterLabels(cluster)},
		Spec:       v1.PostgresBackupSpec{Cluster: cluster, Type: kind},
	})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return classify(err, "PostgresBackup "+name)
}

// ForgetBackup deletes the PostgresBackup of that UID, whose backup is gone, or goes with its cluster.
func (w *Writer) ForgetBackup(ctx context.Context, namespace, name, uid string) error {
	return w.Delete(ctx, &v1.PostgresBackup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)}})
}
