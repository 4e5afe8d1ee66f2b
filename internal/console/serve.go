package console

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"github.com/pgsteward/pgsteward/internal/credential"
)

// Bounds of requests.
const (
	headerBytes = 32 << 10
	bodyBytes   = 16 << 10
	searchBytes = 200
	headerTime  = 5 * time.Second
	readTime    = 15 * time.Second
	writeTime   = 30 * time.Second
	idleTime    = 2 * time.Minute
	stopTime    = 5 * time.Second
)

// Certificate says where that of the server comes from: two files, or, without them, one that vouches for itself.
type Certificate struct{ CertFile, KeyFile string }

// Serve answers requests until the context ends.
func (c *Console) Serve(ctx context.Context, listener net.Listener, certificate Certificate) error {
	config, err := c.tls(ctx, certificate)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: c.Handler(), TLSConfig: config, MaxHeaderBytes: headerBytes,
		ReadHeaderTimeout: headerTime, ReadTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: idleTime,
		BaseContext: func(net.Listener) context.Context { return ctx }, // streams end with the process
	}
	ended := make(chan error, 1)
	go func() { ended <- server.ServeTLS(listener, "", "") }()
	select {
	case err := <-ended:
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	if err := server.Shutdown(stop); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("stopping the server: %w", err)
	}
	return nil
}

func (c *Console) tls(ctx context.Context, certificate Certificate) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if certificate == (Certificate{}) {
		c.log.Info("Serving with a certificate that nobody has signed; give --tls-cert-file and --tls-key-file for another")
		config.GetCertificate = (&selfSigned{now: c.now}).get
		return config, nil
	}
	watcher, err := certwatcher.New(certificate.CertFile, certificate.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate: %w", err)
	}
	go func() {
		if err := watcher.Start(ctx); err != nil {
			c.log.Error(err, "Could not follow the files of the certificate")
		}
	}()
	config.GetCertificate = watcher.GetCertificate
	return config, nil
}

// selfSigned is a certificate that is made when it is needed, and made anew before it expires.
type selfSigned struct {
	now func() time.Time

	mu      sync.Mutex
	have    credential.Serving
	pair    *tls.Certificate
	renewAt time.Time
}

func (s *selfSigned) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pair != nil && s.now().Before(s.renewAt) {
		return s.pair, nil
	}
	have, renewAt, err := credential.Console(s.have, []string{"localhost"}, s.now(), rand.Reader)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(have.Server.Cert, have.Server.Key)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate: %w", err)
	}
	s.have, s.pair, s.renewAt = have, &pair, renewAt
	return s.pair, nil
}
