package agent

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// watcher looks at the files that the kubelet mounts, in each round: it replaces them by moving a link, which no watch on the
// file itself would see.
type watcher struct {
	configSum    [sha256.Size]byte
	certificates [sha256.Size]byte
}

// readConfig reads the configuration if it has changed; nil if it has not.
func (w *watcher) readConfig(path string) (*agentapi.Config, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	sum := sha256.Sum256(content)
	if sum == w.configSum {
		return nil, nil //nolint:nilnil // nothing new
	}
	w.configSum = sum // a broken one is reported once, until it changes
	config := &agentapi.Config{}
	if err := json.Unmarshal(content, config); err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	return config, nil
}

// certificatesChanged says whether the server's certificate or authority differ from the last time. All of it must be
// readable, since a reload with half of it would be refused.
func (w *watcher) certificatesChanged(paths Paths) bool {
	hash := sha256.New()
	for _, key := range []string{naming.KeyTLSCert, naming.KeyTLSKey, naming.KeyCACert} {
		content, err := os.ReadFile(paths.secret(naming.DirServer, key))
		if err != nil {
			return false
		}
		hash.Write(content)
	}
	sum := [sha256.Size]byte(hash.Sum(nil))
	changed := sum != w.certificates
	w.certificates = sum
	return changed
}

// password is the password in one of the mounted Secrets, exactly as it is there; empty if it is not there.
func (p Paths) password(dir string) string {
	content, err := os.ReadFile(filepath.Join(p.Secrets, dir, naming.KeyPassword))
	if err != nil {
		return ""
	}
	return string(content)
}

// hash is that of everything mounted, as the operator computes it; empty while something is missing.
func (p Paths) hash() string {
	missing := false
	read := func(path string) []byte {
		content, err := os.ReadFile(path)
		missing = missing || err != nil
		return content
	}
	files := agentapi.Files{
		Config:            read(p.Config),
		SuperuserPassword: read(p.secret(naming.DirSuperuser, naming.KeyPassword)),
		AppPassword:       read(p.secret(naming.DirApp, naming.KeyPassword)),
		CACert:            read(p.secret(naming.DirServer, naming.KeyCACert)),
		ServerCert:        read(p.secret(naming.DirServer, naming.KeyTLSCert)),
		ServerKey:         read(p.secret(naming.DirServer, naming.KeyTLSKey)),
		ReplicationCert:   read(p.secret(naming.DirReplication, naming.KeyTLSCert)),
		ReplicationKey:    read(p.secret(naming.DirReplication, naming.KeyTLSKey)),
	}
	if missing {
		return ""
	}
	return files.Hash()
}
