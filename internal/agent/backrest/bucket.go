package backrest

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// endpoint is the URL of the bucket's store.
func (s Settings) endpoint() (*url.URL, error) {
	endpoint, err := url.Parse(s.Repository.Endpoint)
	if err != nil || endpoint.Host == "" {
		return nil, fmt.Errorf("spec.backup.repository.%s.endpoint %q is no URL such as https://minio.storage.svc:9000", s.Repository.Kind, s.Repository.Endpoint)
	}
	return endpoint, nil
}

// bucket are the options of a bucket.
func (s Settings) bucket() ([]option, error) {
	kinds := map[string]func(*url.URL) ([]option, error){
		agentapi.RepositoryS3: s.s3, agentapi.RepositoryGCS: s.gcs, agentapi.RepositoryAzure: s.azure,
	}
	optionsOf, known := kinds[s.Repository.Kind]
	if !known {
		return nil, fmt.Errorf("there is no kind of repository %q", s.Repository.Kind)
	}
	endpoint, err := s.endpoint()
	if err != nil {
		return nil, err
	}
	options, err := optionsOf(endpoint)
	if err != nil {
		return nil, err
	}
	if authority := filepath.Join(s.Secrets, FileAuthority); exists(authority) {
		options = append(options, option{"repo1-storage-ca-file", authority})
	}
	return append(options, option{"repo1-type", s.Repository.Kind}), nil
}

func uriStyle(r agentapi.Repository) string {
	if r.PathStyle {
		return "path"
	}
	return "host"
}

func (s Settings) s3(endpoint *url.URL) ([]option, error) {
	r := s.Repository
	key, err := s.secret(r.CredentialsSecret, FileKey)
	if err != nil {
		return nil, err
	}
	secret, err := s.secret(r.CredentialsSecret, FileKeySecret)
	if err != nil {
		return nil, err
	}
	return []option{
		{"repo1-s3-bucket", r.Bucket}, {"repo1-s3-endpoint", endpoint.Hostname()}, {"repo1-storage-port", portOf(endpoint)},
		{"repo1-s3-region", r.Region}, {"repo1-s3-uri-style", uriStyle(r)}, {"repo1-s3-key", key}, {"repo1-s3-key-secret", secret},
	}, nil
}

// gcs: the port is part of the endpoint, and the key of a service account is read from its file by pgBackRest.
func (s Settings) gcs(endpoint *url.URL) ([]option, error) {
	r := s.Repository
	options := []option{
		{"repo1-gcs-bucket", r.Bucket}, {"repo1-gcs-endpoint", net.JoinHostPort(endpoint.Hostname(), portOf(endpoint))}, {"repo1-gcs-key-type", r.KeyType},
	}
	if r.KeyType == agentapi.KeyAuto {
		return options, nil
	}
	key, err := s.credentials(checkServiceKey)
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256([]byte(key))
	return append(options, option{"repo1-gcs-key", filepath.Join(s.Secrets, naming.FileCredentials)},
		option{"# the key's SHA-256", hex.EncodeToString(digest[:])}), nil // so that another key makes another configuration
}

func (s Settings) azure(endpoint *url.URL) ([]option, error) {
	r := s.Repository
	options := []option{
		{"repo1-azure-account", r.Account}, {"repo1-azure-container", r.Bucket}, {"repo1-azure-endpoint", endpoint.Hostname()},
		{"repo1-storage-port", portOf(endpoint)}, {"repo1-azure-uri-style", uriStyle(r)}, {"repo1-azure-key-type", r.KeyType},
	}
	if r.KeyType == agentapi.KeyAuto {
		return options, nil
	}
	check := checkSharedKey
	if r.KeyType == agentapi.KeySAS {
		check = checkSignature
	}
	key, err := s.credentials(check)
	if err != nil {
		return nil, err
	}
	return append(options, option{"repo1-azure-key", key}), nil
}

// credentials is the key that the spec names, if it is one. pgBackRest would check it too, but quote it where it complains.
func (s Settings) credentials(check func(key string) error) (string, error) {
	r := s.Repository
	key, err := s.secretIn(naming.FileCredentials, r.CredentialsSecret, r.CredentialsKey)
	if err != nil {
		return "", err
	}
	if err := check(key); err != nil {
		return "", fmt.Errorf("the key %s of the Secret %s is %w", r.CredentialsKey, r.CredentialsSecret, err)
	}
	return key, nil
}

func checkServiceKey(key string) error {
	var account struct {
		Email   string `json:"client_email"`
		Private string `json:"private_key"`
		Token   string `json:"token_uri"`
	}
	if err := json.Unmarshal([]byte(key), &account); err != nil || account.Email == "" || account.Private == "" || account.Token == "" {
		return errors.New("no service account's key: it must be JSON with client_email, private_key and token_uri, as Google Cloud makes it")
	}
	return nil
}

func checkSharedKey(key string) error {
	if _, err := base64.StdEncoding.DecodeString(key); err != nil {
		return errors.New("no key of a storage account: it must be in base64, as Azure shows it")
	}
	return nil
}

// signature has names and values that are encoded for a URL, since pgBackRest takes them apart.
var signature = regexp.MustCompile(`^\??[a-z]+=(?:[^&=%\s]|%[0-9A-Fa-f]{2})+(?:&[a-z]+=(?:[^&=%\s]|%[0-9A-Fa-f]{2})+)*$`)

func checkSignature(key string) error {
	if !signature.MatchString(key) || !strings.Contains(key, "sig=") {
		return errors.New("no shared access signature: it must be what Azure shows as SAS token, sv=…&sig=…, encoded for a URL")
	}
	return nil
}
