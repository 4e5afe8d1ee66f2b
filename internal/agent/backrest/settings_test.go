package backrest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agentapi"
)

func settings(repository agentapi.Repository) Settings {
	return Settings{
		Repository: repository, TLS: TLS{Cert: "/s/tls.crt", Key: "/s/tls.key", CA: "/s/ca.crt", Name: "db"}, Work: "/run/backrest",
		Stanza: "pg17-1", Hosts: []Host{{Data: "/data/17", Socket: "/run", Port: 5432}}, ServerAddress: "*", ServerPort: 8432,
	}
}

// TestConfiguration is what pgBackRest is told of a repository host and of a bucket.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	t.Run("host", func(t *testing.T) {
		t.Parallel()
		text, err := settings(agentapi.Repository{Kind: agentapi.RepositoryHost, Host: "db-repository.ns.svc"}).Configuration()
		require.NoError(t, err)
		for _, line := range []string{
			"repo1-host=db-repository.ns.svc", "repo1-host-type=tls", "repo1-host-port=8432", "repo1-host-config=/run/backrest/pgbackrest.conf",
			"tls-server-auth=db=*", "[pg17-1]", "pg1-path=/data/17", "pg1-socket-path=/run",
		} {
			assert.Contains(t, text, line+"\n")
		}
		assert.NotContains(t, text, "repo1-path", "that is the host's")
	})
	t.Run("standby", func(t *testing.T) {
		t.Parallel()
		s := settings(agentapi.Repository{Kind: agentapi.RepositoryFolder, Path: "/backups"})
		s.Hosts, s.Standby = append(s.Hosts, Host{Address: "db-1.db.ns.svc", Config: "/run/backrest/pgbackrest.conf", Data: "/data/17", Socket: "/run", Port: 5432}), true
		text, err := s.Configuration()
		require.NoError(t, err)
		for _, line := range []string{"repo1-path=/backups", "pg2-host=db-1.db.ns.svc", "pg2-host-config=/run/backrest/pgbackrest.conf", "backup-standby=y"} {
			assert.Contains(t, text, line+"\n")
		}
		assert.NotContains(t, text, "pg1-host=")
	})
	t.Run("bucket", func(t *testing.T) {
		t.Parallel()
		s := settings(agentapi.Repository{
			Kind: agentapi.RepositoryS3, Path: "prefix/ns/db", Endpoint: "https://s3.example.com:9000", Bucket: "backups", Region: "eu", PathStyle: true,
			CredentialsSecret: "access", Encrypted: true, EncryptionSecret: "cipher",
		})
		s.Secrets = t.TempDir()
		_, err := s.Configuration()
		require.ErrorContains(t, err, "the Secret access has no key access-key-id")
		for name, content := range map[string]string{FileKey: "id", FileKeySecret: "very secret\n"} {
			require.NoError(t, os.WriteFile(filepath.Join(s.Secrets, name), []byte(content), 0o600))
		}
		_, err = s.Configuration()
		require.ErrorContains(t, err, "the Secret cipher has no key passphrase")
		require.NoError(t, os.WriteFile(filepath.Join(s.Secrets, FilePassphrase), []byte("pass"), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(s.Secrets, FileAuthority), []byte("pem"), 0o600))
		text, err := s.Configuration()
		require.NoError(t, err)
		for _, line := range []string{
			"repo1-type=s3", "repo1-path=/prefix/ns/db", "repo1-s3-bucket=backups", "repo1-s3-endpoint=s3.example.com", "repo1-storage-port=9000", "repo1-s3-uri-style=path",
			"repo1-s3-key=id", "repo1-s3-key-secret=very secret", "repo1-cipher-type=aes-256-cbc", "repo1-cipher-pass=pass",
			"repo1-storage-ca-file=" + filepath.Join(s.Secrets, FileAuthority),
		} {
			assert.Contains(t, text, line+"\n")
		}
	})
}
