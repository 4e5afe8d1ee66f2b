package backrest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
)

const serviceKey = `{"client_email": "a@b", "private_key": "very secret", "token_uri": "https://oauth2.googleapis.com/token"}`

// TestBuckets is what pgBackRest is told of the buckets that are opened with one key, and what is said of keys that are none.
func TestBuckets(t *testing.T) {
	t.Parallel()
	gcs := agentapi.Repository{
		Kind: agentapi.RepositoryGCS, Path: "prefix/ns/db", Endpoint: "https://storage.googleapis.com", Bucket: "backups",
		KeyType: agentapi.KeyService, CredentialsSecret: "access", CredentialsKey: "key.json",
	}
	azure := agentapi.Repository{
		Kind: agentapi.RepositoryAzure, Path: "prefix/ns/db", Endpoint: "https://azurite.storage.svc:10000", Account: "shop", Bucket: "backups", PathStyle: true,
		KeyType: agentapi.KeyShared, CredentialsSecret: "access", CredentialsKey: "account-key",
	}
	signed := azure
	signed.Endpoint, signed.PathStyle, signed.KeyType = "https://blob.core.windows.net", false, agentapi.KeySAS
	for what, test := range map[string]struct {
		repository agentapi.Repository
		key        string
		lines      []string
		bad        map[string]string // keys, and what is said of them
	}{
		"gcs": {
			gcs, serviceKey, []string{
				"repo1-type=gcs", "repo1-path=/prefix/ns/db", "repo1-gcs-bucket=backups", "repo1-gcs-endpoint=storage.googleapis.com:443", "repo1-gcs-key-type=service",
			}, map[string]string{
				"very secret": "the key key.json of the Secret access is no service account's key", `{"client_email": "very secret"}`: "is no service account's key",
			},
		},
		"azure": {
			azure, "c2VjcmV0", []string{
				"repo1-type=azure", "repo1-path=/prefix/ns/db", "repo1-azure-account=shop", "repo1-azure-container=backups", "repo1-azure-endpoint=azurite.storage.svc",
				"repo1-storage-port=10000", "repo1-azure-uri-style=path", "repo1-azure-key-type=shared", "repo1-azure-key=c2VjcmV0",
			}, map[string]string{"very secret": "the key account-key of the Secret access is no key of a storage account: it must be in base64"},
		},
		"azure by signature": {
			signed, "?sv=2021&sig=ab%3D", []string{
				"repo1-azure-endpoint=blob.core.windows.net", "repo1-storage-port=443", "repo1-azure-uri-style=host", "repo1-azure-key-type=sas",
				"repo1-azure-key=?sv=2021&sig=ab%3D",
			}, map[string]string{
				"very secret": "is no shared access signature", "sv=2021": "is no shared access signature", "sv=2021&sig=very secret=": "is no shared access signature",
				"sv=2021&sig=very%secret": "is no shared access signature",
			},
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := settings(test.repository)
			s.Secrets = t.TempDir()
			_, err := s.Configuration()
			require.ErrorContains(t, err, "the Secret access has no key "+test.repository.CredentialsKey)
			give := func(file, content string) {
				require.NoError(t, os.WriteFile(filepath.Join(s.Secrets, file), []byte(content), 0o600))
			}
			for key, words := range test.bad {
				give(naming.FileCredentials, key)
				_, err = s.Configuration()
				require.ErrorContains(t, err, words)
				require.NotContains(t, err.Error(), "very")
			}
			give(naming.FileCredentials, test.key+"\n")
			give(FileAuthority, "pem")
			text, err := s.Configuration()
			require.NoError(t, err)
			for _, line := range append(test.lines, "repo1-storage-ca-file="+filepath.Join(s.Secrets, FileAuthority)) {
				assert.Contains(t, text, line+"\n")
			}
			s.Repository.KeyType = agentapi.KeyAuto
			text, err = s.Configuration()
			require.NoError(t, err)
			assert.Contains(t, text, "-key-type=auto\n")
			assert.NotContains(t, text, "-key=")
		})
	}
}

// TestServiceKeyChanges: another key of a service account makes another configuration, although that has only its path.
func TestServiceKeyChanges(t *testing.T) {
	t.Parallel()
	s := settings(agentapi.Repository{Kind: agentapi.RepositoryGCS, Endpoint: "https://storage.googleapis.com", Bucket: "backups", KeyType: agentapi.KeyService})
	s.Secrets = t.TempDir()
	file := filepath.Join(s.Secrets, naming.FileCredentials)
	require.NoError(t, os.WriteFile(file, []byte(serviceKey), 0o600))
	before, err := s.Configuration()
	require.NoError(t, err)
	assert.Contains(t, before, "repo1-gcs-key="+file+"\n")
	assert.NotContains(t, before, "very secret")
	require.NoError(t, os.WriteFile(file, []byte(serviceKey+" "), 0o600))
	same, err := s.Configuration()
	require.NoError(t, err)
	assert.Equal(t, before, same)
	require.NoError(t, os.WriteFile(file, []byte(`{"client_email": "a@b", "private_key": "another", "token_uri": "https://oauth2.googleapis.com/token"}`), 0o600))
	after, err := s.Configuration()
	require.NoError(t, err)
	assert.NotEqual(t, before, after)
}

// TestIdentityOfAzure: what an older pgBackRest says of it is explained.
func TestIdentityOfAzure(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "info command requires option: repo1-azure-key: the image's pgBackRest knows no keyType auto for azure, which came with 2.58",
		complaint([]byte("ERROR: [037]: info command requires option: repo1-azure-key\n")))
}

// TestUnknownKind: an operator that is newer than the agent may know others.
func TestUnknownKind(t *testing.T) {
	t.Parallel()
	_, err := settings(agentapi.Repository{Kind: "tape"}).Configuration()
	require.ErrorContains(t, err, `there is no kind of repository "tape"`)
}
