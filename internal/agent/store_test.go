package agent

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// storeAddress is where stores of buckets listen.
const storeAddress = "127.0.0.98"

// testBucket is an encrypted repository in a bucket of a store that runs, with TLS.
type testBucket struct {
	repository agentapi.Repository
	// files are its Secrets, as they are mounted.
	files map[string]string
	// stop takes the store away, start brings it back.
	stop, start func()
}

// mount mounts the Secrets into a folder of all instances of the cluster.
func (b testBucket) mount(t *testing.T, c *testCluster, dir string) {
	t.Helper()
	for _, a := range c.agents {
		for name, content := range b.files {
			path := a.paths.secret(dir, name)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
		}
	}
}

// testStore is a program that serves buckets from a folder.
type testStore struct{ program, folder, cert, key, port string }

// newTestStore finds the program; how says how to get it.
func newTestStore(t *testing.T, c *testCluster, program, how string) testStore {
	t.Helper()
	path, err := filepath.Abs("../../bin/" + program)
	require.NoError(t, err)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no bin/%s: %s", program, how)
	}
	s := testStore{program: path, folder: filepath.Join(c.dir, "store"), port: strconv.Itoa(freePort(t))}
	require.NoError(t, os.MkdirAll(filepath.Join(s.folder, "data", "backups"), 0o755))
	s.cert, s.key = filepath.Join(s.folder, "tls.crt"), filepath.Join(s.folder, "tls.key")
	cert, key := c.ca.issue(t, "store", net.ParseIP(storeAddress))
	require.NoError(t, os.WriteFile(s.cert, []byte(cert), 0o600))
	require.NoError(t, os.WriteFile(s.key, []byte(key), 0o600))
	return s
}

func (s testStore) data() string { return filepath.Join(s.folder, "data") }

func (s testStore) url() string { return "https://" + net.JoinHostPort(storeAddress, s.port) }

// bucket starts the program, and adds what all buckets have.
func (s testStore) bucket(t *testing.T, c *testCluster, b testBucket, environment []string, arguments ...string) testBucket {
	t.Helper()
	output := &syncBuffer{}
	var cmd *exec.Cmd
	b.start = func() {
		cmd = exec.Command(s.program, arguments...)
		cmd.Env, cmd.Dir = append(os.Environ(), environment...), s.folder
		cmd.Stdout, cmd.Stderr = output, output
		require.NoError(t, cmd.Start())
	}
	b.stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	b.start()
	t.Cleanup(func() {
		b.stop()
		if t.Failed() {
			t.Logf("log of the store:\n%s", tailOf(output.String(), 50))
		}
	})
	b.repository.Path, b.repository.Endpoint, b.repository.Bucket, b.repository.CredentialsSecret = "prefix/test/db", s.url(), "backups", "access"
	b.repository.Encrypted, b.repository.EncryptionSecret = true, "cipher"
	b.files[naming.KeyPassphrase], b.files[naming.KeyCACert] = "cipher-secret", c.ca.pem
	return b
}

func bucketInS3(t *testing.T, c *testCluster) testBucket {
	t.Helper()
	s := newTestStore(t, c, "versitygw", "hack/tools/build.sh s3")
	return s.bucket(t, c, testBucket{
		repository: agentapi.Repository{Kind: agentapi.RepositoryS3, Region: "us-east-1", PathStyle: true},
		files:      map[string]string{naming.KeyS3Key: "someone", naming.KeyS3Secret: "s3-secret"},
	}, []string{"ROOT_ACCESS_KEY=someone", "ROOT_SECRET_KEY=s3-secret"},
		"--port", net.JoinHostPort(storeAddress, s.port), "--cert", s.cert, "--key", s.key, "posix", "--nometa", s.data())
}

func bucketInGCS(t *testing.T, c *testCluster) testBucket {
	t.Helper()
	s := newTestStore(t, c, "fake-gcs-server", "hack/tools/build.sh gcs")
	return s.bucket(t, c, testBucket{
		repository: agentapi.Repository{Kind: agentapi.RepositoryGCS, KeyType: agentapi.KeyService, CredentialsKey: naming.KeyGCSService},
		files:      map[string]string{naming.FileCredentials: serviceAccount(t, s)},
	}, nil, "-scheme", "https", "-host", storeAddress, "-port", s.port, "-cert-location", s.cert, "-private-key-location", s.key,
		"-external-url", s.url(), "-backend", "filesystem", "-filesystem-root", s.data())
}

// serviceAccount is the key of a service account, for which a server gives tokens to who signs with it.
func serviceAccount(t *testing.T, s testStore) string {
	t.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	tokens := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assertion := r.PostFormValue("assertion")
		end := max(strings.LastIndex(assertion, "."), 0)
		given, err := base64.RawURLEncoding.DecodeString(strings.Trim(assertion[end:], ".="))
		digest := sha256.Sum256([]byte(assertion[:end]))
		if err != nil || rsa.VerifyPKCS1v15(&private.PublicKey, crypto.SHA256, digest[:], given) != nil {
			_, _ = io.WriteString(w, `{"error": "invalid_grant", "error_description": "the signature is wrong"}`)
			return
		}
		_, _ = io.WriteString(w, `{"access_token": "a-token", "token_type": "Bearer", "expires_in": 3600}`)
	}))
	pair, err := tls.LoadX509KeyPair(s.cert, s.key)
	require.NoError(t, err)
	require.NoError(t, tokens.Listener.Close())
	tokens.Listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(storeAddress, "0"))
	require.NoError(t, err)
	tokens.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	tokens.StartTLS()
	t.Cleanup(tokens.Close)
	key, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	text, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "backups@test.iam.gserviceaccount.com", "token_uri": tokens.URL + "/token",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})),
	})
	require.NoError(t, err)
	return string(text)
}

const azureAccount = "pgsteward"

func bucketInAzure(t *testing.T, c *testCluster) testBucket {
	t.Helper()
	bucket, _ := azureBucket(t, c)
	return bucket
}

func bucketInAzureBySignature(t *testing.T, c *testCluster) testBucket {
	t.Helper()
	bucket, signature := azureBucket(t, c)
	bucket.repository.KeyType, bucket.repository.CredentialsKey = agentapi.KeySAS, naming.KeyAzureSAS
	bucket.files[naming.FileCredentials] = signature
	return bucket
}

// azureBucket is a container that is opened with the account's key; the signature opens it too.
func azureBucket(t *testing.T, c *testCluster) (bucket testBucket, signature string) {
	t.Helper()
	s := newTestStore(t, c, "azurite-blob", "hack/tools/azurite.sh")
	key := []byte("a key of the storage account")
	shared := base64.StdEncoding.EncodeToString(key)
	bucket = s.bucket(t, c, testBucket{
		repository: agentapi.Repository{
			Kind: agentapi.RepositoryAzure, Account: azureAccount, PathStyle: true, KeyType: agentapi.KeyShared, CredentialsKey: naming.KeyAzureShared,
		},
		files: map[string]string{naming.FileCredentials: shared},
	}, []string{"AZURITE_ACCOUNTS=" + azureAccount + ":" + shared},
		"--blobHost", storeAddress, "--blobPort", s.port, "--cert", s.cert, "--key", s.key, "--location", s.data(), "--disableTelemetry")
	signature = sign(key)
	createContainer(t, c, s.url()+"/"+azureAccount+"/backups?restype=container&"+signature)
	return bucket, signature
}

// sign is a shared access signature of the account, for everything
// (https://learn.microsoft.com/en-us/rest/api/storageservices/create-account-sas).
func sign(key []byte) string {
	const version, services, types, permissions = "2019-02-02", "b", "sco", "rwdlac"
	until := time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)
	mac := hmac.New(sha256.New, key)
	_, _ = io.WriteString(mac, strings.Join([]string{azureAccount, permissions, services, types, "", until, "", "https", version, ""}, "\n"))
	return url.Values{
		"sv": {version}, "ss": {services}, "srt": {types}, "sp": {permissions}, "se": {until}, "spr": {"https"},
		"sig": {base64.StdEncoding.EncodeToString(mac.Sum(nil))},
	}.Encode()
}

// createContainer creates the container of that URL, as soon as the store answers.
func createContainer(t *testing.T, c *testCluster, address string) {
	t.Helper()
	authorities := x509.NewCertPool()
	require.True(t, authorities.AppendCertsFromPEM([]byte(c.ca.pem)))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authorities}}, Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, address, http.NoBody)
		require.NoError(collect, err)
		response, err := client.Do(request)
		require.NoError(collect, err)
		said, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		require.Equal(collect, http.StatusCreated, response.StatusCode, string(said))
	}, backupBound, 200*time.Millisecond) // node takes a minute to load it where the machine is busy
}
