// Package role puts the role label on the cluster's Pods when an instance takes a role, so that the Services follow the lease
// without the operator.
package role
