// Package peer asks the other members of the cluster what they have. It asks only while somebody needs the answer, that is,
// while nobody holds the lease.
package peer
