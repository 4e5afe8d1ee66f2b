package serve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// writeTimeout bounds the sending of one status, so that a watcher that does not read is given up.
const writeTimeout = 10 * time.Second

// Certificates is a folder with the server's certificate and the authority that signs clients. The files are read for every
// connection, since they are replaced while the agent runs.
type Certificates struct{ Dir string }

// load reads certificate and authority.
func (c Certificates) load() (tls.Certificate, *x509.CertPool, error) {
	certificate, err := tls.LoadX509KeyPair(filepath.Join(c.Dir, naming.KeyTLSCert), filepath.Join(c.Dir, naming.KeyTLSKey))
	if err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("reading the server certificate: %w", err)
	}
	authority, err := os.ReadFile(filepath.Join(c.Dir, naming.KeyCACert))
	if err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("reading the certificate authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return tls.Certificate{}, nil, errors.New("the certificate authority's file has no certificate")
	}
	return certificate, pool, nil
}

// Server is the configuration of the agent's API: clients must show a certificate of the operator or of a member.
func (c Certificates) Server() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			certificate, pool, err := c.load()
			if err != nil {
				return nil, err
			}
			allowed := []string{naming.OperatorUser, certificate.Leaf.Subject.CommonName}
			return &tls.Config{
				MinVersion:             tls.VersionTLS13,
				Certificates:           []tls.Certificate{certificate},
				ClientAuth:             tls.RequireAndVerifyClientCert,
				ClientCAs:              pool,
				NextProtos:             []string{"h2", "http/1.1"},
				SessionTicketsDisabled: true, // every connection is checked against the present authority
				VerifyConnection: func(state tls.ConnectionState) error {
					return allow(state, allowed)
				},
			}, nil
		},
	}
}

// allow checks who the client is. Its certificate was verified already; but the authority signs standbys' certificates too,
// which are for PostgreSQL only.
func allow(state tls.ConnectionState, allowed []string) error {
	name := state.PeerCertificates[0].Subject.CommonName
	for _, candidate := range allowed {
		if name == candidate && name != "" && name != naming.ReplicationUser {
			return nil
		}
	}
	return fmt.Errorf("the certificate of %q may not use this API", name)
}

// Client is the configuration with which an agent asks other members.
func (c Certificates) Client() (*tls.Config, error) {
	certificate, pool, err := c.load()
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, RootCAs: pool}, nil
}

// API serves the agent's status and takes requests.
type API struct {
	Board *Board
	Log   *slog.Logger
	// Fresh is the status with everything as of now.
	Fresh func(context.Context) (agentapi.Status, error)
	// Promise answers a primary; the others begin what is asked for, or say why they do not.
	Promise    func(agentapi.PromiseRequest) agentapi.Promise
	Switchover func(agentapi.SwitchoverRequest) error
	HandOver   func(agentapi.HandOverRequest) error
	Restart    func(agentapi.RestartRequest) error
	// UpgradeSwitchover begins to move the writes to the other generation.
	UpgradeSwitchover func(agentapi.UpgradeSwitchoverRequest) error
	// UpgradeExpect is told that the writes are about to come.
	UpgradeExpect func(agentapi.UpgradeExpectRequest) error
	// Backup begins a backup, CancelBackup ends one.
	Backup       func(agentapi.BackupRequest) error
	CancelBackup func(agentapi.BackupRequest) error
	// RemoveBackup begins to remove a backup.
	RemoveBackup func(agentapi.RemovalRequest) error
}

// Handler answers requests.
func (a *API) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+agentapi.PathStatus, a.status)
	for path, do := range map[string]func(agentapi.BackupRequest) error{agentapi.PathBackup: a.Backup, agentapi.PathBackupCancel: a.CancelBackup} {
		if do == nil {
			continue
		}
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			var request agentapi.BackupRequest
			if read(w, r, &request) {
				accept(w, do(request))
			}
		})
	}
	if a.RemoveBackup != nil {
		mux.HandleFunc("POST "+agentapi.PathBackupRemove, func(w http.ResponseWriter, r *http.Request) {
			var request agentapi.RemovalRequest
			if read(w, r, &request) {
				accept(w, a.RemoveBackup(request))
			}
		})
	}
	mux.HandleFunc("POST "+agentapi.PathPromise, func(w http.ResponseWriter, r *http.Request) {
		var request agentapi.PromiseRequest
		if read(w, r, &request) {
			answer(w, a.Promise(request))
		}
	})
	mux.HandleFunc("POST "+agentapi.PathSwitchover, func(w http.ResponseWriter, r *http.Request) {
		var request agentapi.SwitchoverRequest
		if read(w, r, &request) {
			accept(w, a.Switchover(request))
		}
	})
	mux.HandleFunc("POST "+agentapi.PathHandOver, func(w http.ResponseWriter, r *http.Request) {
		var request agentapi.HandOverRequest
		if read(w, r, &request) {
			accept(w, a.HandOver(request))
		}
	})
	mux.HandleFunc("POST "+agentapi.PathRestart, func(w http.ResponseWriter, r *http.Request) {
		var request agentapi.RestartRequest
		if read(w, r, &request) {
			accept(w, a.Restart(request))
		}
	})
	mux.HandleFunc("POST "+agentapi.PathUpgradeExpect, func(w http.ResponseWriter, r *http.Request) {
		var request agentapi.UpgradeExpectRequest
		if read(w, r, &request) {
			accept(w, a.UpgradeExpect(request))
		}
	})
	mux.HandleFunc("POST "+agentapi.PathUpgradeSwitchover, func(w http.ResponseWriter, r *http.Request) {
		var request agentapi.UpgradeSwitchoverRequest
		if read(w, r, &request) {
			accept(w, a.UpgradeSwitchover(request))
		}
	})
	return mux
}

func (a *API) status(w http.ResponseWriter, r *http.Request) {
	switch query := r.URL.Query(); {
	case query.Has("watch"):
		w.Header().Set("Content-Type", "application/json")
		a.watch(w, r)
	case query.Has("fresh"):
		status, err := a.Fresh(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		answer(w, status)
	default:
		status, _ := a.Board.Status()
		answer(w, status)
	}
}

// maxRequestBytes bounds what somebody may send.
const maxRequestBytes = 64 << 10

// read reads a request, or answers that it cannot be understood.
func read(w http.ResponseWriter, r *http.Request, request any) bool {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequestBytes)).Decode(request); err != nil {
		http.Error(w, "the request is not as it should be: "+err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}

func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // the client is gone if this fails
}

// accept says that something was begun, or why it was not.
func accept(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

// watch sends the status at once, after news, and at least every heartbeat.
func (a *API) watch(w http.ResponseWriter, r *http.Request) {
	controller := http.NewResponseController(w)
	heartbeat := time.NewTicker(agentapi.HeartbeatInterval)
	defer heartbeat.Stop()
	for {
		status, changed := a.Board.Status()
		_ = controller.SetWriteDeadline(time.Now().Add(writeTimeout))
		if err := json.NewEncoder(w).Encode(status); err != nil {
			return
		}
		if err := controller.Flush(); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		case <-heartbeat.C:
		}
	}
}

// Run serves a handler on the address until the context ends; with tls if that is not nil. It tries again if it cannot listen.
func Run(ctx context.Context, address string, handler http.Handler, config *tls.Config, log *slog.Logger) {
	for ctx.Err() == nil {
		if err := run(ctx, address, handler, config, log); err != nil && ctx.Err() == nil {
			log.Error("Serving failed", "address", address, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func run(ctx context.Context, address string, handler http.Handler, config *tls.Config, log *slog.Logger) error {
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: handler, TLSConfig: config, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		// Refused handshakes are nothing that an agent can mend.
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if config != nil {
		return server.ServeTLS(listener, "", "")
	}
	return server.Serve(listener)
}
