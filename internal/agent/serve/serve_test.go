package serve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
)

func TestBoard(t *testing.T) {
	t.Parallel()
	board := NewBoard(agentapi.Status{Instance: "db-1"})
	status, changed := board.Status()
	assert.Equal(t, "db-1", status.Instance)

	lag := int64(5)
	board.Set(agentapi.Status{Instance: "db-1", LSN: "0/1", ReplayLSN: "0/1", LagBytes: &lag})
	select {
	case <-changed:
		assert.Fail(t, "positions are no news")
	default:
	}
	board.Set(agentapi.Status{Instance: "db-1", Problem: &agentapi.Problem{Reason: "X"}})
	select {
	case <-changed:
	default:
		assert.Fail(t, "a problem is news")
	}
	_, changed = board.Status()
	board.Set(agentapi.Status{Instance: "db-1", Problem: &agentapi.Problem{Reason: "X"}})
	select {
	case <-changed:
		assert.Fail(t, "the same problem is no news")
	default:
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	health := NewHealth(func() time.Time { return now })
	handler := health.Handler(prometheus.NewRegistry())
	probe := func(path string) (int, string) {
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
		body, _ := io.ReadAll(recorder.Body)
		return recorder.Code, string(body)
	}
	expect := func(path string, code int, text string) {
		t.Helper()
		got, body := probe(path)
		assert.Equal(t, code, got, path)
		assert.Contains(t, body, text)
	}
	expect("/livez", 200, "ok")
	expect("/startupz", 503, "not decided")
	expect("/readyz", 503, "starting")
	health.Beat(false, "waiting for a primary")
	expect("/startupz", 503, "not decided")
	health.Beat(true, "waiting for a primary")
	expect("/startupz", 200, "ok")
	expect("/readyz", 503, "waiting for a primary")
	health.Beat(false, "")
	expect("/startupz", 200, "ok")
	expect("/readyz", 200, "ok")
	now = now.Add(LiveBound)
	expect("/livez", 200, "ok")
	now = now.Add(time.Second)
	expect("/livez", 503, "has not gone round for 31s")
	expect("/readyz", 503, "has not gone round")
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	lag := int64(7)
	board := NewBoard(agentapi.Status{
		State: agentapi.StateRunning, Role: agentapi.RoleStandby, Ready: true, Streaming: true, Timeline: 3, LSN: "1/0", LagBytes: &lag,
	})
	families, err := NewMetrics(board, func() Numbers { return Numbers{LeaseRemaining: 4.5, Restarts: 2} }).Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, family := range families {
		metric := family.GetMetric()[0]
		values[family.GetName()] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
	}
	const prefix = "pgsteward_instance_"
	assert.Equal(t, map[string]float64{
		prefix + "up": 1, prefix + "ready": 1, prefix + "primary": 0, prefix + "in_recovery": 1, prefix + "streaming": 1,
		prefix + "timeline": 3, prefix + "lsn_bytes": 1 << 32, prefix + "lag_bytes": 7, prefix + "pending_restart": 0,
		prefix + "lease_remaining_seconds": 4.5, prefix + "restarts_total": 2,
	}, values)
}

func TestAllow(t *testing.T) {
	t.Parallel()
	state := func(name string) tls.ConnectionState {
		return tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Subject: pkix.Name{CommonName: name}}}}
	}
	allowed := []string{naming.OperatorUser, "db"}
	require.NoError(t, allow(state(naming.OperatorUser), allowed))
	require.NoError(t, allow(state("db"), allowed))
	for _, name := range []string{"", "other", naming.ReplicationUser} {
		require.Error(t, allow(state(name), append(allowed, "", naming.ReplicationUser)), name)
	}
}

// TestAPI_watch talks to the handler over a connection with TLS, by the client that operator and members use.
func TestAPI_watch(t *testing.T) {
	t.Parallel()
	board := NewBoard(agentapi.Status{Instance: "db-1"})
	server := httptest.NewTLSServer((&API{Board: board, Log: slog.New(slog.DiscardHandler)}).Handler())
	t.Cleanup(server.Close)
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	client := agentapi.NewClient(&tls.Config{RootCAs: pool})
	client.Port = port(t, server)

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	received := make(chan agentapi.Status)
	ended := make(chan error, 1)
	go func() {
		ended <- client.Watch(ctx, "127.0.0.1", "example.com", func(status agentapi.Status) { received <- status })
	}()
	assert.Equal(t, "db-1", (<-received).Instance)
	board.Set(agentapi.Status{Instance: "db-1", Ready: true})
	assert.True(t, (<-received).Ready)
	server.CloseClientConnections()
	require.Error(t, <-ended)

	status, err := client.Status(ctx, "127.0.0.1")
	require.NoError(t, err)
	assert.True(t, status.Ready)
	client = agentapi.NewClient(&tls.Config{RootCAs: x509.NewCertPool()})
	client.Port = port(t, server)
	_, err = client.Status(ctx, "127.0.0.1")
	require.Error(t, err, "an unknown authority")
}

func port(t *testing.T, server *httptest.Server) int {
	t.Helper()
	address, ok := server.Listener.Addr().(interface{ AddrPort() netip.AddrPort })
	require.True(t, ok)
	return int(address.AddrPort().Port())
}
