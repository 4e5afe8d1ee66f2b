package credential

import (
	"crypto/x509/pkix"
	"fmt"
	"io"
	"time"
)

// webhookName is the common name of the webhook's certificate.
const webhookName = "pgsteward-webhook"

// Serving is the certificate of the operator's webhook and the authority that signed it.
type Serving struct{ CA, Server KeyPair }

// Webhook returns have with what is missing, broken, about to expire or not for these host names made anew, and when to look again
// at the latest. An authority that is renewed keeps its key and name: what the old one signed stays good under the new one.
func Webhook(have Serving, hosts []string, now time.Time, random io.Reader) (Serving, time.Time, error) {
	ca, err := keepCA(have.CA, Cluster{Name: webhookName}, now, random)
	if err != nil {
		return Serving{}, time.Time{}, fmt.Errorf("webhook: %w", err)
	}
	server, err := ca.keepLeaf(have.Server, leaf{subject: pkix.Name{CommonName: webhookName}, names: hosts}, now, random)
	if err != nil {
		return Serving{}, time.Time{}, fmt.Errorf("webhook: %w", err)
	}
	next := server.renewAt()
	if ca.renewAt().Before(next) {
		next = ca.renewAt()
	}
	return Serving{CA: ca.pair, Server: server.pair}, next, nil
}
