// Package agent is the process that is PID 1 of an instance's container: it makes the instance's data, runs PostgreSQL, and
// sees to it that PostgreSQL writes only while the instance holds the primary Lease.
//
// One loop observes, decides (package election, pure) and acts. A round never waits long: what takes time (initdb, a clone,
// making roles) runs as a task beside the loop, which looks at it in each round. Two things do not depend on the loop at all,
// so that nothing can delay them: renewing the Lease (lease.Keeper) and stopping PostgreSQL when that fails (lease.Guard).
//
// A round comes every second, and at once when something happened: the Lease changed hands or ran out, PostgreSQL or a task ended, a
// member answered, somebody asked for something. In a hand-over and a promotion it comes every 20 ms. At rest no member is asked
// anything: only when the Lease is late, has run out, or is to be handed over (peers.go, handover.go).
//
// Sub-packages: supervise (processes), datadir (volume), conf (PostgreSQL's configuration), lease, sql, logs, peer (other
// members), role (Pod labels), serve (probes, metrics, status).
package agent
