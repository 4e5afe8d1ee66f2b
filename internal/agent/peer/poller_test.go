package peer

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agentapi"
)

// asker answers for each host with a status, hangs, or fails.
type asker struct {
	asked   atomic.Int32
	answers map[string]agentapi.Status
	hangs   string
}

func (a *asker) Fresh(ctx context.Context, host string) (agentapi.Status, error) {
	a.asked.Add(1)
	if status, ok := a.answers[host]; ok {
		return status, nil
	}
	if host == a.hangs {
		<-ctx.Done()
	}
	return agentapi.Status{}, errors.New("no answer")
}

func TestPoller(t *testing.T) {
	t.Parallel()
	asked := &asker{hangs: "host-3", answers: map[string]agentapi.Status{
		"host-1": {Instance: "db-1", HasData: true}, "host-2": {Instance: "somebody else"},
	}}
	var broken atomic.Bool
	var heard atomic.Int32
	poller := NewPoller(func() (Asker, error) {
		if broken.Load() {
			return nil, errors.New("no certificate")
		}
		return asked, nil
	}, func() time.Duration { return time.Hour }, func() { heard.Add(1) })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); poller.Run(ctx) }()
	assert.Zero(t, asked.asked.Load(), "nobody wants to know")

	members := []agentapi.Member{{Name: "db-1", Host: "host-1"}, {Name: "db-2", Host: "host-2"}, {Name: "db-3", Host: "host-3"}}
	began := time.Now()
	poller.Want(members)
	require.Eventually(t, func() bool { answer, _ := poller.Answer("db-1"); return answer != nil }, 10*time.Second, time.Millisecond)
	answer, silent := poller.Answer("db-1")
	assert.True(t, answer.Status.HasData)
	assert.Zero(t, silent)
	assert.False(t, answer.Asked.Before(began))
	assert.Positive(t, heard.Load())
	require.Eventually(t, func() bool {
		again, _ := poller.Answer("db-1")
		return again.Asked.After(answer.Asked)
	}, 10*time.Second, time.Millisecond, "asked again although another member hangs")
	for _, member := range []string{"db-2", "db-3"} {
		answer, silent := poller.Answer(member)
		assert.Nil(t, answer, member)
		assert.Positive(t, silent, member)
	}
	answer, silent = poller.Answer("db-4")
	assert.Nil(t, answer)
	assert.Zero(t, silent, "it is not asked")

	broken.Store(true)
	require.Eventually(t, func() bool { answer, _ := poller.Answer("db-1"); return answer == nil }, 20*time.Second, 10*time.Millisecond,
		"an answer is forgotten when no other follows")
	_, silent = poller.Answer("db-1")
	assert.Positive(t, silent)

	poller.Want(nil)
	_, silent = poller.Answer("db-1")
	assert.Zero(t, silent)
	cancel()
	<-done
}

// slow answers after a while.
type slow struct{}

func (slow) Fresh(context.Context, string) (agentapi.Status, error) {
	time.Sleep(100 * time.Millisecond) //nolint:forbidigo // of synctest's time
	return agentapi.Status{Instance: "db-1"}, nil
}

// TestPoller_hurry: a question that is on its way when only later answers count is followed by another at once.
func TestPoller_hurry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		heard := make(chan time.Time, 10)
		poller := NewPoller(func() (Asker, error) { return slow{}, nil }, func() time.Duration { return 0 }, func() { heard <- time.Now() })
		ctx, cancel := context.WithCancel(t.Context())
		go poller.Run(ctx)
		began := time.Now()
		poller.Want([]agentapi.Member{{Name: "db-1", Host: "host-1"}})
		time.Sleep(50 * time.Millisecond) //nolint:forbidigo // of synctest's time
		poller.Hurry()
		assert.Equal(t, 100*time.Millisecond, (<-heard).Sub(began))
		assert.Equal(t, 200*time.Millisecond, (<-heard).Sub(began), "asked again at once")
		assert.Equal(t, 450*time.Millisecond, (<-heard).Sub(began).Round(50*time.Millisecond), "and then in its time")
		cancel()
		synctest.Wait()
	})
}
