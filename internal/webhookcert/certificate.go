package webhookcert

import (
	"crypto/tls"
	"errors"
	"net/http"
	"sync/atomic"
)

// errNone: the webhook has no certificate yet.
var errNone = errors.New("the webhook has no certificate yet")

// Certificate is what the webhook serves with at the moment.
type Certificate struct {
	current  atomic.Pointer[tls.Certificate]
	injected atomic.Bool
}

// TLS makes a server serve with the certificate.
func (c *Certificate) TLS(config *tls.Config) {
	config.MinVersion = tls.VersionTLS12
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if current := c.current.Load(); current != nil {
			return current, nil
		}
		return nil, errNone
	}
}

// Check says whether there is a certificate and the API server has been told whom to trust.
func (c *Certificate) Check(*http.Request) error {
	if c.current.Load() == nil {
		return errNone
	}
	if !c.injected.Load() {
		return errors.New("the API server does not know the webhook's authority yet")
	}
	return nil
}
