package peer

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agentapi"
)

// asker answers for each host with a status, or fails.
type asker struct {
	asked   atomic.Int32
	answers map[string]agentapi.Status
}

func (a *asker) Status(_ context.Context, host string) (agentapi.Status, error) {
	a.asked.Add(1)
	if status, ok := a.answers[host]; ok {
		return status, nil
	}
	return agentapi.Status{}, errors.New("no answer")
}

func TestPoller(t *testing.T) {
	t.Parallel()
	asked := &asker{answers: map[string]agentapi.Status{
		"host-1": {Instance: "db-1", HasData: true}, "host-2": {Instance: "somebody else"},
	}}
	var broken atomic.Bool
	poller := NewPoller(func() (Asker, error) {
		if broken.Load() {
			return nil, errors.New("no certificate")
		}
		return asked, nil
	})
	poller.round(t.Context())
	assert.Zero(t, asked.asked.Load(), "nobody wants to know")

	poller.Want([]agentapi.Member{{Name: "db-1", Host: "host-1"}, {Name: "db-2", Host: "host-2"}, {Name: "db-3", Host: "host-3"}})
	poller.round(t.Context())
	status, ok := poller.Answer("db-1")
	require.True(t, ok)
	assert.True(t, status.HasData)
	for _, member := range []string{"db-2", "db-3", "db-4"} {
		_, ok := poller.Answer(member)
		assert.False(t, ok, member)
	}
	broken.Store(true)
	poller.round(t.Context())
	_, ok = poller.Answer("db-1")
	assert.True(t, ok, "an answer counts for a while")
	poller.answers["db-1"] = answer{status: status, at: time.Now().Add(-fresh - time.Second)}
	_, ok = poller.Answer("db-1")
	assert.False(t, ok, "and no longer")
}
