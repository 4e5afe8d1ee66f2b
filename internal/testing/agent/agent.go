// Package agent plays agents for tests of the operator: real servers that speak package agentapi over mutual TLS, and say what the
// test tells them to say.
package agent

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/credential"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// patience bounds what a test waits for.
const patience = 20 * time.Second

// Agent is one agent.
type Agent struct {
	// Port is where it listens.
	Port int

	server *http.Server

	mu      sync.Mutex
	tls     *tls.Config
	set     credential.Set
	changed *sync.Cond
	said    []byte // the last status, as a line
	number  int    // of statuses
	heard   int    // connections at present
	broken  int    // how often connections were cut
	silent  bool
	asked   []string       // the requests that came, as "path body"
	answers map[string]int // the status to answer with, by path; none: as an agent that does not know the path
	why     string
}

// Listen starts an agent at the address (each test may have 127.0.0.1, 127.0.0.2 …); port 0 is a free one. It shows the server's
// certificate and trusts the authority of the set, and answers the operator only.
func Listen(t testing.TB, address string, port int, set credential.Set) *Agent {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(address, strconv.Itoa(port)))
	require.NoError(t, err)
	tcp, ok := listener.Addr().(*net.TCPAddr)
	require.True(t, ok)

	a := &Agent{Port: tcp.Port}
	a.changed = sync.NewCond(&a.mu)
	a.Trust(t, set)
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+agentapi.PathStatus, a.serve)
	mux.HandleFunc("POST /", a.answer)
	a.server = &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: patience,
		ErrorLog:          log.New(io.Discard, "", 0), // tests offer it wrong certificates
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.tls, nil
		}},
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = a.server.ServeTLS(listener, "", "") // until it is closed
	}()
	t.Cleanup(func() {
		a.Break()
		_ = a.server.Close()
		<-done
	})
	return a
}

// Trust gives the agent other certificates, as when Secrets are mounted anew; who listens must come again.
func (a *Agent) Trust(t testing.TB, set credential.Set) {
	t.Helper()
	certificate, err := tls.X509KeyPair(set.Server.Cert, set.Server.Key)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(set.CA.Cert))
	a.mu.Lock()
	defer a.mu.Unlock()
	if reflect.DeepEqual(a.set, set) {
		return
	}
	a.set = set
	a.tls = &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots,
	}
	a.broken++
	a.changed.Broadcast()
}

// Say tells everybody who listens, now and later, that this is the status.
func (a *Agent) Say(status agentapi.Status) {
	line, err := json.Marshal(status)
	if err != nil {
		panic(err) // a status is plain data
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.said, a.silent = append(line, '\n'), false
	a.number++
	a.changed.Broadcast()
}

// Answer answers requests for the path with that status from now on, and why.
func (a *Agent) Answer(path string, status int, why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.answers == nil {
		a.answers = map[string]int{}
	}
	a.answers[path], a.why = status, why
}

// Asked are the requests that came, as "path body".
func (a *Agent) Asked() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.asked)
}

func (a *Agent) answer(w http.ResponseWriter, r *http.Request) {
	if r.TLS.PeerCertificates[0].Subject.CommonName != naming.OperatorUser {
		http.Error(w, "only the operator may ask", http.StatusForbidden)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<16))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	status, knows := a.answers[r.URL.Path]
	if !knows {
		http.NotFound(w, r)
		return
	}
	a.asked = append(a.asked, r.URL.Path+" "+strings.TrimSpace(string(body)))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, a.why)
}

// Break cuts all connections.
func (a *Agent) Break() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.broken++
	a.changed.Broadcast()
}

// FallSilent cuts all connections, and refuses new ones until Say is called.
func (a *Agent) FallSilent() {
	a.mu.Lock()
	a.silent = true
	a.mu.Unlock()
	a.Break()
}

// Heard waits until it has just so many listeners.
func (a *Agent) Heard(t testing.TB, listeners int) {
	t.Helper()
	late := time.AfterFunc(patience, a.changed.Broadcast)
	defer late.Stop()
	deadline := time.Now().Add(patience)
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.heard != listeners && time.Now().Before(deadline) {
		a.changed.Wait()
	}
	require.Equal(t, listeners, a.heard, "how many listen to the agent")
}

func (a *Agent) serve(w http.ResponseWriter, r *http.Request) {
	if r.TLS.PeerCertificates[0].Subject.CommonName != naming.OperatorUser {
		http.Error(w, "only the operator may ask", http.StatusForbidden)
		return
	}
	stop := make(chan struct{})
	defer close(stop)
	go func() { // the listener may go while nothing is said
		select {
		case <-r.Context().Done():
		case <-stop:
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.changed.Broadcast()
	}()
	a.stream(w, r)
}

// stream writes the status whenever it is said anew, until one of both sides ends it.
func (a *Agent) stream(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.silent {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	a.heard++
	a.changed.Broadcast()
	defer func() {
		a.heard--
		a.changed.Broadcast()
	}()
	broken, written := a.broken, 0
	for a.broken == broken && r.Context().Err() == nil {
		if a.number == written {
			a.changed.Wait()
			continue
		}
		written = a.number
		if _, err := w.Write(a.said); err != nil {
			return
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			return
		}
		if r.URL.Query().Get("watch") == "" {
			return
		}
	}
}
