// Package apiserver gives tests a real etcd and kube-apiserver with our CRDs. There is no kubelet and no controller: a test plays
// them itself, by writing objects.
//
// The programs come from KUBEBUILDER_ASSETS, by default from bin/ of the repository, where `make cluster` links them. Without them
// tests are skipped, but not where CI=true: there they fail.
package apiserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
)

// startTimeout bounds the start of etcd and the API server, which takes a few seconds on an idle machine.
const startTimeout = 2 * time.Minute

// shared is the API server of the test binary; it starts when the first test asks for it.
var shared struct {
	once        sync.Once
	environment *envtest.Environment
	config      *rest.Config
	err         error
}

// Main runs a package's tests and stops the API server afterwards. Call it in TestMain.
func Main(m *testing.M) {
	code := m.Run()
	if shared.environment != nil {
		if err := shared.environment.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stopping the API server:", err)
		}
	}
	os.Exit(code)
}

// Config is the access to the API server. The test is skipped if there is none.
func Config(t testing.TB) *rest.Config {
	t.Helper()
	assets, err := findAssets()
	if err != nil {
		if os.Getenv("CI") == "true" {
			require.NoError(t, err)
		}
		t.Skip(err)
	}
	shared.once.Do(func() {
		shared.environment = &envtest.Environment{
			BinaryAssetsDirectory:    assets,
			CRDDirectoryPaths:        []string{filepath.Join(root(), "config", "crd", "bases")},
			ErrorIfCRDPathMissing:    true,
			ControlPlaneStartTimeout: startTimeout,
		}
		shared.config, shared.err = shared.environment.Start()
	})
	require.NoError(t, shared.err, "starting etcd and the API server")
	return rest.CopyConfig(shared.config)
}

// Client asks the API server, without a cache.
func Client(t testing.TB) client.WithWatch {
	t.Helper()
	config := Config(t)
	config.QPS = -1
	c, err := client.NewWithWatch(config, client.Options{Scheme: Scheme(t)})
	require.NoError(t, err)
	return c
}

// Scheme knows Kubernetes' kinds and ours.
func Scheme(t testing.TB) *kruntime.Scheme {
	t.Helper()
	scheme := kruntime.NewScheme()
	require.NoError(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1.AddToScheme(scheme)))
	return scheme
}

// Namespace makes one for the test.
func Namespace(t testing.TB, c client.Client) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	require.NoError(t, c.Create(t.Context(), namespace))
	return namespace.Name
}

func findAssets() (string, error) {
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		assets = filepath.Join(root(), "bin")
	}
	var missing []string
	for _, program := range []string{"etcd", "kube-apiserver", "kubectl"} {
		if _, err := os.Stat(filepath.Join(assets, program)); err != nil {
			missing = append(missing, program)
		}
	}
	if len(missing) > 0 {
		return "", fmt.Errorf("no API server to test with: %s has no %s; `make cluster` builds them, or set KUBEBUILDER_ASSETS", assets, strings.Join(missing, ", "))
	}
	return assets, nil
}

// root is the repository's folder: the one with go.mod at or above the package's, in which tests run. (The source file's own path is
// not known in a program that was built with -trimpath.)
func root() string {
	dir, err := os.Getwd()
	for err == nil {
		if _, missing := os.Stat(filepath.Join(dir, "go.mod")); missing == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	return "."
}
