// Package plan decides what is to be done for a PostgresCluster: facts in, one Decision out. It is pure, total and
// deterministic, and changes nothing by itself.
//
// A Decision has the Members that shall exist (objects are built and applied for them in every pass) and at most one Action
// that removes or restarts something. The rules are tried in this order, and the first that applies decides:
//
//  1. delete: the cluster is being deleted: after a last backup, if one is wanted, instances go first, then everything else, last the finalizer.
//  2. pause: an annotation says that the cluster is to be left alone: nothing is written but the status.
//  3. access: the cluster's Secrets cannot be read yet: only what gives the right to is written.
//  4. suspend: the spec says that no instance is to run: all are stopped, and keep their volumes.
//  5. switchover: a user wishes another primary: the present one is asked to hand over, or the wish is refused, and why is told. Nothing
//     else is done while a switchover is under way.
//  6. replace-volume: a volume that was never bound and differs from the spec is made anew: it cannot be changed, and has no data.
//  7. restart-broken: a Pod that does not work and was made from an older specification is made anew.
//  8. restart-revoked: a Pod whose token the API server rejects is made anew: those that do not serve at once, standbys one at a time.
//  9. node-lost: a standby whose node was deleted, or has its volume and is out for long, is made anew. Never the primary.
//  10. recovery: a recovery in place is under way, or begins: its next step is waited for. Everything else waits.
//  11. upgrade: a major upgrade is under way: its next step is taken, see internal/upgrade. Scaling and rolling wait.
//  12. create: instances are missing. A volume with somebody else's data is refused, and its number stays free.
//  13. scale-in: there are more instances than wanted: the standby with the highest number goes. Never the primary, and only
//     while the primary is known and serves, or if the standby is known to be empty.
//  14. settle: something is not ready yet, or has not put the newest configuration in force: wait for it.
//  15. upgrade-waits: a major upgrade is wanted and has not begun: it waits for the preflight, or for somebody.
//  16. roll: instances differ from the spec, or parameters wait for a restart: the standbys are restarted one at a time, each only when
//     all others serve and have caught up; then the primary hands over to one of them, and is the last. What makes an instance fail
//     so stops at the first.
//  17. done: nothing is left to do.
//
// What is unknown never allows an action that removes something.
package plan
