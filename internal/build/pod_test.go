package build_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/build"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/testing/given"
)

// hash is the configuration hash of the input.
func hash(t *testing.T, in build.Input) string {
	t.Helper()
	pods := build.Pods(in, given.Cluster("prod-db").With(given.Member(1)).Facts())
	require.Len(t, pods, 1)
	return asUnstructured(t, pods[0]).GetAnnotations()[naming.AnnotationConfigHash]
}

// TestPodsRole: the role label follows the Lease once the agent has taken the role; until then it stays.
func TestPodsRole(t *testing.T) {
	t.Parallel()
	in := input(t, minimal)
	current := hash(t, in)
	for name, test := range map[string]struct {
		f    *given.ClusterBuilder
		want map[string]string // role labels that are written, by Pod
	}{
		"a new primary and its standby": {
			given.Cluster("prod-db").With(given.Member(1).Primary().Labelled("", current), given.Member(2).Standby().Labelled("", current)),
			map[string]string{"prod-db-1-0": "primary", "prod-db-2-0": "standby"},
		},
		"right already": {
			given.Cluster("prod-db").With(given.Member(1).Primary().Labelled("primary", current), given.Member(2).Standby().Labelled("standby", current)),
			nil,
		},
		"wrong": {
			given.Cluster("prod-db").With(given.Member(1).Primary().Labelled("standby", current), given.Member(2).Standby().Labelled("primary", current)),
			map[string]string{"prod-db-1-0": "primary", "prod-db-2-0": "standby"},
		},
		"the holder is not primary yet": {
			given.Cluster("prod-db").HeldBy(1).With(given.Member(1).Standby().Labelled("standby", current)),
			nil,
		},
		"two that say that they are primary": {
			given.Cluster("prod-db").With(given.Member(1).Primary().Labelled("primary", current), given.Member(2).SaysPrimary().Labelled("standby", current)),
			nil,
		},
		"the next primary is labelled before it is one": {
			given.Cluster("prod-db").With(
				given.Member(1).Primary().Labelled("standby", current).Report(func(s *agentapi.Status) {
					s.Switchover = &agentapi.SwitchoverStatus{Target: "prod-db-2", Phase: agentapi.SwitchoverStopping}
				}),
				given.Member(2).Standby().Labelled("primary", current)),
			nil,
		},
		"an instance that is not of the live version": {
			given.Cluster("prod-db").Live("16").Wants("17").Upgrade(facts.Upgrade{}, &v1.UpgradeStatus{From: "16", To: "17", Phase: v1.UpgradeSwitchingOver}).With(
				given.Member(1).Primary().Labelled("primary", current), given.Member(2).Detached().Runs("17").Labelled("standby", current)),
			map[string]string{"prod-db-2-0": ""},
		},
		"the first of the next version is labelled before it takes the writes": {
			given.Cluster("prod-db").Live("16").Wants("17").Upgrade(facts.Upgrade{}, &v1.UpgradeStatus{From: "16", To: "17", Phase: v1.UpgradeSwitchingOver}).With(
				given.Member(1).Primary().Labelled("", current).Upgrades(agentapi.UpgradeStatus{
					Switchover: &agentapi.UpgradeSwitchoverStatus{Target: "prod-db-2", Phase: agentapi.SwitchoverStopping},
				}),
				given.Member(2).Detached().Runs("17").Labelled("primary", current)),
			nil,
		},
		"it is handed over, which the operator has not read yet": {
			given.Cluster("prod-db").HeldBy(1).With(given.Member(1).Standby().Labelled("standby", current), given.Member(2).Standby().Labelled("primary", current)),
			nil,
		},
		"the primary's Pod ends": {
			given.Cluster("prod-db").With(given.Member(1).Primary().Labelled("standby", current).PodDeleting(), given.Member(2).Standby().Labelled("primary", current)),
			nil,
		},
		"nobody holds the lease": {
			given.Cluster("prod-db").With(given.Member(1).Standby().Labelled("primary", current)),
			nil,
		},
		"not heard": {
			given.Cluster("prod-db").HeldBy(2).With(given.Member(1).Unheard(time.Hour).Labelled("primary", current)),
			nil,
		},
		"neither yet": {
			given.Cluster("prod-db").HeldBy(2).With(given.Member(1).Empty().Labelled("", current)),
			nil,
		},
		"going, or not there": {
			given.Cluster("prod-db").HeldBy(1).With(given.Member(1).Primary().PodDeleting(), given.Member(2).NoPod()),
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got map[string]string
			for _, pod := range build.Pods(in, test.f.Facts()) {
				u := asUnstructured(t, pod)
				if got == nil {
					got = map[string]string{}
				}
				got[u.GetName()] = u.GetLabels()[naming.LabelRole]
				assert.Equal(t, "uid-of-"+u.GetName(), string(u.GetUID()), "another Pod of that name is not meant")
				assert.Equal(t, map[string]string{naming.AnnotationConfigHash: current}, u.GetAnnotations())
			}
			assert.Equal(t, test.want, got)
		})
	}
}

// TestPodsKeepTheirRole: writing the hash must not take the role away, which is applied under the same owner.
func TestPodsKeepTheirRole(t *testing.T) {
	t.Parallel()
	in := input(t, minimal)
	pods := build.Pods(in, given.Cluster("prod-db").HeldBy(2).With(given.Member(1).Unheard(time.Hour).Labelled("primary", "old")).Facts())
	require.Len(t, pods, 1)
	u := asUnstructured(t, pods[0])
	assert.Equal(t, map[string]string{naming.LabelRole: "primary"}, u.GetLabels())
}

// TestConfigHash changes with everything that a Pod mounts, and with nothing else.
func TestConfigHash(t *testing.T) {
	t.Parallel()
	want := hash(t, input(t, minimal))
	assert.Equal(t, want, hash(t, input(t, minimal)))
	for name, change := range map[string]func(*build.Input){
		"a parameter": func(in *build.Input) {
			in.Cluster.Spec.PostgreSQL.Parameters = map[string]v1.ParameterValue{"work_mem": "1MB"}
		},
		"a line of pg_hba":   func(in *build.Input) { in.Cluster.Spec.PostgreSQL.PgHBA = []string{"local all all peer"} },
		"a generation":       func(in *build.Input) { in.Cluster.Generation++ },
		"a member":           func(in *build.Input) { in.Members = members("prod-db", 1, 2, 3) },
		"the system":         func(in *build.Input) { in.SystemIdentifier = "7123" },
		"who may bootstrap":  func(in *build.Input) { in.Bootstrap = "prod-db-1" },
		"app password":       func(in *build.Input) { in.Credentials.AppPassword = "x" },
		"superuser password": func(in *build.Input) { in.Credentials.SuperuserPassword = "x" },
		"authority":          func(in *build.Input) { in.Credentials.CA.Cert = []byte("x") },
		"server certificate": func(in *build.Input) { in.Credentials.Server.Cert = []byte("x") },
		"server key":         func(in *build.Input) { in.Credentials.Server.Key = []byte("x") },
		"replication":        func(in *build.Input) { in.Credentials.Replication.Key = []byte("x") },
		"a part moved over": func(in *build.Input) {
			in.Credentials.SuperuserPassword, in.Credentials.AppPassword = "root-secreta", "pp-secret"
		},
		"the database's name": func(in *build.Input) { in.Cluster.Spec.Bootstrap = parse(t, full).Spec.Bootstrap },
	} {
		in := input(t, minimal)
		change(&in)
		assert.NotEqual(t, want, hash(t, in), name)
	}
	for name, change := range map[string]func(*build.Input){
		"the authority's key": func(in *build.Input) { in.Credentials.CA.Key = []byte("x") },
		"the operator image":  func(in *build.Input) { in.Settings.OperatorImage = "registry.example/pgsteward:2" },
		"a volume":            func(in *build.Input) { in.Cluster.Spec.Storage = parse(t, full).Spec.Storage },
	} {
		in := input(t, minimal)
		change(&in)
		assert.Equal(t, want, hash(t, in), name)
	}
}

func TestImage(t *testing.T) {
	t.Parallel()
	settings := build.Settings{PostgresImages: map[string]string{"16": "default"}}
	assert.Equal(t, "default", settings.Image(parse(t, minimal)))
	assert.Equal(t, "registry.example/my/postgres:17", settings.Image(parse(t, full)))
	unknown := parse(t, minimal)
	unknown.Spec.Version = "18"
	assert.Empty(t, settings.Image(unknown))
}
