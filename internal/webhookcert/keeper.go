package webhookcert

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pgsteward/pgsteward/internal/credential"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// Keeper keeps the certificate.
type Keeper struct {
	// Namespace is the operator's.
	Namespace string
	// Certificate is given what is to be served.
	Certificate *Certificate
	// Now is the clock.
	Now func() time.Time

	client client.Client
	cache  cache.Cache
}

// SetupWithManager makes the manager run the keeper, in every replica.
func (k *Keeper) SetupWithManager(mgr manager.Manager) error {
	named := func(name string) fields.Selector { return fields.OneTermEqualSelector("metadata.name", name) }
	var err error
	k.client = mgr.GetClient()
	k.cache, err = cache.New(mgr.GetConfig(), cache.Options{
		Scheme:           mgr.GetScheme(),
		Mapper:           mgr.GetRESTMapper(),
		HTTPClient:       mgr.GetHTTPClient(),
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}: {Namespaces: map[string]cache.Config{k.Namespace: {}}, Field: named(naming.WebhookSecret)},
			&apiextensionsv1.CustomResourceDefinition{}:   {Field: named(naming.CRD), Transform: withoutSchema},
			&admissionv1.ValidatingWebhookConfiguration{}: {Field: named(naming.WebhookConfiguration)},
		},
	})
	if err != nil {
		return fmt.Errorf("making the cache of the webhook's certificate: %w", err)
	}
	if err := mgr.Add(everywhere{k.cache}); err != nil {
		return fmt.Errorf("adding the cache of the webhook's certificate: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).Named("webhook-certificate").
		WithOptions(controller.Options{NeedLeaderElection: new(false)}).
		WatchesRawSource(source.Kind(k.cache, &corev1.Secret{}, theOne[*corev1.Secret]())).
		WatchesRawSource(source.Kind(k.cache, &apiextensionsv1.CustomResourceDefinition{}, theOne[*apiextensionsv1.CustomResourceDefinition]())).
		WatchesRawSource(source.Kind(k.cache, &admissionv1.ValidatingWebhookConfiguration{}, theOne[*admissionv1.ValidatingWebhookConfiguration]())).
		Complete(k)
}

// everywhere is a cache that is also filled in replicas that do not lead.
type everywhere struct{ cache.Cache }

func (everywhere) NeedLeaderElection() bool { return false }

// withoutSchema drops what we have no use for, which is nearly all of it.
func withoutSchema(object any) (any, error) {
	if crd, ok := object.(*apiextensionsv1.CustomResourceDefinition); ok {
		crd.Spec.Versions, crd.ManagedFields = nil, nil
	}
	return object, nil
}

// theOne makes any change ask for the one thing that there is to do.
func theOne[T client.Object]() handler.TypedEventHandler[T, reconcile.Request] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(context.Context, T) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: naming.WebhookSecret}}}
	})
}

// Reconcile makes the certificate if need be, serves it, and tells the API server whom to trust.
func (k *Keeper) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	serving, renewAt, err := k.keep(ctx)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		log.FromContext(ctx).V(1).Info("Taking the certificate that another replica has made")
		return reconcile.Result{RequeueAfter: time.Second}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	pair, err := tls.X509KeyPair(serving.Server.Cert, serving.Server.Key)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading the webhook's certificate: %w", err)
	}
	k.Certificate.current.Store(&pair)
	if err := k.inject(ctx, serving.CA.Cert); err != nil {
		return reconcile.Result{}, err
	}
	k.Certificate.injected.Store(true)
	return reconcile.Result{RequeueAfter: max(renewAt.Sub(k.Now()), time.Minute)}, nil
}

// keep reads the Secret and writes it if something of it has to be made anew.
func (k *Keeper) keep(ctx context.Context) (credential.Serving, time.Time, error) {
	secret := &corev1.Secret{}
	key := types.NamespacedName{Namespace: k.Namespace, Name: naming.WebhookSecret}
	err := k.cache.Get(ctx, key, secret)
	if client.IgnoreNotFound(err) != nil {
		return credential.Serving{}, time.Time{}, fmt.Errorf("reading Secret %s: %w", key, err)
	}
	exists := err == nil
	have := credential.Serving{
		CA:     credential.KeyPair{Cert: secret.Data[naming.KeyCACert], Key: secret.Data[naming.KeyCAKey]},
		Server: credential.KeyPair{Cert: secret.Data[naming.KeyTLSCert], Key: secret.Data[naming.KeyTLSKey]},
	}
	want, renewAt, err := credential.Webhook(have, k.hosts(), k.Now(), rand.Reader)
	if err != nil {
		return credential.Serving{}, time.Time{}, err
	}
	if exists && string(want.Server.Cert) == string(have.Server.Cert) && string(want.CA.Cert) == string(have.CA.Cert) {
		return want, renewAt, nil
	}
	after := secret.DeepCopy()
	after.Data = map[string][]byte{
		naming.KeyCACert: want.CA.Cert, naming.KeyCAKey: want.CA.Key,
		naming.KeyTLSCert: want.Server.Cert, naming.KeyTLSKey: want.Server.Key,
	}
	if exists {
		// refused if another replica was faster
		err = k.client.Patch(ctx, after, client.MergeFromWithOptions(secret, client.MergeFromWithOptimisticLock{}))
	} else {
		after.ObjectMeta = metav1.ObjectMeta{
			Namespace: k.Namespace, Name: naming.WebhookSecret,
			Labels: map[string]string{naming.LabelName: naming.ManagedBy, naming.LabelComponent: "webhook"},
		}
		after.Type = corev1.SecretTypeTLS
		err = k.client.Create(ctx, after)
	}
	if err != nil {
		return credential.Serving{}, time.Time{}, fmt.Errorf("writing Secret %s: %w", key, err)
	}
	log.FromContext(ctx).Info("Made the webhook's certificate", "secret", key, "renewAt", renewAt)
	return want, renewAt, nil
}

// hosts are the names by which the API server calls the webhook's Service.
func (k *Keeper) hosts() []string {
	host := naming.ServiceHost(naming.WebhookService, k.Namespace)
	return []string{host, host + ".cluster.local"}
}
