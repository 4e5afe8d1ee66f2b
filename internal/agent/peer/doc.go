// Package peer asks the other members of the cluster what they have. It asks only while somebody needs the answer: while nobody holds
// the lease, it is late or has run out, it is being handed over, or the primary's PostgreSQL is down.
package peer
