package controllers

import (
	"context"
	"fmt"
	"time"

	olmv2 "github.com/operator-framework/api/pkg/operators/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/apply"
	"github.com/pgsteward/pgsteward/internal/upgradeable"
)

// OperatorCondition tells OLM whether the operator may be upgraded just now.
//
// OLM lets every operator get, update and patch its own OperatorCondition. Noticing without asking that somebody else has changed it
// takes list and watch as well: config/rbac/operator_condition_role.yaml.
type OperatorCondition struct {
	// Key is that of the OperatorCondition, which OLM makes for each version of the operator.
	Key    types.NamespacedName
	Writer *apply.Writer
	// Now is the clock.
	Now func() time.Time

	clusters   client.Reader
	conditions client.Reader
}

// SetupWithManager makes the leader tell OLM of every change. Where there is no OLM it does nothing.
func (r *OperatorCondition) SetupWithManager(mgr ctrl.Manager) error {
	if r.Key.Name == "" || r.Key.Namespace == "" {
		return nil
	}
	kind := olmv2.GroupVersion.WithKind("OperatorCondition")
	if _, err := mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version); err != nil {
		if apimeta.IsNoMatchError(err) {
			return nil
		}
		return fmt.Errorf("asking for the kind OperatorCondition: %w", err)
	}
	conditions, err := r.cache(mgr)
	if err != nil {
		return err
	}
	r.clusters, r.conditions = mgr.GetClient(), conditions
	theOne := []reconcile.Request{{NamespacedName: r.Key}}
	it := func(context.Context, *olmv2.OperatorCondition) []reconcile.Request { return theOne }
	anyCluster := func(context.Context, client.Object) []reconcile.Request { return theOne }
	return ctrl.NewControllerManagedBy(mgr).Named("operator-condition").
		WatchesRawSource(source.Kind(conditions, &olmv2.OperatorCondition{},
			handler.TypedEnqueueRequestsFromMapFunc(it), predicate.TypedGenerationChangedPredicate[*olmv2.OperatorCondition]{})).
		Watches(&v1.PostgresCluster{}, handler.EnqueueRequestsFromMapFunc(anyCluster), builder.WithPredicates(blocks())).
		Complete(r)
}

// cache is one with nothing in it but the OperatorCondition. It runs with the leader only.
func (r *OperatorCondition) cache(mgr ctrl.Manager) (cache.Cache, error) {
	one, err := cache.New(mgr.GetConfig(), cache.Options{
		Scheme:           mgr.GetScheme(),
		Mapper:           mgr.GetRESTMapper(),
		HTTPClient:       mgr.GetHTTPClient(),
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{&olmv2.OperatorCondition{}: {
			Namespaces: map[string]cache.Config{r.Key.Namespace: {}},
			Field:      fields.OneTermEqualSelector("metadata.name", r.Key.Name),
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("making the cache of the OperatorCondition: %w", err)
	}
	if err := mgr.Add(one); err != nil {
		return nil, fmt.Errorf("adding the cache of the OperatorCondition: %w", err)
	}
	return one, nil
}

// blocks lets through only what changes the answer: at rest, nothing.
func blocks() predicate.Predicate {
	of := func(object client.Object) string {
		c, ok := object.(*v1.PostgresCluster)
		if !ok {
			return ""
		}
		return upgradeable.Blocks(c)
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return of(e.Object) != "" },
		UpdateFunc: func(e event.UpdateEvent) bool { return of(e.ObjectOld) != of(e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool { return of(e.Object) != "" },
	}
}

// Reconcile writes the condition if it is not what it should be.
func (r *OperatorCondition) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	observed := &olmv2.OperatorCondition{}
	if err := r.conditions.Get(ctx, request.NamespacedName, observed); err != nil {
		if apierrors.IsNotFound(err) {
			return ctrl.Result{}, nil // OLM will make it, and we hear of it
		}
		return ctrl.Result{}, fmt.Errorf("reading OperatorCondition %s: %w", request.NamespacedName, err)
	}
	clusters := &v1.PostgresClusterList{}
	if err := r.clusters.List(ctx, clusters, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing PostgresClusters: %w", err)
	}
	want := upgradeable.Of(clusters.Items)
	want.Type = olmv2.Upgradeable
	conditions, changed := upgradeable.Set(observed.Spec.Conditions, observed.Generation, want, metav1.NewTime(r.Now()))
	if !changed {
		return ctrl.Result{}, nil
	}
	if err := r.Writer.OperatorConditions(ctx, observed, conditions); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return ctrl.Result{RequeueAfter: outdatedRecheck}, nil // somebody else was faster: the cache will have it
		}
		return ctrl.Result{}, err
	}
	log.FromContext(ctx).Info("Told OLM whether the operator may be upgraded", "upgradeable", want.Status, "reason", want.Reason, "message", want.Message)
	return ctrl.Result{}, nil
}
