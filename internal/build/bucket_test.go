package build_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/build"
	"github.com/pgsteward/pgsteward/internal/testing/expect"
)

// inBucket is the input of a cluster with that repository.
func inBucket(t *testing.T, repository string) build.Input {
	t.Helper()
	return input(t, strings.Replace(minimal, `version: "16"`, `version: "16", backup: {repository: {`+repository+`}}`, 1))
}

// mountedFrom are the keys that the instance mounts of the Secret, and where; nil: none.
func mountedFrom(t *testing.T, in build.Input, secret string) []corev1.KeyToPath {
	t.Helper()
	for _, volume := range podOf(t, in).Spec.Volumes {
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.Secret != nil && source.Secret.Name == secret {
				require.True(t, *source.Secret.Optional, "the agent says what is missing")
				return source.Secret.Items
			}
		}
	}
	return nil
}

// TestBuckets: what the agents are told of a bucket, what their Pods mount for it, and that there is no repository host.
func TestBuckets(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		repository string
		want       agentapi.Repository
		mounted    string
	}{
		"s3": {
			`s3: {endpoint: "https://s3.example.com/", bucket: backups, prefix: all, region: eu, credentialsSecret: access}`,
			agentapi.Repository{
				Kind: "s3", Path: "all/demo/prod-db", Endpoint: "https://s3.example.com", Bucket: "backups", Region: "eu", PathStyle: true, CredentialsSecret: "access",
			},
			`[{key: access-key-id, path: backup/access-key-id}, {key: secret-access-key, path: backup/secret-access-key}, {key: ca.crt, path: backup/ca.crt}]`,
		},
		"gcs": {
			`gcs: {endpoint: "https://storage.googleapis.com", bucket: backups, prefix: all, keyType: service, keySecret: {name: access}}`,
			agentapi.Repository{
				Kind: "gcs", Path: "all/demo/prod-db", Endpoint: "https://storage.googleapis.com", Bucket: "backups",
				KeyType: "service", CredentialsSecret: "access", CredentialsKey: "service-account.json",
			},
			`[{key: ca.crt, path: backup/ca.crt}, {key: service-account.json, path: backup/credentials}]`,
		},
		"gcs by the Pod's identity": {
			`gcs: {endpoint: "https://storage.googleapis.com", bucket: backups, keyType: auto}`,
			agentapi.Repository{Kind: "gcs", Path: "demo/prod-db", Endpoint: "https://storage.googleapis.com", Bucket: "backups", KeyType: "auto"},
			`null`,
		},
		"azure": {
			`azure: {endpoint: "https://blob.core.windows.net", account: shop, container: backups, keyType: shared, keySecret: {name: access, key: mine}}`,
			agentapi.Repository{
				Kind: "azure", Path: "demo/prod-db", Endpoint: "https://blob.core.windows.net", Account: "shop", Bucket: "backups",
				KeyType: "shared", CredentialsSecret: "access", CredentialsKey: "mine",
			},
			`[{key: ca.crt, path: backup/ca.crt}, {key: mine, path: backup/credentials}]`,
		},
		"azure by signature": {
			`azure: {endpoint: "https://azurite.demo.svc:10000", account: shop, container: backups, pathStyle: true, keyType: sas, keySecret: {name: access}}`,
			agentapi.Repository{
				Kind: "azure", Path: "demo/prod-db", Endpoint: "https://azurite.demo.svc:10000", Account: "shop", Bucket: "backups", PathStyle: true,
				KeyType: "sas", CredentialsSecret: "access", CredentialsKey: "sas-token",
			},
			`[{key: ca.crt, path: backup/ca.crt}, {key: sas-token, path: backup/credentials}]`,
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			in := inBucket(t, test.repository)
			data, ok := find(t, in, "ConfigMap", "prod-db-config").Object["data"].(map[string]any)
			require.True(t, ok)
			config := agentapi.Config{}
			require.NoError(t, json.Unmarshal([]byte(data["config.json"].(string)), &config))
			assert.Equal(t, test.want, config.Backup.Repository)
			expect.YAML(t, test.mounted, mountedFrom(t, in, "access"))
			assert.False(t, build.HasRepositoryHost(in.Cluster))
		})
	}
}

// TestAnotherKey: to mount another key of the Secret takes another Pod.
func TestAnotherKey(t *testing.T) {
	t.Parallel()
	spec := func(key string) build.Input {
		return inBucket(t, `gcs: {bucket: backups, keyType: service, keySecret: {name: access, key: `+key+`}}`)
	}
	before := podOf(t, spec("a"))
	assert.False(t, build.Outdated(spec("a").Cluster, before))
	assert.True(t, build.Outdated(spec("b").Cluster, before))
}
