package agentapi

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Files is the content of what a Pod mounts: the configuration and the Secrets.
type Files struct {
	Config                          []byte
	SuperuserPassword, AppPassword  []byte
	CACert                          []byte
	ServerCert, ServerKey           []byte
	ReplicationCert, ReplicationKey []byte
}

// Hash is short and says nothing of what it was made from: no password can be guessed from a hash that covers private keys too.
// The operator compares that of what it wrote with that of what an agent sees.
func (f Files) Hash() string {
	h := sha256.New()
	for _, part := range [][]byte{
		f.Config, f.SuperuserPassword, f.AppPassword, f.CACert, f.ServerCert, f.ServerKey, f.ReplicationCert, f.ReplicationKey,
	} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}
