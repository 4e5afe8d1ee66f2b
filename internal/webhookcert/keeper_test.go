package webhookcert

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/pgsteward/pgsteward/internal/naming"
)

const namespace = "pgsteward-system"

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), apiextensionsv1.AddToScheme(s)); err != nil {
		panic(err)
	}
	return s
}

// files reads the objects of a file under config/.
func files(t *testing.T, path ...string) []client.Object {
	t.Helper()
	file, err := os.Open(filepath.Join(append([]string{"..", "..", "config"}, path...)...))
	require.NoError(t, err)
	defer file.Close()
	decoder := yaml.NewYAMLOrJSONDecoder(file, 4096)
	var all []client.Object
	for {
		raw := runtime.RawExtension{}
		if err := decoder.Decode(&raw); err != nil {
			return all
		}
		if len(raw.Raw) == 0 {
			continue
		}
		var meta metav1.TypeMeta
		require.NoError(t, yaml.Unmarshal(raw.Raw, &meta))
		typed, err := scheme().New(meta.GroupVersionKind())
		require.NoError(t, err)
		require.NoError(t, yaml.Unmarshal(raw.Raw, typed))
		object, ok := typed.(client.Object)
		require.True(t, ok)
		all = append(all, object)
	}
}

// TestKeeper has two replicas keep the certificate, with the rights that config/certificates gives them and no others.
func TestKeeper(t *testing.T) {
	if _, err := os.Stat(filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kube-apiserver")); err != nil {
		t.Skip("no kube-apiserver in KUBEBUILDER_ASSETS (make cluster builds it, make test-unit sets it)")
	}
	env := &envtest.Environment{}
	admin, err := env.Start()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, env.Stop()) })
	kube, err := client.New(admin, client.Options{Scheme: scheme()})
	require.NoError(t, err)
	install(t, kube)

	clock := &atomic.Int64{}
	clock.Store(time.Now().Unix())
	one, two := replica(t, operator(t, env), clock), replica(t, operator(t, env), clock)
	agreed := agreement(kube, one, two)
	first := agreed(t, "at first", nil)

	t.Run("a restart changes nothing", func(t *testing.T) {
		third := replica(t, operator(t, env), clock)
		require.Equal(t, first, agreement(kube, one, two, third)(t, "with a third", nil))
	})
	t.Run("a bundle that is taken out comes back", func(t *testing.T) {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		require.NoError(t, kube.Get(t.Context(), types.NamespacedName{Name: naming.CRD}, crd))
		before := crd.DeepCopy()
		crd.Spec.Conversion.Webhook.ClientConfig.CABundle = nil
		require.NoError(t, kube.Patch(t.Context(), crd, client.MergeFrom(before)))
		require.Equal(t, first, agreed(t, "again", nil))
	})
	t.Run("a Secret that is deleted comes back, with another authority", func(t *testing.T) {
		require.NoError(t, kube.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: naming.WebhookSecret}}))
		first = agreed(t, "after the deletion", first)
	})
	t.Run("it is renewed without a restart", func(t *testing.T) {
		clock.Add(int64((70 * 24 * time.Hour).Seconds()))
		// the keepers wake up for any change; by themselves they would in sixty days. A keeper may write at the same time: hence a patch
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: naming.WebhookSecret}}
		wake := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"woken":"yes"}}}`))
		require.NoError(t, kube.Patch(t.Context(), secret, wake))
		agreed(t, "after the renewal", first)
	})
}

// install makes what config/ installs of this, in a namespace of its own.
func install(t *testing.T, kube client.Client) {
	t.Helper()
	require.NoError(t, kube.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	crd, ok := files(t, "crd", "bases", "pgsteward.io_postgresclusters.yaml")[0].(*apiextensionsv1.CustomResourceDefinition)
	require.True(t, ok)
	conversion, ok := files(t, "crd", "patches", "conversion.yaml")[0].(*apiextensionsv1.CustomResourceDefinition)
	require.True(t, ok)
	crd.Spec.Conversion = conversion.Spec.Conversion
	objects := []client.Object{crd}
	objects = append(objects, files(t, "webhook", "manifests.yaml")...)
	objects = append(objects, files(t, "certificates", "role.yaml")...)
	objects = append(objects, files(t, "certificates", "role_binding.yaml")...)
	for _, object := range objects {
		if object.GetNamespace() == "" {
			switch object.(type) {
			case *rbacv1.Role, *rbacv1.RoleBinding:
				object.SetNamespace(namespace)
			}
		}
		require.NoError(t, kube.Create(t.Context(), object), "%T %s", object, object.GetName())
	}
}

// operator is the access of the operator's ServiceAccount.
func operator(t *testing.T, env *envtest.Environment) *rest.Config {
	t.Helper()
	user, err := env.AddUser(envtest.User{Name: "system:serviceaccount:" + namespace + ":pgsteward-manager"}, nil)
	require.NoError(t, err)
	return user.Config()
}

// replica runs a keeper.
func replica(t *testing.T, access *rest.Config, clock *atomic.Int64) *Certificate {
	t.Helper()
	mgr, err := ctrl.NewManager(access, ctrl.Options{
		Scheme: scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
	})
	require.NoError(t, err)
	certificate := &Certificate{}
	require.Error(t, certificate.Check(nil))
	keeper := &Keeper{Namespace: namespace, Certificate: certificate, Now: func() time.Time { return time.Unix(clock.Load(), 0) }}
	require.NoError(t, keeper.SetupWithManager(mgr))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	return certificate
}

// agreement waits until all replicas serve the same certificate, the API server trusts it, and it is not the one before.
func agreement(kube client.Client, replicas ...*Certificate) func(t *testing.T, when string, before []byte) []byte {
	return func(t *testing.T, when string, before []byte) []byte {
		t.Helper()
		var served []byte
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			served = nil
			for _, replica := range replicas {
				require.NoError(c, replica.Check(nil))
				settings := &tls.Config{}
				replica.TLS(settings)
				certificate, err := settings.GetCertificate(nil)
				require.NoError(c, err)
				if served == nil {
					served = certificate.Certificate[0]
				}
				require.Equal(c, served, certificate.Certificate[0], "all serve the same")
			}
			require.NotEqual(c, before, served)
			require.NoError(c, trusted(kube, served))
		}, 20*time.Second, 50*time.Millisecond, when)
		return served
	}
}

// trusted says whether the API server would take the certificate for that of our Service, for conversion and for validation.
func trusted(kube client.Client, der []byte) error {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	hook := &admissionv1.ValidatingWebhookConfiguration{}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := errors.Join(kube.Get(ctx, types.NamespacedName{Name: naming.CRD}, crd), kube.Get(ctx, types.NamespacedName{Name: naming.WebhookConfiguration}, hook)); err != nil {
		return err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return err
	}
	for name, bundle := range map[string][]byte{
		"conversion": crd.Spec.Conversion.Webhook.ClientConfig.CABundle, "validation": hook.Webhooks[0].ClientConfig.CABundle,
	} {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(bundle)
		host := naming.WebhookService + "." + namespace + ".svc"
		if _, err := certificate.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: certificate.NotBefore.Add(time.Hour)}); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
