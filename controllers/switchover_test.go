package controllers_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/testing/memory"
)

// wish annotates the cluster.
func (s *stage) wish(target string) {
	s.Helper()
	s.change(func(c *v1.PostgresCluster) {
		if c.Annotations == nil {
			c.Annotations = map[string]string{}
		}
		c.Annotations[naming.AnnotationSwitchover] = target
	})
}

// hold gives the Lease to the instance.
func (s *stage) hold(instance string) {
	s.Helper()
	lease := &coordinationv1.Lease{}
	require.NoError(s, s.c.Get(s.Context(), types.NamespacedName{Namespace: s.namespace, Name: naming.PrimaryLease("prod-db")}, lease))
	lease.Spec.HolderIdentity = &instance
	require.NoError(s, s.c.Update(s.Context(), lease))
}

func (s *stage) switchover() v1.SwitchoverStatus {
	s.Helper()
	c := s.cluster()
	if c.Status.Switchover == nil {
		return v1.SwitchoverStatus{}
	}
	return *c.Status.Switchover
}

// TestSwitchover: the primary's agent is asked once, the wish goes, and the status says what came of it.
func TestSwitchover(t *testing.T) {
	t.Parallel()
	s := newStage(t, memory.New(t), "demo")
	s.create(`{replicas: 3, version: "16"}`)
	s.ready()
	primary := s.agents["prod-db-1"]
	primary.Answer(agentapi.PathSwitchover, http.StatusAccepted, "")

	s.wish("prod-db-2")
	s.until("the primary is asked", func() bool { return len(primary.Asked()) > 0 })
	assert.Equal(t, v1.SwitchoverInProgress, s.switchover().Phase)
	assert.NotContains(t, s.cluster().Annotations, naming.AnnotationSwitchover)
	assert.Equal(t, "True SwitchingOver", s.condition(v1.ConditionProgressing))
	s.passes()
	s.passes()
	assert.Equal(t, []string{agentapi.PathSwitchover + ` {"target":"prod-db-2"}`}, primary.Asked(), "it is asked once")

	s.hold("prod-db-2")
	s.until("it is complete", func() bool { return s.switchover().Phase == v1.SwitchoverCompleted })
	s.ready()
	assert.Equal(t, "prod-db-2", s.cluster().Status.CurrentPrimary)
	assert.Len(t, primary.Asked(), 1)
	assert.Empty(t, s.agents["prod-db-2"].Asked(), "nobody else is asked")
}

// TestSwitchoverRefused: what the agent, or the planner, refuses is told, and the wish goes all the same.
func TestSwitchoverRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t, memory.New(t), "demo")
	s.create(`{replicas: 2, version: "16"}`)
	s.ready()
	primary := s.agents["prod-db-1"]
	refused := func(target, reason, words string) {
		t.Helper()
		s.wish(target)
		s.until("it is refused", func() bool {
			return s.cluster().Annotations[naming.AnnotationSwitchover] == "" && s.switchover().Target == target && s.switchover().CompletedAt != nil
		})
		assert.Equal(t, v1.SwitchoverRefused, s.switchover().Phase)
		assert.Equal(t, reason, s.switchover().Reason)
		assert.Contains(t, s.switchover().Message, words)
		s.ready()
		assert.Equal(t, "prod-db-1", s.cluster().Status.CurrentPrimary)
	}
	refused("prod-db-9", v1.ReasonSwitchoverRefused, "there is no such instance")
	refused("prod-db-2", v1.ReasonAgentOlder, "the agent of prod-db-1 is older than this operator and cannot hand over when asked; it is renewed when its Pod restarts")
	primary.Answer(agentapi.PathSwitchover, http.StatusConflict, "prod-db-2 has not received everything")
	refused("best", v1.ReasonSwitchoverRefused, "prod-db-2 has not received everything")
	assert.Len(t, primary.Asked(), 1)
}

// TestForce: an instance is forced to take over once: the annotation goes when that one is primary.
func TestForce(t *testing.T) {
	t.Parallel()
	s := newStage(t, memory.New(t), "demo")
	s.create(`{replicas: 3, version: "16"}`)
	s.ready()
	s.change(func(c *v1.PostgresCluster) {
		c.Annotations = map[string]string{naming.AnnotationForceFailover: "prod-db-2"}
	})
	s.passes()
	assert.Equal(t, "prod-db-2", s.cluster().Annotations[naming.AnnotationForceFailover], "another is primary yet")

	s.hold("prod-db-2")
	s.until("it is over", func() bool { return s.cluster().Annotations[naming.AnnotationForceFailover] == "" })
	s.ready()
	assert.Equal(t, "prod-db-2", s.cluster().Status.CurrentPrimary)
}

// TestRestartServer: an agent is asked to restart its server for what waits for that, one instance at a time, and hands over before its own turn.
func TestRestartServer(t *testing.T) {
	t.Parallel()
	s := newStage(t, memory.New(t), "demo")
	s.create(`{replicas: 2, version: "16"}`)
	s.ready()
	pending := map[string]bool{"prod-db-2": true}
	s.says = func(status *agentapi.Status) {
		if pending[status.Instance] {
			status.PendingRestart = []string{"shared_buffers"}
		}
	}
	primary, standby := s.agents["prod-db-1"], s.agents["prod-db-2"]
	standby.Answer(agentapi.PathRestart, http.StatusAccepted, "")
	primary.Answer(agentapi.PathSwitchover, http.StatusAccepted, "")
	s.until("the standby is asked", func() bool { return len(standby.Asked()) > 0 })
	assert.Contains(t, standby.Asked()[0], agentapi.PathRestart)
	assert.Contains(t, standby.Asked()[0], "shared_buffers")
	pending["prod-db-1"] = true
	s.until("the primary waits for its turn", func() bool {
		return slices.Equal(s.cluster().Status.Instances[0].PendingRestart, []string{"shared_buffers"})
	})
	assert.Empty(t, primary.Asked())
	assert.Equal(t, "True UpdatingInstances", s.condition(v1.ConditionProgressing))

	pending["prod-db-2"] = false
	s.until("the primary is asked to hand over", func() bool { return len(primary.Asked()) > 0 })
	assert.Equal(t, agentapi.PathSwitchover+` {"target":"prod-db-2"}`, primary.Asked()[0])
}
