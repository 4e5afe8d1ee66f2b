package credential

import (
	"crypto/x509/pkix"
	"fmt"
	"io"
	"time"
)

// webhookName and consoleName are the common names of the certificates of the webhook and of the console.
const (
	webhookName = "pgsteward-webhook"
	consoleName = "pgsteward-console"
)

// Serving is the certificate of the operator's webhook, or of the console, and the authority that signed it.
type Serving struct{ CA, Server KeyPair }

// Webhook returns have with what is missing, broken, about to expire or not for these host names made anew, and when to look again
// at the latest. An authority that is renewed keeps its key and name: what the old one signed stays good under the new one.
func Webhook(have Serving, hosts []string, now time.Time, random io.Reader) (Serving, time.Time, error) {
	return serving(webhookName, have, hosts, now, random)
}

// Console does the same for the console.
func Console(have Serving, hosts []string, now time.Time, random io.Reader) (Serving, time.Time, error) {
	return serving(consoleName, have, hosts, now, random)
}

func serving(name string, have Serving, hosts []string, now time.Time, random io.Reader) (Serving, time.Time, error) {
	ca, err := keepCA(have.CA, Cluster{Name: name}, now, random)
	if err != nil {
		return Serving{}, time.Time{}, fmt.Errorf("%s: %w", name, err)
	}
	server, err := ca.keepLeaf(have.Server, leaf{subject: pkix.Name{CommonName: name}, names: hosts}, now, random)
	if err != nil {
		return Serving{}, time.Time{}, fmt.Errorf("%s: %w", name, err)
	}
	next := server.renewAt()
	if ca.renewAt().Before(next) {
		next = ca.renewAt()
	}
	return Serving{CA: ca.pair, Server: server.pair}, next, nil
}
