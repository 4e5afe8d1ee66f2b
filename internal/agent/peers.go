package agent

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/lease"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// peerClient is a client of the other agents, with the certificates as they are now.
func (a *Agent) peerClient() (*agentapi.Client, error) {
	config, err := a.certificates().Client()
	if err != nil {
		return nil, err
	}
	client := agentapi.NewClient(config)
	client.Port = a.options.Ports.Agent
	return client, nil
}

// noteHosts keeps where the members are, for those who are not the loop.
func (a *Agent) noteHosts() {
	hosts := map[string]string{"": a.config.Cluster}
	for _, member := range a.config.Members {
		hosts[member.Name] = a.hostOf(member.Name)
	}
	a.hosts.Store(&hosts)
}

// host is where a member is; a member that the configuration does not have any more may still be there.
func (a *Agent) host(member string) string {
	hosts := *a.hosts.Load()
	if host := hosts[member]; host != "" {
		return host
	}
	return naming.InstanceHost(hosts[""], a.options.Namespace, member)
}

// others are the other members of the live generation.
func (a *Agent) others() []agentapi.Member {
	var others []agentapi.Member
	for _, member := range a.config.Members {
		if member.Name != a.options.Instance && a.isLive(member.Name) {
			others = append(others, agentapi.Member{Name: member.Name, Host: a.hostOf(member.Name)})
		}
	}
	return others
}

// memberNames are the names of this instance and all other members of the live generation.
func (a *Agent) memberNames() []string {
	names := make([]string, 0, len(a.config.Members))
	for _, member := range a.config.Members {
		if member.Name == a.options.Instance || a.isLive(member.Name) {
			names = append(names, member.Name)
		}
	}
	return names
}

// renewed is told by the keeper until when the server may write.
func (a *Agent) renewed(until time.Duration) {
	if a.watchdog != nil {
		a.watchdog.Until(until)
	}
}

// askToGoOn asks for the promises by which a primary goes on. One that does not write has no reason to keep others from it.
func (a *Agent) askToGoOn(ctx context.Context, members []string, duration time.Duration) (promised []string) {
	if server := a.server.Snapshot(); !server.Writable || server.Stopping != 0 {
		return nil
	}
	return a.askPromises(ctx, members, duration, false)
}

// askPromises asks members to promise that they do not become primary, all at once: in order to go on, or to take over.
func (a *Agent) askPromises(ctx context.Context, members []string, duration time.Duration, takeOver bool) (promised []string) {
	client, err := a.peerClient()
	if err != nil {
		a.log.Warn("Asking for promises failed", "error", err)
		return nil
	}
	request := agentapi.PromiseRequest{
		Holder: a.options.Instance, PodUID: a.options.PodUID, DurationMillis: duration.Milliseconds(), TakeOver: takeOver,
	}
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, member := range members {
		group.Go(func() {
			answer, err := client.Promise(ctx, a.host(member), request)
			switch {
			case err != nil:
				a.log.Debug("A member does not promise", "member", member, "error", err)
			case !answer.Promised || answer.Instance != member:
				a.log.Warn("A member does not promise", "member", member, "why", answer.Why)
			default:
				mu.Lock()
				defer mu.Unlock()
				promised = append(promised, member)
			}
		})
	}
	group.Wait()
	return promised
}

// publishLease has the keeper write to the lease, with the next renewal, what others must know if this instance is lost.
func (a *Agent) publishLease(w *world) {
	publication := lease.Publication{
		SystemIdentifier: w.found.Control.SystemIdentifier, Members: a.memberNames(), Sync: a.sync,
	}
	if w.found.Complete {
		publication.LiveVersion = strconv.Itoa(a.major)
	}
	// Until it serves, how far the last primary came is what counts. Position and start belong to the same timeline.
	if w.state != nil && !w.state.InRecovery && a.timelines.of == w.state.Timeline {
		publication.Position, publication.TimelineStart = ownData(w).Position, a.timelines.history.Start()
	}
	a.keeper.Publish(publication)
}

// askMembers has the members asked for their positions while these matter, or are about to; at rest nobody is asked.
func (a *Agent) askMembers(w *world) {
	v := w.view
	late := v.Known && v.Holder != a.options.Instance && v.SinceChange > 2*a.keeper.Timings().Renew
	if !w.decision.Ask && !late && v.Holder != "" && !a.handover.active() && a.downSince.IsZero() {
		a.peers.Want(nil)
		return
	}
	a.peers.Want(a.others())
	// Only what is asked from now on counts when the lease has run out, or PostgreSQL has stopped.
	moment := ""
	switch {
	case a.handover.active() && !w.server.Running && w.server.Exit != nil:
		moment = "stopped " + w.server.Exit.At.String()
	case !a.downSince.IsZero():
		moment = "down " + a.downSince.String()
		if exit := w.server.Exit; exit != nil && !w.server.Running {
			moment += ", ended " + exit.At.String()
		}
	case v.Expired:
		moment = "expired " + v.Version
	}
	if moment != a.moment && moment != "" {
		a.peers.Hurry()
	}
	a.moment = moment
}

// seek asks all members for a promise to this Pod, beside the loop.
func (a *Agent) seek(ctx context.Context, w *world) {
	if err, isNew := a.seeking.result(); isNew && err == nil {
		a.promised = a.seekingGot
	}
	if !w.decision.Seek || !a.seeking.isSettled() || w.now.Sub(a.soughtAt) < seekInterval {
		return
	}
	a.soughtAt = w.now
	names, duration := a.otherNames(), a.keeper.Timings().Duration
	got, asked := map[string]time.Duration{}, w.clock
	a.seekingGot = got
	a.seeking = a.begin(ctx, "promises", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, seekTimeout)
		defer cancel()
		for _, name := range a.askPromises(ctx, names, duration, true) {
			got[name] = asked
		}
		return nil
	})
}

const (
	seekInterval = time.Second
	seekTimeout  = 2 * time.Second
)
