package supervise

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const watchdogArgument = "watchdog"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == watchdogArgument {
		Guard()
		return
	}
	os.Exit(m.Run())
}

// TestWatchdog: nobody stops the server, which is what an agent does that was stopped itself.
func TestWatchdog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "postgres")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\nsleep 60 & sleep 60\n"), 0o755))
	children := &Children{}
	dog := NewWatchdog(children, []string{os.Args[0], watchdogArgument}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); dog.Run(ctx) }()
	server := NewServer(children, func(string) {}, func() {})
	server.Watch = dog.Watch
	t.Cleanup(func() { server.Stop(Kill); <-server.Done() })

	const grant = 1500 * time.Millisecond
	until := sinceStart() + grant
	dog.Until(until)
	require.NoError(t, server.Start(Spec{Program: path, Writable: true}))
	time.Sleep(grant / 2) //nolint:forbidigo // the time that it has
	until += grant
	dog.Until(until) // it was renewed
	select {
	case <-server.Done():
	case <-time.After(20 * time.Second):
		require.Fail(t, "the server still runs")
	}
	assert.GreaterOrEqual(t, sinceStart(), until, "not before its time is up")

	require.NoError(t, server.Start(Spec{Program: path}))
	time.Sleep(3 * watchdogInterval) //nolint:forbidigo // it may not write, so it goes on
	assert.True(t, server.Snapshot().Running)
	cancel()
	<-ended
}
