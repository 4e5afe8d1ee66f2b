//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// runBundle: operator-sdk installs this tree's bundle, without a catalog, and upgrades it.
func (r *olmRun) runBundle(t *testing.T) {
	uninstall(t)
	removeCatalogs(t)
	secure, certificate := secureRegistry(t)
	local := strings.TrimPrefix(r.catalogs["OPM_IMAGE"], registry())
	run := func(command, bundle string, flags ...string) {
		t.Helper()
		args := append([]string{"run", command, secure + r.catalogs[bundle], "-n", operatorNamespace, "--timeout=5m", "--security-context-config=restricted"}, flags...)
		operatorSDK(t, []string{"SSL_CERT_FILE=" + certificate}, args...)
	}
	run("bundle", "BUNDLE_HEAD", "--index-image="+secure+local, "--decompression-image="+r.catalogs["TOOLS_IMAGE"])
	waitInstalled(t, r.catalogs["HEAD_VERSION"])
	r.requireObeyed(t, "9MB")
	run("bundle-upgrade", "BUNDLE_NEXT")
	waitInstalled(t, r.catalogs["NEXT_VERSION"])
	r.requireObeyed(t, "10MB")
	r.requireUndisturbed(t)
}

// scorecard: all of its tests pass on the cluster.
func scorecard(t *testing.T) {
	namespace := newNamespace(t)
	catalogs := readOLM(t)
	said := operatorSDK(t, nil, "scorecard", filepath.Join(root, "bundle"), "-n", namespace, "--pod-security=restricted", "--wait-time=240s", "--output=json",
		"--storage-image="+catalogs["TOOLS_IMAGE"], "--untar-image="+catalogs["TOOLS_IMAGE"])
	var tests struct {
		Items []struct {
			Status struct {
				Results []struct {
					Name        string   `json:"name"`
					State       string   `json:"state"`
					Errors      []string `json:"errors"`
					Suggestions []string `json:"suggestions"`
				} `json:"results"`
			} `json:"status"`
		} `json:"items"`
	}
	require.NoError(t, json.Unmarshal([]byte(said), &tests), said)
	require.Len(t, tests.Items, 6)
	for _, test := range tests.Items {
		require.NotEmpty(t, test.Status.Results)
		for _, result := range test.Status.Results {
			require.Equal(t, "pass", result.State, "%s: %v", result.Name, result.Errors)
			require.Empty(t, result.Suggestions, result.Name)
		}
	}
}

// operatorSDK runs operator-sdk and returns what it prints.
func operatorSDK(t *testing.T, environment []string, args ...string) string {
	t.Helper()
	program, err := filepath.Abs(filepath.Join(root, "bin", "operator-sdk"))
	require.NoError(t, err)
	bundle := args[1]
	if args[0] == "scorecard" {
		bundle, err = filepath.Abs(args[1])
		require.NoError(t, err)
	}
	args[1] = bundle
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	begun := time.Now()
	command := exec.CommandContext(ctx, program, args...)
	command.Dir = t.TempDir() // it leaves files where it runs
	command.Env = append(command.Environ(), environment...)
	command.WaitDelay = boundRequest
	var out, problems bytes.Buffer
	command.Stdout, command.Stderr = &out, &problems
	require.NoError(t, command.Run(), "operator-sdk %s: %s%s", args[0], &out, &problems)
	t.Logf("operator-sdk %s (%.1f s)", strings.Join(args[:2], " "), time.Since(begun).Seconds())
	return out.String()
}

// secureRegistry is the registry over TLS, which operator-sdk insists on, until the test ends, and the file with its certificate.
// The cluster's nodes know every registry as the same.
func secureRegistry(t *testing.T) (host, certificate string) {
	t.Helper()
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: registry()})
	server := httptest.NewUnstartedServer(proxy)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	certificate = filepath.Join(t.TempDir(), "registry.crt")
	require.NoError(t, os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o644))
	return strings.TrimPrefix(server.URL, "https://"), certificate
}
