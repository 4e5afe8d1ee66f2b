package repository

import (
	"context"
	"crypto/sha256"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/backrest"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// restartFirst and restartLast bound the pause before the server is started again.
const (
	restartFirst = time.Second
	restartLast  = 30 * time.Second
)

// server is the process of pgBackRest that serves the instances.
type server struct {
	mu     sync.Mutex
	reload func()
	fails  int
}

// certificatesChanged says whether the certificates differ from the last time.
func (h *Host) certificatesChanged() bool {
	hash := sha256.New()
	for _, key := range []string{naming.KeyTLSCert, naming.KeyTLSKey, naming.KeyCACert} {
		content, err := os.ReadFile(filepath.Join(h.options.Secrets, naming.DirServer, key))
		if err != nil {
			return false
		}
		hash.Write(content)
	}
	sum := [sha256.Size]byte(hash.Sum(nil))
	changed := sum != h.sum
	h.sum = sum
	return changed
}

// again has the server read its configuration again.
func (s *server) again() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reload != nil {
		s.reload()
	}
}

// serve keeps the server running once there is a configuration.
func (h *Host) serve(ctx context.Context) {
	for ctx.Err() == nil {
		pause := roundInterval
		if _, err := os.Stat(h.tool.Configuration(backrest.HostConfiguration)); err == nil {
			began := time.Now()
			err := h.tool.Serve(ctx, backrest.HostConfiguration, func(reload func()) {
				h.server.mu.Lock()
				defer h.server.mu.Unlock()
				h.server.reload = reload
			})
			h.server.mu.Lock()
			h.server.reload = nil
			if h.server.fails++; time.Since(began) > restartLast {
				h.server.fails = 0
			}
			pause = min(restartFirst<<min(h.server.fails, 10), restartLast)
			h.server.mu.Unlock()
			if ctx.Err() == nil {
				h.log.Warn("The server of backups ended", "error", err)
			}
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}
