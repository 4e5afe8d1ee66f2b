// Package election decides what one instance is to do, from what it knows: its own data, the primary Lease, the cluster's
// configuration and what the other members report. It is pure: the agent observes, calls Decide, and acts.
//
// # What is promised
//
//   - Only an instance that holds the Lease runs PostgreSQL read-write. Decide never says RunPrimary, Bootstrap or Campaign
//     while another instance is the Lease's recorded holder, nor while the Lease is not known; but for Campaign on a Lease that
//     has run out.
//   - RunPrimary and Bootstrap are intentions: the agent first makes sure that the Lease is its own and renewed, and starts
//     PostgreSQL read-write only while it is. Renewal counts from before it was sent, on the local monotonic clock.
//   - A new PostgreSQL system is made only by the instance that the configuration names, only if neither the Lease nor the
//     configuration knows of a system, and never if any member is known to have data.
//   - A timeline is given once: Campaign and RunPrimary name the one to promote to, which is written to the Lease first.
//   - What is not known never enables anything. The one exception is a new cluster: its other members cannot answer yet, and
//     the configuration, by naming an instance to bootstrap, says that none of them has data.
//
// # The rules, in order; the first that applies decides
//
//  1. fenced: this instance is fenced by hand. Stop; a lease that is held is kept.
//  2. lease-unknown: the Lease cannot be read. Standby data runs as a standby of whatever it followed last; anything else waits.
//  3. wrong-data: the data is of another system than the cluster's. Nothing is started (SystemMismatch).
//  4. other-pod: I am the recorded holder, but the Lease names another Pod of mine that did not say that it stopped. It may be alive
//     on a node that was cut off: wait until the Lease has run out since its last change was seen, and one other member of it has
//     promised to this Pod, so that the other does not go on by promises.
//  5. hand-over: I am the recorded holder, and the lease is to be handed over. With a target that streams and lags little: Stop; then
//     HandOver to one that says, after the stop, that it has received the last record. Without, a switchover is refused, or undone
//     after HandOverBound; a Pod that ends Releases.
//  6. holder-failing: I am the recorded holder, and my PostgreSQL did not come back within the bounds of the configuration. HandOver
//     to whoever could campaign if the lease had run out when it went down, once nothing of PostgreSQL runs.
//  7. holder-with-data: I am the recorded holder and have data. RunPrimary.
//  8. holder-forgotten: nobody is the recorded holder, but I renewed the Lease a moment ago and have data: the Lease was deleted
//     and made anew. RunPrimary, which takes it back. Nobody else takes it meanwhile: that needs everybody's position and promise
//     (rules 15 to 18), and whoever writes is the furthest.
//  9. holder-bootstrap: I am the holder, have no data, and no system was ever made: Bootstrap (initdb was interrupted).
//  10. holder-data-lost: I am the holder and have no data otherwise: HandOver as in rule 6, else DataLost; never a new system.
//  11. failover: another instance is the holder, its lease has run out, and all of "candidacy" holds: Campaign.
//  12. follow-holder: another instance is the holder. With data RunStandby of it, else CloneFrom it.
//  13. bootstrap: nobody is the holder, I am empty and named to bootstrap, and no system is known: take the Lease and Bootstrap.
//  14. empty-waits: nobody is the holder and I am empty: wait for somebody to clone from.
//  15. members-silent: nobody is the holder, I have data, and some member has not answered: wait. After AnswerBound this is
//     reported as a problem, but it is never resolved by campaigning: the silent member may have the newest data.
//  16. less-advanced: another member is further (timeline, then the directory that was primary on it, then LSN, then the lower
//     name): wait for it to take the Lease.
//  17. writer-may-live: the Lease was seen to change within its duration, or a member has not promised to this Pod: wait. If it was
//     deleted and made anew, it has forgotten which Pod may be writing, which may be one of mine that was cut off.
//  18. campaign: I am the furthest: Campaign, that is, take the Lease by compare-and-swap.
package election
