package facts_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/testing/given"
)

func cluster() *given.ClusterBuilder { return given.Cluster("prod-db") }

// one is the only instance of a cluster.
func one(m *given.MemberBuilder) facts.Instance { return cluster().With(m).Facts().Instances[0] }

func TestKnown(t *testing.T) {
	t.Parallel()
	var unknown facts.Known[int]
	_, known := unknown.Get()
	assert.False(t, known, "the zero value is unknown")
	value, known := facts.Know(0).Get()
	assert.True(t, known, "a zero can be known")
	assert.Zero(t, value)
}

func TestReady(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		m    *given.MemberBuilder
		want bool
	}{
		"both say so":                     {given.Member(1).Primary().Ready(), true},
		"the kubelet, and nothing else":   {given.Member(1).Ready().Unheard(time.Hour), true},
		"neither":                         {given.Member(1).Primary(), false},
		"its Pod is going":                {given.Member(1).Primary().Ready().PodDeleting(), false},
		"it has no Pod":                   {given.Member(1).NoPod(), false},
		"its StatefulSet, but not it, is": {given.Member(1).Primary().Ready().Deleting(), true},
	} {
		assert.Equal(t, test.want, one(test.m).Ready(), name)
	}
	i := one(given.Member(1).Primary().Ready())
	report, _ := i.Report.Get()
	report.Ready = false
	i.Report = facts.Know(report)
	assert.False(t, i.Ready(), "the agent knows better than the kubelet's last probe")
}

func TestProblem(t *testing.T) {
	t.Parallel()
	assert.Nil(t, one(given.Member(1).Primary()).Problem())
	assert.Nil(t, one(given.Member(1).Unheard(time.Hour)).Problem(), "silence is no problem here")
	assert.Equal(t, "refused", one(given.Member(1).Refused(v1.ReasonPodRefused, "refused")).Problem().Message)
	assert.Equal(t, "pull", one(given.Member(1).Says("A", "agent").PodProblem(v1.ReasonImagePullFailed, "pull")).Problem().Message, "Kubernetes first")
	assert.Equal(t, &facts.Problem{Reason: "A", Message: "prod-db-1: agent"}, one(given.Member(1).Says("A", "agent")).Problem())
}

func TestHasData(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		f    *given.ClusterBuilder
		want bool
	}{
		"nothing is known":             {cluster().With(given.Member(1)), false},
		"known to be empty":            {cluster().With(given.Member(1).Empty()), false},
		"the system is known":          {cluster().HasSystem(), true},
		"an instance says so":          {cluster().With(given.Member(1).Empty(), given.Member(2).Standby()), true},
		"a volume says so":             {cluster().KeptVolume(7, given.System), true},
		"a volume, but not whose data": {cluster().KeptVolume(7, ""), false},
	} {
		f := test.f.Facts()
		assert.Equal(t, test.want, f.HasData(), name)
	}
}

func TestPrimary(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		f    *given.ClusterBuilder
		want bool
	}{
		"it holds the lease and says so":   {cluster().With(given.Member(1).Primary()), true},
		"it holds the lease, unheard":      {cluster().With(given.Member(1).Unheard(time.Second).Holds()), false},
		"it holds the lease, as a standby": {cluster().With(given.Member(1).Standby().Holds()), false},
		"it says so, without the lease":    {cluster().HeldBy(2).With(given.Member(1).SaysPrimary(), given.Member(2).Standby()), false},
		"the holder is gone":               {cluster().HeldBy(2).With(given.Member(1).SaysPrimary()), false},
		"nobody":                           {cluster().With(given.Member(1).Standby()), false},
	} {
		f := test.f.Facts()
		_, known := f.Primary()
		assert.Equal(t, test.want, known, name)
	}
}

func TestServes(t *testing.T) {
	t.Parallel()
	whole := func() *given.ClusterBuilder {
		return cluster().Replicas(2).With(given.Member(1).Primary().Ready(), given.Member(2).Standby().Ready())
	}
	for name, test := range map[string]struct {
		f    *given.ClusterBuilder
		want bool
	}{
		"all":                    {whole(), true},
		"one too few":            {whole().Replicas(3), false},
		"one too many":           {whole().Replicas(1), false},
		"a standby is not ready": {cluster().Replicas(2).With(given.Member(1).Primary().Ready(), given.Member(2).Standby()), false},
		"the primary is not":     {cluster().Replicas(2).With(given.Member(1).Primary(), given.Member(2).Standby().Ready()), false},
		"nobody is primary":      {cluster().Replicas(1).With(given.Member(1).Standby().Ready()), false},
		"one is going":           {cluster().Replicas(2).With(given.Member(1).Primary().Ready(), given.Member(2).Standby().Ready().Deleting()), false},
	} {
		f := test.f.Facts()
		assert.Equal(t, test.want, f.Serves(), name)
	}
}

// TestConflict: an instance is not started on somebody else's data.
func TestConflict(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		f    *given.ClusterBuilder
		want string // reason
	}{
		"ours":                   {cluster().HasSystem().KeptVolume(1, given.System).VolumeVersion(1, "16"), ""},
		"nobody knows whose":     {cluster().HasSystem().KeptVolume(1, ""), ""},
		"another major":          {cluster().KeptVolume(1, given.System).VolumeVersion(1, "15"), v1.ReasonDataVersionMismatch},
		"another system":         {cluster().HasSystem().KeptVolume(1, "42"), v1.ReasonSystemMismatch},
		"our system is unknown":  {cluster().KeptVolume(1, "42"), ""},
		"its instance exists":    {cluster().HasSystem().KeptVolume(1, "42").With(given.Member(1).NoVolume()), ""},
		"another one has a name": {cluster().HasSystem().KeptVolume(1, "42").With(given.Member(2).NoVolume()), v1.ReasonSystemMismatch},
	} {
		f := test.f.Facts()
		got := f.Conflict(f.Volumes[0])
		if test.want == "" {
			assert.Nil(t, got, name)
			continue
		}
		if assert.NotNil(t, got, name) {
			assert.Equal(t, test.want, got.Reason, name)
			assert.Contains(t, got.Message, "prod-db-1-data")
			assert.Contains(t, got.Message, "delete the claim, or give the cluster another name")
		}
	}
}

func TestSeesOldFiles(t *testing.T) {
	t.Parallel()
	sees := func(mounted, asked string) bool {
		return one(given.Member(1).Primary().Labelled("primary", asked).Report(func(s *agentapi.Status) { s.FilesHash = mounted })).SeesOldFiles()
	}
	assert.True(t, sees("old", "new"))
	assert.False(t, sees("new", "new"))
	assert.False(t, sees("", "new"), "an older agent does not say")
	assert.False(t, sees("old", ""), "nothing was asked for")
	assert.False(t, one(given.Member(1).Unheard(time.Hour).Labelled("primary", "new")).SeesOldFiles())
}
