package admission

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/apis/v1alpha1"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/observe"
)

// startTimeout bounds the start of etcd and the API server, which takes a few seconds on an idle machine.
const startTimeout = 2 * time.Minute

// server is a real API server with our CRD and webhook configuration, and the webhook itself in this process.
type server struct {
	config *rest.Config
	kube   client.Client
	env    *envtest.Environment
}

// started is what the tests share; nil without the programs of a control plane.
var started *server

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if _, err := os.Stat(filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kube-apiserver")); err != nil {
		return m.Run() // the tests skip themselves
	}
	s, err := start()
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting the API server:", err)
		return 1
	}
	defer func() { _ = s.env.Stop() }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := s.serve(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "starting the webhook:", err)
		return 1
	}
	started = s
	return m.Run()
}

// needServer skips a test where there is no API server.
func needServer(t *testing.T) *server {
	t.Helper()
	if started == nil {
		t.Skip("no kube-apiserver in KUBEBUILDER_ASSETS (make cluster builds it, make test-unit sets it)")
	}
	return started
}

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}

func start() (*server, error) {
	root := filepath.Join("..", "..")
	s := &server{env: &envtest.Environment{
		Scheme:                   scheme(),
		CRDDirectoryPaths:        []string{filepath.Join(root, "config", "crd", "bases")},
		ErrorIfCRDPathMissing:    true,
		ControlPlaneStartTimeout: startTimeout,
		WebhookInstallOptions:    envtest.WebhookInstallOptions{Paths: []string{filepath.Join(root, "config", "webhook", "manifests.yaml")}},
	}}
	var err error
	if s.config, err = s.env.Start(); err != nil {
		return nil, err
	}
	s.kube, err = client.New(s.config, client.Options{Scheme: scheme()})
	return s, err
}

// serve runs a manager with the webhook, as the operator does, and waits until it answers.
func (s *server) serve(ctx context.Context) error {
	options := s.env.WebhookInstallOptions
	ours := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{naming.LabelManagedBy: naming.ManagedBy})}
	mgr, err := ctrl.NewManager(s.config, ctrl.Options{
		Scheme:  scheme(),
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:   cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.PersistentVolumeClaim{}: ours}},
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: options.LocalServingHost, Port: options.LocalServingPort, CertDir: options.LocalServingCertDir,
		}),
	})
	if err != nil {
		return err
	}
	if err := Setup(mgr, &observe.Reader{Cache: mgr.GetClient(), API: mgr.GetAPIReader(), Now: time.Now}); err != nil {
		return err
	}
	go func() {
		if err := mgr.Start(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "the manager:", err)
		}
	}()
	address := net.JoinHostPort(options.LocalServingHost, fmt.Sprint(options.LocalServingPort))
	for range 100 {
		if connection, err := net.DialTimeout("tcp", address, time.Second); err == nil {
			connection.Close()
			return nil
		}
		<-time.After(100 * time.Millisecond)
	}
	return fmt.Errorf("nothing listens on %s", address)
}

// namespace makes a new one, with a name that begins so.
func (s *server) namespace(t *testing.T, prefix string) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-"}}
	require.NoError(t, s.kube.Create(t.Context(), namespace))
	return namespace.Name
}
