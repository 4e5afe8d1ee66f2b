package status_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/plan"
	"github.com/pgsteward/pgsteward/internal/status"
	"github.com/pgsteward/pgsteward/internal/testing/expect"
	"github.com/pgsteward/pgsteward/internal/testing/given"
)

func cluster() *given.ClusterBuilder { return given.Cluster("prod-db") }

// healthy is a cluster of three that all serve.
func healthy() *given.ClusterBuilder {
	return cluster().HasSystem().With(given.Member(1).Primary().Ready(), given.Member(2).Standby().Ready(), given.Member(3).Standby().Ready())
}

// after is a pass over the facts after a pass with that status.
func after(previous v1.PostgresClusterStatus, b *given.ClusterBuilder, problems ...facts.Problem) status.Input {
	f := b.Facts()
	return status.Input{Facts: f, Decision: plan.Decide(f), Problems: problems, Previous: previous}
}

// was is a status of that phase, in which Ready is as said since then.
func was(phase v1.Phase, version string, ready metav1.ConditionStatus, since time.Time) v1.PostgresClusterStatus {
	return v1.PostgresClusterStatus{Phase: phase, Version: version, Conditions: []metav1.Condition{{
		Type: v1.ConditionReady, Status: ready, Reason: "Before", LastTransitionTime: metav1.NewTime(since),
	}}}
}

// TestConditions: what a person reads in every situation.
func TestConditions(t *testing.T) {
	t.Parallel()
	long := given.Now.Add(-time.Hour)
	never := v1.PostgresClusterStatus{}
	creating := was(v1.PhaseCreating, "", metav1.ConditionFalse, long)
	running := was(v1.PhaseRunning, "16.14", metav1.ConditionTrue, long)
	failedEarly := was(v1.PhaseFailed, "", metav1.ConditionFalse, long)
	noImage := func(n int) *given.MemberBuilder {
		return given.Member(n).NotStarted().PodProblem(v1.ReasonImagePullFailed, "the image cannot be pulled")
	}
	quota := facts.Problem{Reason: v1.ReasonQuotaExceeded, Message: "exceeded quota"}

	for name, test := range map[string]struct {
		in          status.Input
		phase       v1.Phase
		ready       string
		progressing string
		degraded    string
	}{
		"seen for the first time": {
			after(never, cluster()),
			v1.PhaseCreating, "False CreatingInstances", "True CreatingInstances", "False Healthy",
		},
		"its first instance is starting": {
			after(creating, cluster().With(given.Member(1), given.Member(2), given.Member(3))),
			v1.PhaseCreating, "False WaitingForPrimary", "True WaitingForPrimary", "False Healthy",
		},
		"its images are being pulled for a long time": {
			after(creating, cluster().With(given.Member(1).NotStarted().Unheard(time.Hour), given.Member(2).NotStarted().Unheard(time.Hour), given.Member(3).NotStarted().Unheard(time.Hour))),
			v1.PhaseCreating, "False WaitingForPrimary", "True WaitingForPrimary", "False Healthy",
		},
		"its standbys are being cloned": {
			after(creating, cluster().With(given.Member(1).Primary().Ready(), given.Member(2).Empty(), given.Member(3).Empty())),
			v1.PhaseCreating, "False InstancesNotReady", "True InstancesNotReady", "False Healthy",
		},
		"all serve": {
			after(creating, healthy()),
			v1.PhaseRunning, "True ClusterReady", "False Reconciled", "False Healthy",
		},
		"its image cannot be pulled": {
			after(creating, cluster().With(noImage(1), noImage(2), noImage(3))),
			v1.PhaseFailed, "False ImagePullFailed", "True WaitingForPrimary", "True ImagePullFailed",
		},
		"its image was corrected": {
			after(failedEarly, cluster().With(given.Member(1), given.Member(2), given.Member(3))),
			v1.PhaseCreating, "False WaitingForPrimary", "True WaitingForPrimary", "False Healthy",
		},
		"its image is of another major": {
			after(creating, cluster().Replicas(1).With(given.Member(1).Failed(v1.ReasonImageMajorMismatch, "the image has PostgreSQL 15"))),
			v1.PhaseFailed, "False ImageMajorMismatch", "True WaitingForPrimary", "True ImageMajorMismatch",
		},
		"its storage class does not exist": {
			after(creating, cluster().Replicas(1).Problem(v1.ReasonStorageClassNotFound, "no class").With(given.Member(1).Unbound().Unplaced())),
			v1.PhaseFailed, "False StorageClassNotFound", "True WaitingForPrimary", "True StorageClassNotFound",
		},
		"a quota refuses its Pods": {
			after(creating, cluster().Replicas(1).With(given.Member(1).Refused(v1.ReasonQuotaExceeded, "exceeded quota"))),
			v1.PhaseFailed, "False QuotaExceeded", "True WaitingForPrimary", "True QuotaExceeded",
		},
		"a quota refuses its objects": {
			after(never, cluster(), quota),
			v1.PhaseFailed, "False QuotaExceeded", "True CreatingInstances", "True QuotaExceeded",
		},
		"it is being scaled out": {
			after(running, healthy().Replicas(4)),
			v1.PhaseRunning, "False CreatingInstances", "True CreatingInstances", "False Healthy",
		},
		"it is being scaled out and a quota refuses": {
			after(running, healthy().Replicas(4), quota),
			v1.PhaseRunning, "False QuotaExceeded", "True CreatingInstances", "True QuotaExceeded",
		},
		"it is being scaled in": {
			after(running, healthy().Replicas(2)),
			v1.PhaseRunning, "False RemovingInstance", "True RemovingInstance", "False Healthy",
		},
		"it cannot be scaled in now": {
			after(was(v1.PhaseRunning, "16.14", metav1.ConditionFalse, given.Now), cluster().HasSystem().Replicas(1).With(given.Member(1).Primary(), given.Member(2).Standby().Ready())),
			v1.PhaseRunning, "False RemovingInstance", "True RemovingInstance", "False Healthy",
		},
		"its primary has just been lost": {
			after(running, cluster().HasSystem().HeldBy(1).With(given.Member(1).NoPod(), given.Member(2).Standby(), given.Member(3).Standby())),
			v1.PhaseRunning, "False PrimaryNotReady", "True PrimaryNotReady", "False Healthy",
		},
		"its primary has been lost for long": {
			after(was(v1.PhaseRunning, "16.14", metav1.ConditionFalse, long), cluster().HasSystem().HeldBy(1).With(given.Member(1).NoPod(), given.Member(2).Standby(), given.Member(3).Standby())),
			v1.PhaseFailed, "False PrimaryNotReady", "True PrimaryNotReady", "False Healthy",
		},
		"its primary does not start": {
			after(running, cluster().HasSystem().With(given.Member(1).Primary().Failed(v1.ReasonServerFailed, "no"), given.Member(2).Standby(), given.Member(3).Standby())),
			v1.PhaseFailed, "False ServerFailed", "True PrimaryNotReady", "True ServerFailed",
		},
		"a standby is lost": {
			after(running, cluster().HasSystem().With(given.Member(1).Primary().Ready(), given.Member(2).Standby().Ready(), given.Member(3).NoPod())),
			v1.PhaseRunning, "False InstancesNotReady", "True InstancesNotReady", "False Healthy",
		},
		"a standby fails": {
			after(running, cluster().HasSystem().With(given.Member(1).Primary().Ready(), given.Member(2).Standby().Ready(), given.Member(3).Standby().Failed(v1.ReasonSeedFailed, "no"))),
			v1.PhaseRunning, "False SeedFailed", "True InstancesNotReady", "True SeedFailed",
		},
		"an agent has just fallen silent": {
			after(running, cluster().HasSystem().With(given.Member(1).Primary().Ready(), given.Member(2).Standby().Ready(), given.Member(3).Ready().Unheard(29*time.Second))),
			v1.PhaseRunning, "True ClusterReady", "False Reconciled", "False Healthy",
		},
		"an agent is not heard, but the kubelet says that all is well": {
			after(running, cluster().HasSystem().With(given.Member(1).Primary().Ready(), given.Member(2).Standby().Ready(), given.Member(3).Ready().Unheard(31*time.Second))),
			v1.PhaseRunning, "True ClusterReady", "False Reconciled", "True AgentUnreachable",
		},
		"a node is lost": {
			after(running, cluster().HasSystem().With(given.Member(1).Primary().Ready(), given.Member(2).Standby().Ready(), given.Member(3).Unheard(time.Minute))),
			v1.PhaseRunning, "False AgentUnreachable", "True InstancesNotReady", "True AgentUnreachable",
		},
		"PostgreSQL refuses a parameter": {
			after(running, cluster().Replicas(1).HasSystem().With(given.Member(1).Primary().Ready().Says(v1.ReasonConfigurationRejected, "work_mem"))),
			v1.PhaseRunning, "True ClusterReady", "False Reconciled", "True ConfigurationRejected",
		},
		"the API server refuses a change of a cluster that serves": {
			after(running, healthy(), facts.Problem{Reason: v1.ReasonApplyFailed, Message: "no"}),
			v1.PhaseRunning, "False ApplyFailed", "False Reconciled", "True ApplyFailed",
		},
		"its namespace is being deleted": {
			after(running, healthy(), facts.Problem{Reason: v1.ReasonNamespaceTerminating, Message: "no"}),
			v1.PhaseRunning, "False NamespaceTerminating", "False Reconciled", "True NamespaceTerminating",
		},
		"it is being deleted": {
			after(running, healthy().Deleting()),
			v1.PhaseDeleting, "False Deleting", "True Deleting", "False Healthy",
		},
		"its deletion takes long": {
			after(running, healthy().Deleting().Since(time.Hour)),
			v1.PhaseDeleting, "False DeletionBlocked", "True DeletionBlocked", "True DeletionBlocked",
		},
		"a volume is full": {
			after(running, cluster().Replicas(1).HasSystem().With(given.Member(1).Primary().Failed(v1.ReasonServerFailed, "could not write: No space left on device"))),
			v1.PhaseFailed, "False ServerFailed", "True PrimaryNotReady", "True ServerFailed",
		},
		"somebody deletes a volume that is in use": {
			after(running, cluster().Replicas(1).HasSystem().With(given.Member(1).Primary().Ready().VolumeDeleting())),
			v1.PhaseRunning, "True ClusterReady", "False Reconciled", "True VolumeLost",
		},
		"it is paused and serves": {
			after(running, healthy().Paused()),
			v1.PhaseRunning, "True ClusterReady", "False Paused", "False Healthy",
		},
		"it is paused and does not serve": {
			after(running, cluster().HasSystem().Paused().With(given.Member(1).Primary().Ready(), given.Member(2).Standby(), given.Member(3).Standby().Ready())),
			v1.PhaseRunning, "False Paused", "False Paused", "False Healthy",
		},
		"it is being suspended": {
			after(running, healthy().Suspended()),
			v1.PhaseSuspended, "False Suspended", "True Suspended", "False Healthy",
		},
		"it is suspended": {
			after(running, cluster().HasSystem().HeldBy(1).Suspended().With(given.Member(1).NoPod(), given.Member(2).NoPod(), given.Member(3).NoPod())),
			v1.PhaseSuspended, "False Suspended", "False Suspended", "False Healthy",
		},
		"a kept volume is of a newer major": {
			after(v1.PostgresClusterStatus{}, cluster().KeptVolume(1, given.System).VolumeVersion(1, "17")),
			v1.PhaseFailed, "False DataVersionMismatch", "True CreatingInstances", "True DataVersionMismatch",
		},
		"an instance has an older configuration in force": {
			after(running, healthy().Generation(2)),
			v1.PhaseRunning, "False ConfiguringInstances", "True ConfiguringInstances", "False Healthy",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := status.Compute(test.in)
			assert.Equal(t, test.phase, s.Phase)
			for conditionType, want := range map[string]string{
				v1.ConditionReady: test.ready, v1.ConditionProgressing: test.progressing, v1.ConditionDegraded: test.degraded,
			} {
				got := apimeta.FindStatusCondition(s.Conditions, conditionType)
				require.NotNil(t, got, conditionType)
				assert.Equal(t, want, string(got.Status)+" "+got.Reason, conditionType)
				assert.NotEmpty(t, got.Message, conditionType)
				assert.Equal(t, test.in.Facts.Generation, got.ObservedGeneration, conditionType)
			}
			assert.Equal(t, test.in.Facts.Generation, s.ObservedGeneration)
			assert.Len(t, s.Conditions, 4)
		})
	}
}

// TestSurge: a cluster that has a second instance for an upgrade only says that it is upgrading, from the moment in which that is added.
func TestSurge(t *testing.T) {
	t.Parallel()
	preflight := v1.UpgradeStatus{From: "16", To: "17", Phase: v1.UpgradePreflight, Surge: true}
	s := status.Compute(after(was(v1.PhaseRunning, "16.14", metav1.ConditionTrue, given.Now.Add(-time.Hour)),
		cluster().Replicas(2).HasSystem().Wants("17").Upgrade(facts.Upgrade{}, &preflight).With(given.Member(1).Primary().Ready(), given.Member(2).Empty())))
	assert.Equal(t, v1.PhaseUpgrading, s.Phase)
	assert.True(t, s.Upgrade.Surge)
	assert.EqualValues(t, 2, s.Replicas)
}

// TestComputeWhole: all of a running cluster's status.
func TestComputeWhole(t *testing.T) {
	t.Parallel()
	lag := int64(4096)
	f := cluster().HasSystem().With(
		given.Member(1).Primary().Ready(),
		given.Member(2).Standby().Ready().Report(func(s *agentapi.Status) { s.LagBytes, s.PendingRestart = &lag, []string{"shared_buffers"} }),
		given.Member(3).Unplaced().PodProblem(v1.ReasonUnschedulable, "no node"),
	)
	expect.YAML(t, `
		observedGeneration: 1
		phase: Running
		version: "16.14"
		systemIdentifier: "7123456789012345678"
		timeline: 1
		currentPrimary: prod-db-1
		primaryHost: prod-db-rw.demo.svc
		replicaHosts: [prod-db-2-0.prod-db-instances.demo.svc]
		replicas: 3
		readyReplicas: 2
		selector: app.kubernetes.io/component=database,pgsteward.io/cluster=prod-db
		instances:
		- {name: prod-db-1, role: primary, ready: true, state: Running, version: "16.14", timeline: 1, lsn: 0/5000000, node: node-1}
		- name: prod-db-2
		  role: standby
		  ready: true
		  state: Running
		  version: "16.14"
		  timeline: 1
		  lsn: 0/5000000
		  lagBytes: 4096
		  pendingRestart: [shared_buffers]
		  node: node-1
		- {name: prod-db-3, ready: false, state: Pending, message: no node}
		conditions:
		- {type: Ready, status: "False", reason: Unschedulable, message: no node, observedGeneration: 1, lastTransitionTime: "2026-11-29T12:00:00Z"}
		- {type: Progressing, status: "True", reason: InstancesNotReady, message: Waiting for prod-db-3, observedGeneration: 1, lastTransitionTime: "2026-11-29T12:00:00Z"}
		- {type: Degraded, status: "True", reason: Unschedulable, message: no node, observedGeneration: 1, lastTransitionTime: "2026-11-29T12:00:00Z"}
		- {type: Paused, status: "False", reason: NotPaused, message: The annotation pgsteward.io/paused is not set, observedGeneration: 1, lastTransitionTime: "2026-11-29T12:00:00Z"}
	`, status.Compute(after(was(v1.PhaseRunning, "16.14", "Unknown", given.Now.Add(-time.Hour)), f)))
}

// TestTransitionTime moves only when the condition's status changes.
func TestTransitionTime(t *testing.T) {
	t.Parallel()
	transition := func(s v1.PostgresClusterStatus, conditionType string) time.Time {
		return apimeta.FindStatusCondition(s.Conditions, conditionType).LastTransitionTime.Time
	}
	first := status.Compute(after(v1.PostgresClusterStatus{}, healthy()))
	later := given.Now.Add(time.Minute)

	again := status.Compute(after(first, healthy().At(later)))
	assert.Equal(t, first, again, "nothing has changed but the time")

	scaling := status.Compute(after(again, healthy().At(later).Replicas(4)))
	assert.Equal(t, later, transition(scaling, v1.ConditionReady))
	assert.Equal(t, later, transition(scaling, v1.ConditionProgressing))
	assert.Equal(t, given.Now, transition(scaling, v1.ConditionDegraded))

	waiting := status.Compute(after(scaling, cluster().HasSystem().At(later.Add(time.Minute)).Replicas(2).With(given.Member(1).Primary().Ready(), given.Member(2).Standby())))
	assert.Equal(t, later, transition(waiting, v1.ConditionReady), "another reason, the same status")
}

// TestPreviousIsNotChanged: the conditions of the previous status are not those of the new one.
func TestPreviousIsNotChanged(t *testing.T) {
	t.Parallel()
	first := status.Compute(after(v1.PostgresClusterStatus{}, healthy()))
	kept := *first.DeepCopy()
	status.Compute(after(first, healthy().Deleting().At(given.Now.Add(time.Hour))))
	assert.Equal(t, kept, first)
}

// TestUnheardAgent: what an agent said before stays while it is not heard, but for its state, which is unknown after a while.
func TestUnheardAgent(t *testing.T) {
	t.Parallel()
	before := status.Compute(after(v1.PostgresClusterStatus{}, healthy()))
	instance := func(m *given.MemberBuilder) v1.InstanceStatus {
		f := cluster().HasSystem().With(given.Member(1).Primary().Ready(), given.Member(2).Standby().Ready(), m)
		return status.Compute(after(before, f)).Instances[2]
	}
	last := before.Instances[2]

	assert.Equal(t, last, instance(given.Member(3).Ready().Unheard(time.Second)), "the operator has just been restarted")

	unknown := last
	unknown.State = "Unknown"
	unknown.Message = ""
	assert.Equal(t, unknown, instance(given.Member(3).Ready().Unheard(time.Hour)), "it serves, but what it does is not known")

	unknown.Ready = false
	assert.Equal(t, unknown, instance(given.Member(3).Unheard(time.Second)), "the kubelet says that it is not ready")

	assert.Equal(t, v1.InstanceStatus{Name: "prod-db-3", State: "Pending"}, instance(given.Member(3).NoPod()), "its Pod is gone")
	assert.Equal(t, v1.InstanceStatus{Name: "prod-db-3", State: "Pending"}, instance(given.Member(3).Unplaced()), "its Pod has no node")
}

// TestMessages: problems are told once each, the most fundamental first, and not without end.
func TestMessages(t *testing.T) {
	t.Parallel()
	ready := func(in status.Input) string {
		return apimeta.FindStatusCondition(status.Compute(in).Conditions, v1.ConditionReady).Message
	}
	broken := func(n int) *given.MemberBuilder {
		return given.Member(n).PodProblem(v1.ReasonImagePullFailed, "prod-db: no such image")
	}
	assert.Equal(t, "prod-db: no such image (likewise prod-db-2, prod-db-3)",
		ready(after(v1.PostgresClusterStatus{}, cluster().With(broken(1), broken(2), broken(3)))))
	assert.Equal(t, "refused; no class; prod-db: no such image",
		ready(after(v1.PostgresClusterStatus{}, cluster().Replicas(1).Problem(v1.ReasonStorageClassNotFound, "no class").With(broken(1)),
			facts.Problem{Reason: v1.ReasonApplyFailed, Message: "refused"})))

	long := ready(after(v1.PostgresClusterStatus{}, cluster(), facts.Problem{Reason: v1.ReasonApplyFailed, Message: strings.Repeat("ä", 5000)}))
	assert.Less(t, len(long), 1100)
	assert.True(t, strings.HasSuffix(long, "ä …"), long[len(long)-10:])
}
