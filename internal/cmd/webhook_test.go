package cmd

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/build"
)

// TestNewWebhooks: the certificate is OLM's if there is one, else ours; outside of a cluster there is no webhook.
func TestNewWebhooks(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv(envNamespace, "")
	require.Zero(t, newWebhooks(9443).port)

	t.Setenv(envNamespace, "operators")
	ours := newWebhooks(9443)
	require.Equal(t, 9443, ours.port)
	require.NotNil(t, ours.certificate)
	require.Zero(t, newWebhooks(0).port)

	mounted := filepath.Join(os.TempDir(), "k8s-webhook-server", "serving-certs")
	require.NoError(t, os.MkdirAll(mounted, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(mounted, "tls.crt"), []byte("x"), 0o600))
	olm := newWebhooks(9443)
	require.Equal(t, 9443, olm.port)
	require.Nil(t, olm.certificate)
}

func TestSettingsFromEnvironment(t *testing.T) {
	for _, major := range majors {
		t.Setenv(envPostgresImage+major, "")
		t.Setenv(envPostgresPrefix+major+envPostgresVersion, "")
	}
	t.Setenv(envOperatorImage, "")
	_, err := settingsFromEnvironment()
	require.ErrorContains(t, err, envOperatorImage)

	t.Setenv(envOperatorImage, "operator:1")
	t.Setenv(envServiceAccount, "pgsteward-manager")
	t.Setenv(envNamespace, "operators")
	t.Setenv("RELATED_IMAGE_POSTGRES_16", "postgres:16")
	t.Setenv("RELATED_IMAGE_POSTGRES_16_12", "postgres:16.12")
	t.Setenv("POSTGRES_16_VERSION", "16.14")
	settings, err := settingsFromEnvironment()
	require.NoError(t, err)
	require.Equal(t, build.Settings{
		OperatorImage: "operator:1", ServiceAccount: "pgsteward-manager", Namespace: "operators",
		PostgresImages:   map[string]string{"16": "postgres:16", "16.12": "postgres:16.12"},
		PostgresVersions: map[string]string{"16": "16.14"},
	}, settings)
}
