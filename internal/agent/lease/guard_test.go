package lease

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agent/supervise"
)

// blocked is an output that takes nothing until it is let go.
type blocked chan struct{}

func (b blocked) Write(p []byte) (int, error) {
	<-b
	return len(p), nil
}

// TestGuard_does_not_depend_on_the_log: the server is stopped although writing to the log blocks.
func TestGuard_does_not_depend_on_the_log(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "postgres")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\nexec sleep 60\n"), 0o755))
	server := supervise.NewServer(&supervise.Children{}, func(string) {}, func() {})
	require.NoError(t, server.Start(supervise.Spec{Program: path, Writable: true}))
	t.Cleanup(func() { server.Stop(supervise.Kill); <-server.Done() })
	output := make(blocked)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		Guard(ctx, newFixture().Keeper, server, slog.New(slog.NewJSONHandler(output, nil))) // it does not hold the lease
	}()
	select {
	case <-server.Done():
	case <-time.After(10 * time.Second):
		t.Error("the server still runs")
	}
	cancel()
	close(output)
	<-done
}
