package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pgsteward/pgsteward/internal/agent/supervise"
	"github.com/pgsteward/pgsteward/internal/election"
)

// TestAgent_stopBound: only at the end of the Pod a shutdown may take longer, if nobody else could take over.
func TestAgent_stopBound(t *testing.T) {
	t.Parallel()
	a := New(Options{Output: &syncBuffer{}, StopBound: DefaultStopBound})
	now := time.Now()
	server := supervise.Snapshot{Running: true, Stopping: supervise.Fast, StoppingSince: now, ModeSince: now}
	assert.Equal(t, fastStopBound, a.stopBound(&world{now: now}, server))
	a.beginHandover(election.Switchover, "", now)
	assert.Equal(t, fastStopBound, a.stopBound(&world{now: now}, server), "a switchover")
	a.beginHandover(election.Termination, "", now)
	a.handover.began = now.Add(-time.Minute)
	assert.Equal(t, DefaultStopBound-time.Minute, a.stopBound(&world{now: now}, server))
}
