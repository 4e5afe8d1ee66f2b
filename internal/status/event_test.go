package status_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/status"
	"github.com/pgsteward/pgsteward/internal/testing/given"
)

// diary passes over a cluster again and again and notes the events.
type diary struct{ status v1.PostgresClusterStatus }

// pass returns the events of one pass as "Reason: message", warnings with "!".
func (d *diary) pass(b *given.ClusterBuilder, problems ...facts.Problem) []string {
	in := after(d.status, b, problems...)
	d.status = status.Compute(in)
	var said []string
	for _, e := range status.Events(in, d.status) {
		line := e.Reason + ": " + e.Message
		if e.Warning {
			line = "!" + line
		}
		said = append(said, line)
	}
	return said
}

// TestEventsOfALife: a cluster from its creation to its deletion; each event is said once.
func TestEventsOfALife(t *testing.T) {
	t.Parallel()
	d := &diary{}
	assert.Equal(t, []string{"CreatingInstances: Creating prod-db-1, prod-db-2, prod-db-3"}, d.pass(cluster()))

	starting := cluster().With(given.Member(1), given.Member(2), given.Member(3))
	assert.Empty(t, d.pass(starting))

	first := func() *given.ClusterBuilder {
		return cluster().HasSystem().With(given.Member(1).Primary().Ready(), given.Member(2).Empty(), given.Member(3).Empty())
	}
	assert.Equal(t, []string{"PrimaryChanged: prod-db-1 is primary", "InstanceReady: prod-db-1 is ready as primary"}, d.pass(first()))
	assert.Empty(t, d.pass(first()))

	assert.Equal(t, []string{
		"ClusterReady: All 3 instances are ready", "InstanceReady: prod-db-2 is ready as standby", "InstanceReady: prod-db-3 is ready as standby",
	}, d.pass(healthy()))
	assert.Empty(t, d.pass(healthy().At(given.Now.Add(time.Hour))))

	lost := func() *given.ClusterBuilder {
		return cluster().HasSystem().With(given.Member(1).NoPod(), given.Member(2).Standby().Ready(), given.Member(3).Standby().Ready()).HeldBy(1)
	}
	assert.Equal(t, []string{"!InstancesNotReady: prod-db-1 is not ready any more"}, d.pass(lost()))
	assert.Empty(t, d.pass(lost()))

	over := func() *given.ClusterBuilder {
		return cluster().HasSystem().With(given.Member(1).Standby().Ready(), given.Member(2).Primary().Ready(), given.Member(3).Standby().Ready())
	}
	assert.Equal(t, []string{
		"ClusterReady: All 3 instances are ready", "PrimaryChanged: prod-db-2 is primary after prod-db-1", "InstanceReady: prod-db-1 is ready as standby",
	}, d.pass(over()))

	const kept = "VolumeRetained: Kept, with their data, as spec.deletion.volumes says: PersistentVolumeClaim prod-db-3-data" +
		". A cluster or instance of the same name takes them over; delete them to be rid of the data"
	assert.Equal(t, []string{"RemovingInstance: Removing prod-db-3", kept}, d.pass(over().Replicas(2)))

	two := func() *given.ClusterBuilder {
		return cluster().Replicas(2).HasSystem().With(given.Member(1).Standby().Ready(), given.Member(2).Primary().Ready()).KeptVolume(3, given.System)
	}
	assert.Equal(t, []string{"ClusterReady: All 2 instances are ready"}, d.pass(two()))

	const keptAll = "VolumeRetained: Kept, with their data, as spec.deletion.volumes says: PersistentVolumeClaim prod-db-1-data, prod-db-2-data, prod-db-3-data" +
		". A cluster or instance of the same name takes them over; delete them to be rid of the data"
	assert.Equal(t, []string{"Deleting: Stopping the instances", keptAll}, d.pass(two().Deleting()))
	stopping := cluster().HasSystem().Deleting().Leftovers("secret/prod-db-app").Orphans("prod-db-1-0", "prod-db-2-0").
		KeptVolume(1, given.System).KeptVolume(2, given.System).KeptVolume(3, given.System)
	assert.Empty(t, d.pass(stopping))
	gone := cluster().HasSystem().Deleting().KeptVolume(1, given.System).KeptVolume(2, given.System).KeptVolume(3, given.System)
	assert.Empty(t, d.pass(gone))
}

// TestDegradedEvents: a problem is told when it comes and when it becomes another one, not when its words change.
func TestDegradedEvents(t *testing.T) {
	t.Parallel()
	d := &diary{}
	problem := func(reason, message string) facts.Problem { return facts.Problem{Reason: reason, Message: message} }
	d.pass(healthy())

	assert.Equal(t, []string{"!QuotaExceeded: used 3 of 3"}, d.pass(healthy(), problem(v1.ReasonQuotaExceeded, "used 3 of 3")))
	assert.Empty(t, d.pass(healthy(), problem(v1.ReasonQuotaExceeded, "used 4 of 3")))
	assert.Equal(t, []string{"!NameTaken: somebody's Service"}, d.pass(healthy(), problem(v1.ReasonNameTaken, "somebody's Service")))
	assert.Equal(t, []string{"ClusterReady: All 3 instances are ready"}, d.pass(healthy()))
	assert.Equal(t, []string{"!NameTaken: somebody's Service"}, d.pass(healthy(), problem(v1.ReasonNameTaken, "somebody's Service")))
}

// TestVolumeEvents: whoever's volumes stay is told so, exactly once, however the deletion begins.
func TestVolumeEvents(t *testing.T) {
	t.Parallel()
	const kept = "VolumeRetained: Kept, with their data, as spec.deletion.volumes says: PersistentVolumeClaim prod-db-1-data" +
		". A cluster or instance of the same name takes them over; delete them to be rid of the data"
	running := v1.PostgresClusterStatus{Phase: v1.PhaseRunning}
	one := func() *given.ClusterBuilder { return cluster().Replicas(1).HasSystem().Deleting() }
	for name, test := range map[string]struct {
		f    *given.ClusterBuilder
		want []string
	}{
		"instances exist":                   {one().With(given.Member(1)), []string{"Deleting: Stopping the instances", kept}},
		"instances were deleted by hand":    {one().KeptVolume(1, "").Orphans("prod-db-1-0"), []string{"Deleting: Waiting for the instances to stop: prod-db-1-0", kept}},
		"only other objects exist":          {one().KeptVolume(1, "").Leftovers("lease/prod-db-primary"), []string{"Deleting: Removing lease/prod-db-primary", kept}},
		"nothing else exists":               {one().KeptVolume(1, ""), []string{"Deleting: Everything is removed", kept}},
		"the policy keeps none":             {one().DeletesVolumes().With(given.Member(1)), []string{"Deleting: Stopping the instances"}},
		"there are none":                    {one().With(given.Member(1).NoVolume()), []string{"Deleting: Stopping the instances"}},
		"an instance goes with its volume":  {healthy().Replicas(2).DeletesVolumes(), []string{"RemovingInstance: Removing prod-db-3"}},
		"an instance without a volume goes": {cluster().Replicas(1).HasSystem().With(given.Member(1).Primary(), given.Member(2).Empty().NoVolume()), []string{"RemovingInstance: Removing prod-db-2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &diary{running}
			got := d.pass(test.f)
			for _, line := range test.want {
				assert.Contains(t, got, line)
			}
			volumes := 0
			for _, line := range append(got, d.pass(test.f)...) {
				if line == kept {
					volumes++
				}
			}
			assert.Equal(t, len(test.want)-1, volumes, "how often it is told that volumes stay")
		})
	}
}

// TestEventsOfASwitchover: that it began, and how it ended, each once.
func TestEventsOfASwitchover(t *testing.T) {
	t.Parallel()
	d := &diary{}
	d.pass(healthy())
	assert.Equal(t, []string{"SwitchingOver: Switching over from prod-db-1 to prod-db-2"}, d.pass(healthy().Wish("prod-db-2")))
	going := func(b *given.ClusterBuilder) *given.ClusterBuilder { return b.Switchover(*d.status.Switchover) }
	assert.Empty(t, d.pass(going(healthy())))
	over := func() *given.ClusterBuilder {
		return cluster().HasSystem().With(given.Member(1).Standby().Ready(), given.Member(2).Primary().Ready(), given.Member(3).Standby().Ready())
	}
	said := d.pass(going(over()))
	assert.Contains(t, said, "SwitchedOver: prod-db-2 is primary after prod-db-1")
	assert.Equal(t, v1.SwitchoverCompleted, d.status.Switchover.Phase)
	assert.Empty(t, d.pass(going(over())))

	assert.Contains(t, d.pass(going(over()).Wish("prod-db-7")), "!SwitchoverRefused: No switchover from prod-db-2 to prod-db-7: there is no such instance")
	assert.Equal(t, v1.SwitchoverRefused, d.status.Switchover.Phase)
}

// TestLongEvents: what failed in many words is told, cut to what the API server takes.
func TestLongEvents(t *testing.T) {
	t.Parallel()
	s := v1.PostgresClusterStatus{Upgrade: &v1.UpgradeStatus{Phase: v1.UpgradeRevert, LastFailure: strings.Repeat("wörd ", 400)}}
	s.Conditions = []metav1.Condition{{Type: v1.ConditionReady}, {Type: v1.ConditionProgressing}, {Type: v1.ConditionDegraded}}
	events := status.Events(status.Input{}, s)
	require.NotEmpty(t, events)
	for _, event := range events {
		assert.LessOrEqual(t, len(event.Message), 1024)
		assert.True(t, utf8.ValidString(event.Message))
	}
	assert.True(t, strings.HasSuffix(events[0].Message, " …"), events[0].Message)
}
