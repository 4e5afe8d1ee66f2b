package plan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/plan"
	"github.com/pgsteward/pgsteward/internal/testing/given"
)

// recheck is the bound of every wait.
const recheck = 30 * time.Second

// numbered are the members of those numbers of the cluster prod-db.
func numbered(ordinals ...int) []plan.Member {
	members := make([]plan.Member, 0, len(ordinals))
	for _, n := range ordinals {
		members = append(members, plan.Member{Name: naming.Instance("prod-db", n), Ordinal: n})
	}
	return members
}

func cluster() *given.ClusterBuilder { return given.Cluster("prod-db") }

// sentence is one line of a table: what is known, and the whole decision.
type sentence struct {
	name string
	f    *given.ClusterBuilder
	want plan.Decision
}

func check(t *testing.T, sentences []sentence) {
	t.Helper()
	for _, s := range sentences {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			if s.want.Action == nil {
				s.want.Action = plan.None{}
			}
			require.Equal(t, s.want, plan.Decide(s.f.Facts()))
		})
	}
}

func TestDecideCreate(t *testing.T) {
	t.Parallel()
	check(t, []sentence{
		{
			"a new cluster gets all its members at once, and the first makes the data", cluster(),
			plan.Decision{
				Rule: "create", Members: numbered(1, 2, 3), Bootstrap: "prod-db-1",
				Reason: v1.ReasonCreatingInstances, Message: "Creating prod-db-1, prod-db-2, prod-db-3", Recheck: recheck,
			},
		},
		{
			"one instance alone", cluster().Replicas(1),
			plan.Decision{
				Rule: "create", Members: numbered(1), Bootstrap: "prod-db-1",
				Reason: v1.ReasonCreatingInstances, Message: "Creating prod-db-1", Recheck: recheck,
			},
		},
		{
			"volumes with data come back first, and nobody makes new data",
			cluster().Replicas(2).KeptVolume(2, given.System).KeptVolume(5, given.System),
			plan.Decision{
				Rule: "create", Members: numbered(2, 5),
				Reason: v1.ReasonCreatingInstances, Message: "Creating prod-db-2, prod-db-5", Recheck: recheck,
			},
		},
		{
			"the primary's volume comes back before the standbys', which may lack its last transactions",
			cluster().Replicas(1).KeptVolume(1, given.System).KeptVolume(2, given.System).WasPrimary(2).KeptVolume(3, given.System),
			plan.Decision{
				Rule: "create", Members: numbered(2),
				Reason: v1.ReasonCreatingInstances, Message: "Creating prod-db-2", Recheck: recheck,
			},
		},
		{
			"a volume that may have data comes back first, too", cluster().Replicas(1).KeptVolume(3, ""),
			plan.Decision{
				Rule: "create", Members: numbered(3), Bootstrap: "prod-db-3",
				Reason: v1.ReasonCreatingInstances, Message: "Creating prod-db-3", Recheck: recheck,
			},
		},
		{
			"an instance deleted by hand is made again under its number",
			cluster().HasSystem().With(given.Member(1).Primary().Ready(), given.Member(3).Standby().Ready()).KeptVolume(2, given.System),
			plan.Decision{
				Rule: "create", Members: numbered(1, 2, 3),
				Reason: v1.ReasonCreatingInstances, Message: "Creating prod-db-2", Recheck: recheck,
			},
		},
		{
			"scaling out takes the lowest free numbers",
			cluster().Replicas(4).HasSystem().With(given.Member(2).Primary().Ready(), given.Member(3).Standby().Ready()),
			plan.Decision{
				Rule: "create", Members: numbered(1, 2, 3, 4),
				Reason: v1.ReasonCreatingInstances, Message: "Creating prod-db-1, prod-db-4", Recheck: recheck,
			},
		},
		{
			"an instance that is still being deleted keeps its place: nothing is made instead of it",
			cluster().HasSystem().With(given.Member(1).Primary().Ready(), given.Member(2).Standby().Ready(), given.Member(3).Deleting().NoPod()),
			plan.Decision{
				Rule: "settle", Members: numbered(1, 2),
				Reason: v1.ReasonInstancesNotReady, Message: "Waiting for prod-db-3", Recheck: recheck,
			},
		},
		{
			"a lost primary's instance is made again while another one holds the lease",
			cluster().Replicas(2).HasSystem().With(given.Member(2).Primary().Ready()).KeptVolume(1, given.System),
			plan.Decision{
				Rule: "create", Members: numbered(1, 2),
				Reason: v1.ReasonCreatingInstances, Message: "Creating prod-db-1", Recheck: recheck,
			},
		},
	})
}

// able is a standby that could take over.
func able(ordinal int) *given.MemberBuilder {
	return given.Member(ordinal).Standby().Ready().Report(func(s *agentapi.Status) { s.Streaming, s.LagBytes = true, new(int64) })
}

func TestDecideScaleIn(t *testing.T) {
	t.Parallel()
	refused := func(why string) plan.Decision {
		return plan.Decision{
			Rule: "scale-in", Members: numbered(1, 2, 3), Reason: v1.ReasonRemovingInstance,
			Message: "Not yet removing prod-db-3: " + why,
			Refused: []plan.Refusal{{What: "removing prod-db-3", Why: why}}, Recheck: recheck,
		}
	}
	removes := func(n int, deleteVolume bool, rest ...int) plan.Decision {
		name := naming.Instance("prod-db", n)
		return plan.Decision{
			Rule: "scale-in", Members: numbered(rest...), Action: plan.RemoveInstance{Instance: name, DeleteVolume: deleteVolume},
			Reason: v1.ReasonRemovingInstance, Message: "Removing " + name, Recheck: recheck,
		}
	}
	first := func(d plan.Decision) plan.Decision { d.Bootstrap = d.Members[0].Name; return d }

	check(t, []sentence{
		{
			"the standby with the highest number goes",
			cluster().Replicas(2).HasSystem().With(given.Member(1).Primary().Ready(), given.Member(2).Standby().Ready(), given.Member(3).Standby().Ready()),
			removes(3, false, 1, 2),
		},
		{
			"its volume goes with it if the policy says so",
			cluster().Replicas(2).DeletesVolumes().HasSystem().With(given.Member(1).Primary().Ready(), given.Member(2).Standby().Ready(), given.Member(3).Standby().Ready()),
			removes(3, true, 1, 2),
		},
		{
			"one at a time",
			cluster().Replicas(1).HasSystem().With(given.Member(1).Primary().Ready(), given.Member(2).Standby().Ready(), given.Member(3).Standby().Ready()),
			removes(3, false, 1, 2),
		},
		{
			"never the primary, even with the highest number",
			cluster().Replicas(1).HasSystem().With(given.Member(2).Standby().Ready(), given.Member(3).Primary().Ready()),
			removes(2, false, 3),
		},
		{
			"a standby that is not ready may go while the primary serves",
			cluster().Replicas(2).HasSystem().With(given.Member(1).Primary().Ready(), given.Member(2).Standby().Ready(), given.Member(3).Standby()),
			removes(3, false, 1, 2),
		},
		{
			"a standby that is not heard may go while the primary serves: what it knows, the primary has",
			cluster().Replicas(2).HasSystem().With(given.Member(1).Primary().Ready(), given.Member(2).Standby().Ready(), given.Member(3).Unheard(time.Hour)),
			removes(3, false, 1, 2),
		},
		{
			"not while nobody holds the lease",
			cluster().Replicas(2).HasSystem().With(given.Member(1).Standby(), given.Member(2).Standby(), given.Member(3).Standby()),
			refused("the primary is not known, so it might have the newest data"),
		},
		{
			"not while the holder is not heard",
			cluster().Replicas(2).HasSystem().With(given.Member(1).Unheard(time.Second).Holds().Ready(), given.Member(2).Standby().Ready(), given.Member(3).Standby().Ready()),
			refused("the primary is not known, so it might have the newest data"),
		},
		{
			"not while the holder is gone",
			cluster().Replicas(1).HasSystem().HeldBy(9).With(given.Member(1).Standby().Ready(), given.Member(2).Standby().Ready(), given.Member(3).Standby().Ready()),
			refused("the primary is not known, so it might have the newest data"),
		},
		{
			"not while the holder is not primary yet",
			cluster().Replicas(2).HasSystem().With(given.Member(1).Standby().Ready().Holds(), given.Member(2).Standby().Ready(), given.Member(3).Standby().Ready()),
			refused("the primary is not known, so it might have the newest data"),
		},
		{
			"not while the primary does not serve",
			cluster().Replicas(2).HasSystem().With(given.Member(1).Primary(), given.Member(2).Standby().Ready(), given.Member(3).Standby().Ready()),
			refused("the primary prod-db-1 does not serve, so a standby may be needed"),
		},
		{
			"not while the primary's Pod is going",
			cluster().Replicas(2).HasSystem().With(given.Member(1).Primary().Ready().PodDeleting(), given.Member(2).Standby().Ready(), given.Member(3).Standby().Ready()),
			refused("the primary prod-db-1 does not serve, so a standby may be needed"),
		},
		{
			"not while the primary itself is going",
			cluster().Replicas(1).HasSystem().With(given.Member(1).Primary().Ready().Deleting(), given.Member(2).Standby().Ready(), given.Member(3).Standby().Ready()),
			plan.Decision{
				Rule: "scale-in", Members: numbered(2, 3), Reason: v1.ReasonRemovingInstance,
				Message: "Not yet removing prod-db-3: the primary prod-db-1 is being deleted, so a standby is needed",
				Refused: []plan.Refusal{{What: "removing prod-db-3", Why: "the primary prod-db-1 is being deleted, so a standby is needed"}}, Recheck: recheck,
			},
		},
		{
			"not one that takes itself for primary",
			cluster().Replicas(2).HasSystem().With(given.Member(1).Primary().Ready(), given.Member(2).Standby().Ready(), given.Member(3).SaysPrimary()),
			refused("it says that it is primary, while prod-db-1 holds the lease"),
		},
		{
			"one that is known to be empty may go before there is a primary",
			cluster().Replicas(2).With(given.Member(1).Empty(), given.Member(2).Empty(), given.Member(3).Empty()),
			first(removes(3, false, 1, 2)),
		},
		{
			"one whose volume was never bound may go before there is a primary",
			cluster().Replicas(2).With(given.Member(1), given.Member(2), given.Member(3).Unbound().Unplaced()),
			first(removes(3, false, 1, 2)),
		},
		{
			"one that was refused a Pod and has an unbound volume may go although the primary does not serve",
			cluster().Replicas(2).HasSystem().With(given.Member(1).Primary(), given.Member(2).Standby(), given.Member(3).Refused("QuotaExceeded", "no").Unbound()),
			removes(3, false, 1, 2),
		},
		{
			"one that is not known to be empty stays until there is a primary",
			cluster().Replicas(2).With(given.Member(1), given.Member(2), given.Member(3)),
			first(refused("the primary is not known, so it might have the newest data")),
		},
		{
			"one that has not looked at its volume yet is not known to be empty",
			cluster().Replicas(2).With(given.Member(1), given.Member(2), given.Member(3).Empty().Report(func(s *agentapi.Status) { s.DataKnown = false })),
			first(refused("the primary is not known, so it might have the newest data")),
		},
		{
			"the first stays although it is empty: it may be making the data",
			cluster().Replicas(1).With(given.Member(1).Empty(), given.Member(2).Standby()),
			plan.Decision{
				Rule: "scale-in", Members: numbered(1, 2), Reason: v1.ReasonRemovingInstance,
				Message: "Not yet removing prod-db-2: the primary is not known, so it might have the newest data",
				Refused: []plan.Refusal{{What: "removing prod-db-2", Why: "the primary is not known, so it might have the newest data"}}, Recheck: recheck,
			},
		},
		{
			"not the only one that could take over",
			cluster().Replicas(2).HasSystem().With(given.Member(1).Primary().Ready(), given.Member(2).Standby(), able(3)),
			refused("no other standby could take over yet: prod-db-2: it is no standby that is ready"),
		},
		{
			"one of two that could take over",
			cluster().Replicas(2).HasSystem().With(given.Member(1).Primary().Ready(), able(2), able(3)),
			removes(3, false, 1, 2),
		},
		{
			"none is to be left, so the only one may go that could take over",
			cluster().Replicas(1).HasSystem().With(given.Member(1).Primary().Ready(), given.Member(2).Standby(), able(3)),
			removes(3, false, 1, 2),
		},
		{
			"none that is being deleted already is counted",
			cluster().Replicas(2).HasSystem().With(given.Member(1).Primary().Ready(), given.Member(2).Standby().Ready(), given.Member(3).Standby().Ready(), given.Member(4).Deleting().NoPod()),
			removes(3, false, 1, 2),
		},
	})
}

func TestDecideReplaceVolume(t *testing.T) {
	t.Parallel()
	replaces := func(n int) plan.Decision {
		name := naming.Instance("prod-db", n)
		return plan.Decision{
			Rule: "replace-volume", Members: numbered(1), Bootstrap: "prod-db-1", Action: plan.ReplaceVolume{Instance: name},
			Reason:  v1.ReasonReplacingVolume,
			Message: "Making the volume of " + name + " anew, which was never bound, with the storage of the spec", Recheck: recheck,
		}
	}
	waits := plan.Decision{
		Rule: "settle", Members: numbered(1), Bootstrap: "prod-db-1",
		Reason: v1.ReasonWaitingForPrimary, Message: "Waiting for an instance to become primary", Recheck: recheck,
	}
	one := func() *given.ClusterBuilder { return cluster().Replicas(1) }
	check(t, []sentence{
		{"an unbound volume of another class", one().Storage("fast", given.GiB).With(given.Member(1).Unbound().Volume("slow", given.GiB)), replaces(1)},
		{"an unbound volume without a class can still get one", one().Storage("fast", given.GiB).With(given.Member(1).Unbound()), waits},
		{"an unbound volume of another size", one().Storage("", 2*given.GiB).With(given.Member(1).Unbound()), replaces(1)},
		{"a smaller size will do as well, since there is no data", one().Storage("", given.GiB/2).With(given.Member(1).Unbound()), replaces(1)},
		{"a bound volume of another size is never replaced", one().Storage("", 2*given.GiB).With(given.Member(1)), waits},
		{"a bound volume of another class is never replaced", one().Storage("fast", given.GiB).With(given.Member(1).Volume("slow", given.GiB)), waits},
		{"an unbound volume with the class that Kubernetes chose is right", one().With(given.Member(1).Unbound().Volume("standard", given.GiB)), waits},
		{"one that is being deleted already", one().Storage("fast", given.GiB).With(given.Member(1).Unbound().VolumeDeleting()), waits},
	})
}

func TestDecideRestartBroken(t *testing.T) {
	t.Parallel()
	restarts := plan.Decision{
		Rule: "restart-broken", Members: numbered(1), Bootstrap: "prod-db-1", Action: plan.RestartInstance{Instance: "prod-db-1", PodUID: "uid-of-prod-db-1-0"},
		Reason: v1.ReasonRestartingInstance, Message: "Starting prod-db-1 anew, which does not work, with the changed specification", Recheck: recheck,
	}
	waits := plan.Decision{
		Rule: "settle", Members: numbered(1), Bootstrap: "prod-db-1",
		Reason: v1.ReasonWaitingForPrimary, Message: "Waiting for an instance to become primary", Recheck: recheck,
	}
	one := func(m *given.MemberBuilder) *given.ClusterBuilder { return cluster().Replicas(1).With(m) }
	withData := func(d plan.Decision) plan.Decision { d.Bootstrap = ""; return d }
	check(t, []sentence{
		{"an outdated Pod whose image cannot be pulled", one(given.Member(1).Outdated().PodProblem(v1.ReasonImagePullFailed, "no such image")), restarts},
		{"an outdated Pod whose agent has failed", one(given.Member(1).Outdated().Failed(v1.ReasonImageMajorMismatch, "15 is not 16")), restarts},
		{"a Pod of the present template is left to the kubelet", one(given.Member(1).PodProblem(v1.ReasonImagePullFailed, "no such image")), waits},
		{"an outdated Pod that is merely not ready may be recovering", one(given.Member(1).Outdated().Unheard(time.Hour)), waits},
		{"an outdated Pod with a complaint that has not failed", one(given.Member(1).Outdated().Says(v1.ReasonConfigurationRejected, "no")), waits},
		{"an outdated Pod that is going", one(given.Member(1).Outdated().PodProblem(v1.ReasonImagePullFailed, "x").PodDeleting()), waits},
		{
			"an outdated Pod that serves is left alone",
			one(given.Member(1).Primary().Ready().Outdated().Says(v1.ReasonConfigurationRejected, "no")),
			plan.Decision{Rule: "done", Members: numbered(1), Reason: v1.ReasonReconciled, Message: "The instance is ready"},
		},
		{"a failed primary, too, gets the changed specification", one(given.Member(1).Primary().Outdated().Failed(v1.ReasonServerFailed, "no")), withData(restarts)},
	})
}

func TestDecideSettle(t *testing.T) {
	t.Parallel()
	all := numbered(1, 2, 3)
	waits := func(reason, message string) plan.Decision {
		return plan.Decision{Rule: "settle", Members: all, Reason: reason, Message: message, Recheck: recheck}
	}
	primary := func() *given.MemberBuilder { return given.Member(1).Primary().Ready() }
	standby := func(n int) *given.MemberBuilder { return given.Member(n).Standby().Ready() }
	check(t, []sentence{
		{
			"nobody holds the lease", cluster().HasSystem().With(given.Member(1), given.Member(2), given.Member(3)),
			waits(v1.ReasonWaitingForPrimary, "Waiting for an instance to become primary"),
		},
		{
			"the primary is not ready", cluster().With(given.Member(1).Primary(), standby(2), standby(3)),
			waits(v1.ReasonPrimaryNotReady, "Waiting for the primary prod-db-1"),
		},
		{
			"the holder is gone", cluster().HasSystem().HeldBy(7).With(standby(1), standby(2), standby(3)),
			waits(v1.ReasonFailingOver, "The primary prod-db-7 does not serve: it comes back at once, or a standby takes over"),
		},
		{
			"the agent says what the kubelet does not know yet",
			cluster().With(primary(), standby(2), given.Member(3).Ready()).HasSystem(),
			plan.Decision{Rule: "done", Members: all, Reason: v1.ReasonReconciled, Message: "All 3 instances are ready"},
		},
		{
			"the kubelet says ready, but nobody knows yet what the new instance is",
			cluster().With(primary(), standby(2), standby(3).NeverHeard()),
			waits(v1.ReasonInstancesNotReady, "Waiting for prod-db-3"),
		},
		{
			"an agent that was heard before is silent for a moment",
			cluster().HasSystem().With(primary(), standby(2), standby(3).Unheard(time.Second)),
			plan.Decision{Rule: "done", Members: all, Reason: v1.ReasonReconciled, Message: "All 3 instances are ready"},
		},
		{
			"two standbys are not ready", cluster().With(primary(), given.Member(2).Standby(), given.Member(3).NoPod()),
			waits(v1.ReasonInstancesNotReady, "Waiting for prod-db-2, prod-db-3"),
		},
		{
			"a standby's Pod is going", cluster().With(primary(), standby(2), standby(3).PodDeleting()),
			waits(v1.ReasonInstancesNotReady, "Waiting for prod-db-3"),
		},
		{
			"an instance that is going, although it still serves", cluster().With(primary(), standby(2), standby(3), standby(4).Deleting()).Replicas(4),
			waits(v1.ReasonInstancesNotReady, "Waiting for prod-db-4"),
		},
		{
			"all serve", cluster().With(primary(), standby(2), standby(3)),
			plan.Decision{Rule: "done", Members: all, Reason: v1.ReasonReconciled, Message: "All 3 instances are ready"},
		},
	})
}

func TestDecideDelete(t *testing.T) {
	t.Parallel()
	deletes := func(action plan.Action, message string) plan.Decision {
		return plan.Decision{Rule: "delete", Action: action, Reason: v1.ReasonDeleting, Message: message, Recheck: recheck}
	}
	gone := func() *given.ClusterBuilder { return cluster().HasSystem().Deleting() }
	check(t, []sentence{
		{
			"the instances go first, without asking who is primary",
			gone().Leftovers("secret/prod-db-app").With(given.Member(1).Unheard(time.Hour), given.Member(2).Standby().Ready()),
			deletes(plan.RemoveInstances{}, "Stopping the instances"),
		},
		{
			"some are going already", gone().With(given.Member(1).Primary().Ready(), given.Member(2).Deleting()),
			deletes(plan.RemoveInstances{}, "Stopping the instances"),
		},
		{
			"they stop in order", gone().Leftovers("secret/prod-db-app").With(given.Member(1).Primary().Deleting()).Orphans("prod-db-2-0"),
			deletes(nil, "Waiting for the instances to stop: prod-db-2-0, prod-db-1-0"),
		},
		{
			"a Pod alone is waited for", gone().Leftovers("secret/prod-db-app").Orphans("prod-db-1-0"),
			deletes(nil, "Waiting for the instances to stop: prod-db-1-0"),
		},
		{
			"a StatefulSet without a Pod is waited for", gone().With(given.Member(1).NoPod().Deleting()),
			deletes(nil, "Waiting for the instances to stop: prod-db-1"),
		},
		{
			"then the rest, without the volumes", gone().Leftovers("lease/prod-db-primary", "secret/prod-db-app").KeptVolume(1, given.System),
			deletes(plan.RemoveRest{}, "Removing lease/prod-db-primary, secret/prod-db-app"),
		},
		{
			"then the rest, with the volumes if the policy says so", gone().DeletesVolumes().Leftovers("persistentvolumeclaim/prod-db-1-data"),
			deletes(plan.RemoveRest{DeleteVolumes: true}, "Removing persistentvolumeclaim/prod-db-1-data"),
		},
		{
			"last the cluster itself, while its volumes stay", gone().KeptVolume(1, given.System),
			deletes(plan.Release{}, "Everything is removed"),
		},
		{
			"a cluster that never had anything", cluster().Deleting(),
			deletes(plan.Release{}, "Everything is removed"),
		},
	})
}

// TestBootstrap: who may make a new PostgreSQL system. If in doubt, nobody.
func TestBootstrap(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		f    *given.ClusterBuilder
		want string
	}{
		"nothing is known of data":             {cluster().With(given.Member(1), given.Member(2), given.Member(3)), "prod-db-1"},
		"all are known to be empty":            {cluster().With(given.Member(1).Empty(), given.Member(2).Empty(), given.Member(3).Empty()), "prod-db-1"},
		"the system is known":                  {cluster().HasSystem().With(given.Member(1).Empty(), given.Member(2).Empty(), given.Member(3).Empty()), ""},
		"the first has data":                   {cluster().With(given.Member(1).Primary(), given.Member(2), given.Member(3)), ""},
		"another has data":                     {cluster().With(given.Member(1).Empty(), given.Member(2), given.Member(3).Standby()), ""},
		"a volume has data":                    {cluster().With(given.Member(1).Empty(), given.Member(2)).KeptVolume(3, given.System), ""},
		"a volume beside the members has data": {cluster().With(given.Member(1), given.Member(2), given.Member(3)).KeptVolume(8, given.System), ""},
		"the cluster is being deleted":         {cluster().Deleting().With(given.Member(1)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.want, plan.Decide(test.f.Facts()).Bootstrap)
		})
	}
}

// TestDecideIsTotal: the zero facts, too, have a decision.
func TestDecideIsTotal(t *testing.T) {
	t.Parallel()
	require.NotPanics(t, func() { plan.Decide(facts.Cluster{}) })
}
