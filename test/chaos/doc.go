// Package chaos breaks things under a PostgresCluster that is written to, and checks what clients saw. `make chaos` does random
// faults from a SEED for ROUNDS, `make chaos-short` a fixed few, `make bench-gaps` measures how long writes pause.
//
// A round is: the cluster is healthy; the client (package client, in a Pod on node 4, which is never disturbed) starts to write;
// something is broken, and mended after a while; rows must be acknowledged again within the fault's bound; all instances must be
// healthy again, by themselves, within another; the client compares what was acknowledged with what is there, and all instances are
// compared with each other. What must hold:
//   - no acknowledged row is lost with synchronous replication; without it, only the end of a timeline, and it is counted,
//   - no row was begun on an older timeline after a newer one had acknowledged one, no timeline was written by two instances,
//   - nothing that was there at the end of an earlier round has vanished,
//   - all instances have the same rows in the end, and no reader saw others after that.
//
// It needs the local cluster (hack/cluster), since it kills its nodes and stops its API server, and root, since it signals
// processes in Pods. Whatever it did to the cluster is undone at the end, and at the start of the next run.
package chaos
