package agent

import (
	"context"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/agent/generation"
	"github.com/pgsteward/pgsteward/internal/agent/sql"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// place is what the parts of a major upgrade work with, as of now: by this configuration, and with this primary. Without an upgrade
// both data directories are the one of the live version.
func (a *Agent) place(context.Context) *generation.Place {
	place := &generation.Place{
		Log: a.log, Children: a.children, Instance: a.options.Instance, Source: a.view().Holder, Programs: a.programs,
		Old: a.volume, New: a.volume, Carried: a.options.Paths.Carried,
		RunDirectory: a.options.Paths.Run, Port: a.options.Ports.Postgres,
		Local:    a.openLocal,
		Progress: func(step string) { a.said.Store(&step) },
		Stopped:  func() string { return "" },
	}
	if u := a.config.Upgrade; u != nil {
		place.Upgrade, place.Stopped = *u, func() string { return a.sourceStopped(place.Upgrade.ID) }
		if from, err := strconv.Atoi(u.From); err == nil {
			place.Old = a.volumeOf(from)
		}
		if to, err := strconv.Atoi(u.To); err == nil {
			place.New = a.volumeOf(to)
		}
	}
	hosts := map[string]string{} // the configuration is the loop's
	for _, member := range a.config.Members {
		hosts[member.Name] = a.hostOf(member.Name)
	}
	place.Replication = func(instance string) string {
		return a.conninfoOf(hosts[instance], naming.ReplicationUser,
			postgres.Keyword{Name: "options", Value: "-c wal_sender_timeout=60s"}, // pg_basebackup gives a sign of life every ten seconds only
			postgres.Keyword{Name: "application_name", Value: a.options.Instance + " upgrade"})
	}
	place.Conninfo = func(instance, database string) string {
		return a.conninfoOf(hosts[instance], naming.UpgradeUser, postgres.Keyword{Name: "dbname", Value: database})
	}
	place.Remote = func(ctx context.Context, instance, database string) (*pgx.Conn, error) {
		return sql.Upstream{Conninfo: place.Conninfo(instance, database)}.Open(ctx)
	}
	return place
}

func (a *Agent) volumeOf(major int) *datadir.Volume {
	return datadir.NewVolume(a.options.Paths.Data, major, a.chown)
}

// openLocal opens a connection of the superuser as a major upgrade needs it: nothing that users made fires, and changes of the schema
// are not refused.
func (a *Agent) openLocal(ctx context.Context, database string) (*pgx.Conn, error) {
	c, err := a.admin.Open(ctx, database)
	if err != nil {
		return nil, err
	}
	if err := sql.ForUpgrade(ctx, c); err != nil {
		_ = c.Close(ctx)
		return nil, err
	}
	return c, nil
}

// maySettle says whether this belongs to the live generation, and nothing that a major upgrade left is needed: the way there and the way
// back need it, until there is none any more.
func (a *Agent) maySettle(w *world) bool {
	u := a.config.Upgrade
	live := w.view.Known && w.view.LiveVersion == strconv.Itoa(a.major) // the lease says so, and not just the configuration
	needed := u != nil && !u.Retire && (w.view.LiveVersion != u.From || u.Seed == a.options.Instance || w.view.Holder == a.options.Instance)
	return live && !needed && !a.switching.active() && !w.now.Before(a.settleNext)
}

// settle removes what a major upgrade left on the volume of an instance that belongs to the live generation; it returns what to wait for,
// or nil. Data of the instance's own version is removed only if the marker says that it cannot be used.
func (a *Agent) settle(ctx context.Context, w *world) *outcome {
	a.leaveAside()
	u := a.config.Upgrade
	if err, isNew := a.settling.result(); isNew && err != nil {
		a.log.Warn("Removing what a major upgrade left failed", "error", err)
	}
	if !a.settling.isSettled() {
		if w.found.Complete {
			return nil
		}
		return &outcome{state: agentapi.StateWaiting, notReady: "data of an earlier version is being removed"}
	}
	holds := w.view.Holder == a.options.Instance
	if !a.maySettle(w) {
		return nil
	}
	marker, err := generation.ReadMarker(a.volume)
	if err != nil && w.found.Complete {
		// Nothing but space hangs on it here: a server that can run does not wait for it.
		a.settleNext = w.now.Add(setupRetry)
		a.log.Warn("What a major upgrade left is not known", "error", err)
		return nil
	}
	if err != nil {
		return &outcome{state: agentapi.StateFailed, problem: problem(reasonUpgrade, err.Error())}
	}
	unusable := marker != nil && marker.UsedUp && marker.From == a.major && !holds && !w.server.Running
	nothing := marker == nil && (len(w.found.Others) == 0 || u == nil) // what others left here is not ours to remove
	if nothing || w.found.Torn || holds && !w.found.Complete {
		return nil
	}
	a.settleNext = w.now.Add(setupRetry)
	others := w.found.Others
	a.log.Info("Removing what a major upgrade left", "versions", others, "unusable", unusable)
	own, volumes := a.volume, []*datadir.Volume{}
	for _, major := range others {
		volumes = append(volumes, a.volumeOf(major))
	}
	if unusable {
		volumes = append(volumes, own)
	}
	a.settling = a.begin(ctx, "settle", func(context.Context) error {
		for _, volume := range volumes {
			if err := volume.Remove(); err != nil {
				return err
			}
		}
		return generation.RemoveMarker(own)
	})
	if unusable || !w.found.Complete {
		return &outcome{state: agentapi.StateWaiting, role: agentapi.RoleStandby, notReady: "data of an earlier version is being removed"}
	}
	return nil
}
