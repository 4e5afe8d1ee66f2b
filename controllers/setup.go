package controllers

import (
	"context"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/observe"
)

const (
	// concurrentClusters is how many clusters are reconciled at once; a pass waits for nothing but the API server's answer.
	concurrentClusters = 8
	// changesBuffer is how many changes heard from agents may wait; a stream that finds it full waits too, losing nothing.
	changesBuffer = 1024
)

// Changes is how agents' streams ask for a pass.
type Changes chan event.TypedGenericEvent[types.NamespacedName]

// NewChanges makes the channel.
func NewChanges() Changes { return make(Changes, changesBuffer) }

// Changed asks for a pass over the cluster.
func (c Changes) Changed(cluster types.NamespacedName) {
	c <- event.TypedGenericEvent[types.NamespacedName]{Object: cluster}
}

// SetupWithManager makes the manager call Reconcile when a PostgresCluster's spec, one of its objects or an agent's report
// changes.
func (r *PostgresCluster) SetupWithManager(mgr ctrl.Manager, changes Changes) error {
	b := ctrl.NewControllerManagedBy(mgr).
		For(&v1.PostgresCluster{}, builder.WithPredicates(wanted())).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrentClusters})
	kinds := observe.Kinds()
	if r.Reader.Secrets == nil {
		kinds = append(kinds, observe.SecretKind())
	}
	for _, kind := range kinds {
		b = b.Watches(kind.Object, handler.EnqueueRequestsFromMapFunc(clusterOf), builder.WithPredicates(newsworthy()))
	}
	b = b.Watches(&v1.PostgresBackup{}, handler.EnqueueRequestsFromMapFunc(clusterOfBackup), builder.WithPredicates(ended()))
	return b.WatchesRawSource(source.TypedChannel(changes, handler.TypedEnqueueRequestsFromMapFunc(
		func(_ context.Context, cluster types.NamespacedName) []reconcile.Request {
			return []reconcile.Request{{NamespacedName: cluster}}
		}))).Complete(r)
}

// SetupWithManager makes the manager call Reconcile when a PostgresBackup, its cluster or an agent's report changes.
func (r *PostgresBackup) SetupWithManager(mgr ctrl.Manager, changes Changes) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1.PostgresBackup{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrentClusters}).
		Watches(&v1.PostgresCluster{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
			return r.backups(ctx, client.ObjectKeyFromObject(object), func(*v1.PostgresBackup) bool { return true })
		}), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.TypedChannel(changes, handler.TypedEnqueueRequestsFromMapFunc(r.unfinished))).
		Complete(r)
}

// unfinished are the cluster's PostgresBackups that have not ended, or are being deleted.
func (r *PostgresBackup) unfinished(ctx context.Context, cluster types.NamespacedName) []reconcile.Request {
	return r.backups(ctx, cluster, func(b *v1.PostgresBackup) bool {
		return b.Status.Phase != v1.BackupCompleted && b.Status.Phase != v1.BackupFailed || !b.DeletionTimestamp.IsZero()
	})
}

// backups are the cluster's PostgresBackups of that kind.
func (r *PostgresBackup) backups(ctx context.Context, cluster types.NamespacedName, which func(*v1.PostgresBackup) bool) []reconcile.Request {
	all, err := r.Reader.BackupsOf(ctx, cluster)
	if err != nil {
		return nil // they look again by themselves
	}
	var requests []reconcile.Request
	for i := range all {
		if which(&all[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all[i])})
		}
	}
	return requests
}

// clusterOfBackup is the cluster that a PostgresBackup is of.
func clusterOfBackup(_ context.Context, object client.Object) []reconcile.Request {
	b, ok := object.(*v1.PostgresBackup)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: b.Namespace, Name: b.Spec.Cluster}}}
}

// ended drops what is no news for the cluster of a PostgresBackup: only its phase is.
func ended() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1.PostgresBackup)
		after, alsoOK := e.ObjectNew.(*v1.PostgresBackup)
		return !ok || !alsoOK || before.Status.Phase != after.Status.Phase
	}}
}

// clusterOf is the cluster of an object by its label.
func clusterOf(_ context.Context, object client.Object) []reconcile.Request {
	cluster := object.GetLabels()[naming.LabelCluster]
	if cluster == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: cluster}}}
}

// wishes are the annotations that mean something to a pass.
var wishes = []string{
	naming.AnnotationPaused, naming.AnnotationForceDelete, naming.AnnotationSwitchover, naming.AnnotationFenced, naming.AnnotationForceFailover,
	naming.AnnotationRestart, naming.AnnotationUpgradeSwitchover, naming.AnnotationUpgradeRetry, naming.AnnotationUpgradePreflight,
	naming.AnnotationSkipFinalBackup, naming.AnnotationSkipUpgradeBackup, naming.AnnotationRecoverInPlace,
}

// wanted drops what is not the user's wish: the status that we write ourselves, and what other tools annotate.
func wanted() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld, e.ObjectNew
		if before.GetGeneration() != after.GetGeneration() || !slices.Equal(before.GetFinalizers(), after.GetFinalizers()) {
			return true
		}
		return slices.ContainsFunc(wishes, func(key string) bool {
			return before.GetAnnotations()[key] != after.GetAnnotations()[key]
		})
	}}
}

// newsworthy drops the renewals of the Lease, which come every two seconds and say nothing new.
func newsworthy() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*coordinationv1.Lease)
		after, alsoOK := e.ObjectNew.(*coordinationv1.Lease)
		if !ok || !alsoOK {
			return e.ObjectOld.GetResourceVersion() != e.ObjectNew.GetResourceVersion()
		}
		return holder(before) != holder(after) || !sets.KeySet(before.Annotations).Equal(sets.KeySet(after.Annotations)) ||
			!sets.KeySet(before.Labels).Equal(sets.KeySet(after.Labels)) || before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero()
	}}
}

func holder(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}
