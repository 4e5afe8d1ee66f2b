package agent

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agentapi"
)

// TestAgent_volume_that_cannot_be_locked: the Pod stays and says why, until the volume is as it should be.
func TestAgent_volume_that_cannot_be_locked(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	data := filepath.Join(directory, "data")
	a := New(Options{
		Instance: "db-1", Output: &syncBuffer{}, ListenAddress: "127.0.0.1",
		Paths: Paths{Data: data, Run: filepath.Join(directory, "run"), Config: filepath.Join(directory, "config"), Secrets: directory},
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	code := func(path string) int {
		answer := httptest.NewRecorder()
		a.health.Handler(prometheus.NewRegistry()).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		return answer.Code
	}
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		status, _ := a.board.Status()
		assert.Equal(t, agentapi.StateFailed, status.State)
		if assert.NotNil(t, status.Problem) {
			assert.Equal(t, reasonServer, status.Problem.Reason)
			assert.Contains(t, status.Problem.Message, "locking the data volume")
		}
		assert.False(t, status.DataKnown)
		assert.Equal(t, http.StatusOK, code("/startupz"), "it must not be killed for it")
		assert.Equal(t, http.StatusOK, code("/livez"))
		assert.Equal(t, http.StatusServiceUnavailable, code("/readyz"))
	}, short, often)

	require.NoError(t, os.Mkdir(data, 0o700))
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		status, _ := a.board.Status()
		assert.Equal(t, agentapi.StateWaiting, status.State, "it goes on by itself")
		assert.Nil(t, status.Problem)
	}, short, often)
	cancel()
	require.NoError(t, <-done)
}
