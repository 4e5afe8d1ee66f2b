package validate

import (
	"fmt"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

var (
	availabilityPath = field.NewPath("spec", "availability")
	numberPath       = availabilityPath.Child("synchronous", "number")
	deadlinePath     = availabilityPath.Child("renewDeadline")
	limitPath        = field.NewPath("spec", "resources", "limits", "memory")
)

// availability: commits wait for fewer standbys than there are instances, and the lease's timings are in the right relation. The
// schema of v1 says so too; an object can come by v1alpha1, whose schema knows nothing of it.
func availability(q question) Verdict {
	if q.before != nil && apiequality.Semantic.DeepEqual(q.before.Spec.Availability, q.after.Spec.Availability) &&
		ptr.Equal(q.before.Spec.Replicas, q.after.Spec.Replicas) {
		return Verdict{}
	}
	var verdict Verdict
	if message := tooManySynchronous(q.after); message != "" {
		verdict.Errors = append(verdict.Errors, field.Invalid(numberPath, q.after.Spec.Availability.Synchronous.Number, message))
	}
	if message := badTimings(q.after); message != "" {
		verdict.Errors = append(verdict.Errors, field.Invalid(deadlinePath, string(q.after.Spec.Availability.RenewDeadline), message))
	}
	return verdict
}

// tooManySynchronous says that there are not enough instances for the standbys that commits wait for; nothing if there are.
func tooManySynchronous(c *v1.PostgresCluster) string {
	s, replicas := c.Spec.Availability.Synchronous, ptr.Deref(c.Spec.Replicas, 1)
	if s.Mode != v1.SynchronousPreferred && s.Mode != v1.SynchronousRequired || max(s.Number, 1) < replicas {
		return ""
	}
	return fmt.Sprintf("must be less than spec.replicas (%d), since commits wait for standbys and the primary is none; lower it, raise spec.replicas, or set mode to none", replicas)
}

// badTimings says what is wrong with the lease's timings; nothing if they are right, or are the defaults.
func badTimings(c *v1.PostgresCluster) string {
	a := &c.Spec.Availability
	interval, err1 := time.ParseDuration(string(a.RenewInterval))
	deadline, err2 := time.ParseDuration(string(a.RenewDeadline))
	duration, err3 := time.ParseDuration(string(a.LeaseDuration))
	if err1 != nil || err2 != nil || err3 != nil || 2*interval <= deadline && deadline+time.Second < duration {
		return ""
	}
	return fmt.Sprintf("must be at least twice renewInterval (%s) and more than 1s shorter than leaseDuration (%s); the defaults 2s, 5s and 8s are in force", interval, duration)
}

// memory: what PostgreSQL reserves when it starts is less than the memory that it may use.
func memory(q question) Verdict {
	if q.before != nil && apiequality.Semantic.DeepEqual(q.before.Spec.PostgreSQL.Parameters, q.after.Spec.PostgreSQL.Parameters) &&
		apiequality.Semantic.DeepEqual(q.before.Spec.Resources, q.after.Spec.Resources) {
		return Verdict{}
	}
	message := tooLittleMemory(q.after)
	if message == "" {
		return Verdict{}
	}
	limit := q.after.Spec.Resources.Limits.Memory()
	return refuse(field.Invalid(limitPath, limit.String(), message))
}

// tooLittleMemory says that PostgreSQL cannot start within its memory limit; nothing if it can.
func tooLittleMemory(c *v1.PostgresCluster) string {
	if c.Spec.Resources == nil || c.Spec.Resources.Limits.Memory().IsZero() {
		return ""
	}
	limit := c.Spec.Resources.Limits.Memory().Value()
	user := map[string]string{}
	for _, name := range postgres.MemoryParameters {
		if value, set := c.Spec.PostgreSQL.Parameters[name]; set {
			user[name] = string(value)
		}
	}
	needed := postgres.SharedMemory(user, limit)
	if len(user) == 0 || needed < limit {
		return ""
	}
	return fmt.Sprintf("PostgreSQL would need about %dMi of shared memory with the shared_buffers, max_connections and max_locks_per_transaction of spec.postgresql.parameters, and could not start; lower them or raise the limit",
		needed/mebi.Value())
}

var mebi = resource.MustParse("1Mi")
