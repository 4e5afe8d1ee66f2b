package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/agent/generation"
	"github.com/pgsteward/pgsteward/internal/agent/lease"
	"github.com/pgsteward/pgsteward/internal/agentapi"
)

// offlineLinger is how long PostgreSQL may go on when it has written its last checkpoint, so that the target receives that: less than
// fastStopBound, by which it must have stopped.
const offlineLinger = 10 * time.Second

// runOffline moves the writes to a standby that is converted while PostgreSQL is stopped here.
func (a *Agent) runOffline(ctx context.Context, place *generation.Place, request agentapi.UpgradeSwitchoverRequest, members []string,
	volume *datadir.Volume,
) (time.Duration, error) {
	marker := &generation.Marker{ID: request.ID}
	move := &generation.Offline{
		Log: a.log, Target: request.Target, MaxPause: time.Duration(request.MaxPauseMillis) * time.Millisecond, Local: place.Local,
		Ask: func(ctx context.Context) (agentapi.SeedStatus, string, error) { return a.askSeed(ctx, request) },
		Tell: func(ctx context.Context, position string) error {
			client, err := a.peerClient()
			if err != nil {
				return err
			}
			return client.UpgradeExpect(ctx, a.host(request.Target), agentapi.UpgradeExpectRequest{ID: request.ID, To: request.To, Stopped: position})
		},
		Confirm: a.leaseKeeper().Confirm,
		Close:   a.closeClients,
		Stop:    func(ctx context.Context) error { return a.stopForSwitch(ctx, volume, offlineLinger) },
		Stopped: func() (string, error) {
			found, err := volume.Inspect()
			if err == nil && !found.Control.StoppedCleanly() {
				err = errors.New("PostgreSQL did not stop in an orderly way")
			}
			return found.Control.Position.LSN.String(), err // the beginning of the last checkpoint's record
		},
		Mark:   func() error { return place.MarkOrigin(marker, false, nil) },
		Unmark: func() error { return generation.UnmarkOrigin(place.New) },
		HandOver: func(ctx context.Context, system string) error {
			a.switching.set(func(s *switching) { s.giving = true })
			return handOverTo(ctx, a.leaseKeeper(), request.Target, lease.Generation{Version: request.To, SystemIdentifier: system, Members: members})
		},
	}
	return move.Run(ctx)
}

// askSeed asks the target's agent how far it is, and which system its server is of; empty: it does not run.
func (a *Agent) askSeed(ctx context.Context, request agentapi.UpgradeSwitchoverRequest) (seed agentapi.SeedStatus, system string, err error) {
	client, err := a.peerClient()
	if err != nil {
		return seed, "", err
	}
	status, err := client.Fresh(ctx, a.host(request.Target))
	switch {
	case err != nil:
		return seed, "", fmt.Errorf("asking %s: %w", request.Target, err)
	case status.Upgrade == nil || status.Upgrade.ID != request.ID || status.Upgrade.Seed == nil:
		return seed, "", fmt.Errorf("%s belongs to no upgrade %s", request.Target, request.ID)
	case status.State == agentapi.StateRunning:
		system = status.SystemIdentifier
	}
	return *status.Upgrade.Seed, system, nil
}

// askUpgradeStopped is told where the source has stopped, so that this instance goes on to be the next generation.
func (a *Agent) askUpgradeStopped(request agentapi.UpgradeExpectRequest) error {
	status, _ := a.board.Status()
	if status.Upgrade == nil || request.ID == "" || status.Upgrade.ID != request.ID || status.Upgrade.Seed == nil {
		return fmt.Errorf("%s makes no data for the upgrade %s", a.options.Instance, request.ID)
	}
	a.stoppedAt.Store(&request)
	return nil
}

// sourceStopped is where the source has stopped for that attempt; empty: nobody said so.
func (a *Agent) sourceStopped(id string) string {
	if said := a.stoppedAt.Load(); said != nil && said.ID == id {
		return said.Stopped
	}
	return ""
}
