package plan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/plan"
	"github.com/pgsteward/pgsteward/internal/testing/given"
)

func healthyThree() *given.ClusterBuilder {
	return cluster().HasSystem().With(given.Member(1).Primary().Ready(), given.Member(2).Standby().Ready(), given.Member(3).Standby().Ready())
}

func TestDecidePause(t *testing.T) {
	t.Parallel()
	paused := "Nothing is changed while the annotation " + naming.AnnotationPaused + " is true"
	check(t, []sentence{
		{
			"a paused cluster is left alone, whatever the spec says", healthyThree().Replicas(5).Paused(),
			plan.Decision{Rule: "pause", Members: numbered(1, 2, 3), Frozen: true, Reason: v1.ReasonPaused, Message: paused},
		},
		{
			"even if it is to be suspended", healthyThree().Paused().Suspended(),
			plan.Decision{Rule: "pause", Members: numbered(1, 2, 3), Frozen: true, Reason: v1.ReasonPaused, Message: paused},
		},
		{
			"but a deletion goes on: it was asked for later", healthyThree().Paused().Deleting(),
			plan.Decision{Rule: "delete", Action: plan.RemoveInstances{}, Reason: v1.ReasonDeleting, Message: "Stopping the instances", Recheck: recheck},
		},
	})
}

func TestDecideSuspend(t *testing.T) {
	t.Parallel()
	check(t, []sentence{
		{
			"all instances are stopped", healthyThree().Suspended(),
			plan.Decision{
				Rule: "suspend", Members: numbered(1, 2, 3), Stopped: true, Reason: v1.ReasonSuspended,
				Message: "Stopping prod-db-1, prod-db-2, prod-db-3, as spec.suspend says", Recheck: recheck,
			},
		},
		{
			"and stay so, without another look",
			cluster().HasSystem().HeldBy(1).Suspended().With(given.Member(1).NoPod(), given.Member(2).NoPod(), given.Member(3).NoPod()),
			plan.Decision{
				Rule: "suspend", Members: numbered(1, 2, 3), Stopped: true, Reason: v1.ReasonSuspended,
				Message: "All instances are stopped, as spec.suspend says",
			},
		},
		{
			"nothing is removed meanwhile",
			cluster().HasSystem().HeldBy(1).Replicas(1).Suspended().With(given.Member(1).NoPod(), given.Member(2).NoPod()),
			plan.Decision{
				Rule: "suspend", Members: numbered(1, 2), Stopped: true, Reason: v1.ReasonSuspended,
				Message: "All instances are stopped, as spec.suspend says",
			},
		},
	})
}

func TestDecideForeignVolumes(t *testing.T) {
	t.Parallel()
	t.Run("data of another major is refused, and its number is not given to another", func(t *testing.T) {
		t.Parallel()
		d := plan.Decide(cluster().KeptVolume(1, given.System).VolumeVersion(1, "17").KeptVolume(2, given.System).VolumeVersion(2, "16").Facts())
		require.Equal(t, "create", d.Rule)
		assert.Equal(t, numbered(2, 3), d.Members)
		assert.Empty(t, d.Bootstrap, "there is data")
		require.Len(t, d.Refused, 1)
		assert.Equal(t, v1.ReasonDataVersionMismatch, d.Refused[0].Reason)
		assert.Contains(t, d.Refused[0].Why, `PersistentVolumeClaim prod-db-1-data has data of PostgreSQL 17, while the cluster's is 16`)
	})
	t.Run("data of another system is refused", func(t *testing.T) {
		t.Parallel()
		f := cluster().Replicas(2).HasSystem().With(given.Member(1).Primary().Ready()).KeptVolume(2, "42").Facts()
		d := plan.Decide(f)
		require.Equal(t, "settle", d.Rule)
		assert.Equal(t, numbered(1), d.Members)
		assert.Contains(t, d.Message, "Not yet creating prod-db-2: PersistentVolumeClaim prod-db-2-data has data of another PostgreSQL system (42")
	})
	t.Run("a volume that is not needed hinders nobody", func(t *testing.T) {
		t.Parallel()
		d := plan.Decide(healthyThree().KeptVolume(4, "42").Facts())
		assert.Equal(t, "done", d.Rule)
		assert.Empty(t, d.Refused)
	})
}

func TestDecideConfiguration(t *testing.T) {
	t.Parallel()
	d := plan.Decide(healthyThree().Generation(2).Facts())
	assert.Equal(t, "settle", d.Rule)
	assert.Equal(t, v1.ReasonConfiguringInstances, d.Reason, "Ready must not be said of a configuration that is not in force")

	refusing := cluster().Generation(2).Replicas(1).HasSystem().With(given.Member(1).Primary().Ready().Says(v1.ReasonConfigurationRejected, "work_mem"))
	assert.Equal(t, "done", plan.Decide(refusing.Facts()).Rule, "an instance that refuses it goes on with the one before")
}

func TestDecideStuckDeletion(t *testing.T) {
	t.Parallel()
	stuck := cluster().HasSystem().Deleting().Since(time.Hour).Orphans("prod-db-2-0")
	d := plan.Decide(stuck.Facts())
	assert.Equal(t, v1.ReasonDeletionBlocked, d.Reason)
	assert.Contains(t, d.Message, "prod-db-2-0")
	assert.Contains(t, d.Message, naming.AnnotationForceDelete+"=true", "it is said how to force it")
	assert.Equal(t, plan.None{}, d.Action)

	assert.Equal(t, plan.Release{}, plan.Decide(stuck.Forced().Facts()).Action)
	assert.NotEqual(t, plan.Release{}, plan.Decide(healthyThree().Forced().Facts()).Action, "forcing is for deletion only")
}
