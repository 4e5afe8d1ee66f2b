// Package e2e tests pgsteward from end to end: a real Kubernetes, the deployed operator, real PostgreSQL. `make e2e` prepares all
// that and runs it; FOCUS="Basic|Drain" chooses groups.
//
// A group is one Test function. It makes a namespace of its own, in which the "restricted" Pod Security Standard is enforced, and
// removes it when it is done; what an earlier run left behind is removed at the start. Every wait has a bound. A group that fails
// prints what a person would look at: the cluster's status, events, Pods and logs. E2E_KEEP=1 keeps the namespaces of failed groups.
//
// Groups that disturb the whole Kubernetes cluster (the operator restarted, a node drained) run alone, first; the others in parallel,
// four at a time (E2E_PARALLEL): most of the time they wait. Nothing may be asserted of how long something takes: the bounds are those
// after which something is certainly wrong, not what is expected. How long things take is logged.
package e2e
