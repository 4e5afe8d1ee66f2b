package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/pgsteward/pgsteward/internal/agentapi"
)

const (
	// announceBefore is how long before the pause the target is told: longer than from one readiness probe to the next, and until the
	// Services know.
	announceBefore = 3 * time.Second
	// announceAfter is how much longer than the pause may be the target goes on being ready, should nothing come of it.
	announceAfter = 2 * time.Second
	// expectLongest bounds for how long somebody may make an instance ready that is not live.
	expectLongest = 90 * time.Second
)

// announce tells the target that it is about to get the writes, and says when that may be. What is lost if it cannot be told is a second
// or two of clients' time, so that keeps nobody from anything.
func (a *Agent) announce(ctx context.Context, request agentapi.UpgradeSwitchoverRequest) time.Time {
	client, err := a.peerClient()
	if err == nil {
		pause := time.Duration(request.MaxPauseMillis) * time.Millisecond
		err = client.UpgradeExpect(ctx, a.host(request.Target), agentapi.UpgradeExpectRequest{
			ID: request.ID, To: request.To, Millis: (announceBefore + pause + announceAfter).Milliseconds(),
		})
	}
	if err != nil {
		a.log.Warn("Not telling the target that the writes come", "target", request.Target, "error", err)
		return time.Time{}
	}
	return time.Now().Add(announceBefore)
}

// askUpgradeExpect makes this instance ready for the kubelet, for a while.
func (a *Agent) askUpgradeExpect(request agentapi.UpgradeExpectRequest) error {
	if request.Stopped != "" {
		return a.askUpgradeStopped(request)
	}
	status, _ := a.board.Status()
	switch {
	case status.Upgrade == nil || request.ID == "" || status.Upgrade.ID != request.ID:
		return fmt.Errorf("%s belongs to no upgrade %s", a.options.Instance, request.ID)
	case status.State != agentapi.StateRunning || status.LiveVersion == request.To:
		return fmt.Errorf("%s does not wait for the writes", a.options.Instance)
	}
	until := time.Now().Add(min(time.Duration(request.Millis)*time.Millisecond, expectLongest))
	a.expected.Store(&until)
	a.poke()
	return nil
}

// expects says whether the writes are expected here.
func (a *Agent) expects(now time.Time) bool {
	until := a.expected.Load()
	return until != nil && now.Before(*until)
}
