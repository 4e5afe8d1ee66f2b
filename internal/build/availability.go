package build

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// Defaults of spec.availability, those of the schema: an object that came through another version may lack them.
const (
	defaultLeaseDuration = 8 * time.Second
	defaultRenewDeadline = 5 * time.Second
	defaultRenewInterval = 2 * time.Second
	defaultNodeLostAfter = 5 * time.Minute
	// crashRestart is how long a primary may try to start its crashed server before a standby takes over.
	crashRestart = 3 * time.Second
)

var defaultMaximumLag = resource.MustParse("16Mi")

// seconds is the duration in whole seconds, or the default if there is none or it is none.
func seconds(d v1.Duration, otherwise time.Duration) int32 {
	return int32(duration(d, otherwise) / time.Second) //nolint:gosec // the schema bounds it
}

func duration(d v1.Duration, otherwise time.Duration) time.Duration {
	if parsed, err := time.ParseDuration(string(d)); err == nil && parsed >= time.Second && parsed < 10000*time.Hour {
		return parsed
	}
	return otherwise
}

// NodeLostAfter is how long a node may be out before a standby whose volume is bound to it is made anew elsewhere.
func NodeLostAfter(c *v1.PostgresCluster) time.Duration {
	return duration(c.Spec.Availability.NodeLostAfter, defaultNodeLostAfter)
}

// MaximumLag is how many bytes a standby may be behind and still take over.
func MaximumLag(c *v1.PostgresCluster) int64 {
	if lag := c.Spec.Availability.MaximumLag; lag != nil && lag.Sign() >= 0 {
		return lag.Value()
	}
	return defaultMaximumLag.Value()
}

// leaseOf are the Lease and its timings. Timings in a relation that the schema refuses, which came by another version, are not
// told to anybody: the defaults are.
func leaseOf(c *v1.PostgresCluster) agentapi.Lease {
	a := &c.Spec.Availability
	lease := agentapi.Lease{
		Name:            naming.PrimaryLease(c.Name),
		DurationSeconds: seconds(a.LeaseDuration, defaultLeaseDuration),
		DeadlineSeconds: seconds(a.RenewDeadline, defaultRenewDeadline),
		RenewSeconds:    seconds(a.RenewInterval, defaultRenewInterval),
	}
	if 2*lease.RenewSeconds > lease.DeadlineSeconds || lease.DeadlineSeconds+1 >= lease.DurationSeconds {
		lease.DurationSeconds, lease.DeadlineSeconds, lease.RenewSeconds =
			int32(defaultLeaseDuration/time.Second), int32(defaultRenewDeadline/time.Second), int32(defaultRenewInterval/time.Second)
	}
	return lease
}

// availability is how the cluster fails over.
func availability(c *v1.PostgresCluster, instances int) agentapi.Availability {
	a := &c.Spec.Availability
	return agentapi.Availability{
		MaximumLagBytes:     MaximumLag(c),
		CrashRestartSeconds: int32(crashRestart / time.Second),
		Failsafe:            a.Failsafe == nil || *a.Failsafe,
		Synchronous:         synchronous(a.Synchronous, instances),
	}
}

// synchronous never asks for more standbys than there can be: while a cluster is being scaled in its last standby confirms alone.
func synchronous(s v1.SynchronousSpec, instances int) agentapi.Synchronous {
	number := min(max(int(s.Number), 1), instances-1)
	if s.Mode != v1.SynchronousPreferred && s.Mode != v1.SynchronousRequired || number < 1 {
		return agentapi.Synchronous{Mode: agentapi.SyncNone}
	}
	return agentapi.Synchronous{Mode: agentapi.SyncMode(s.Mode), Number: number}
}

// fenced are the instances that must not run PostgreSQL, by the annotation: in order, each once.
func fenced(c *v1.PostgresCluster) []string {
	var names []string
	for _, name := range strings.Split(c.Annotations[naming.AnnotationFenced], ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
