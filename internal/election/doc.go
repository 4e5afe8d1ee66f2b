// Package election decides what one instance is to do, from what it knows: its own data, the primary Lease, the cluster's
// configuration and what the other members report. It is pure: the agent observes, calls Decide, and acts.
//
// # What is promised
//
//   - Only an instance that holds the Lease runs PostgreSQL read-write. Decide never says RunPrimary, Bootstrap or Campaign
//     while another instance is the Lease's recorded holder, nor while the Lease is not known.
//   - RunPrimary and Bootstrap are intentions: the agent first makes sure that the Lease is its own and renewed, and starts
//     PostgreSQL read-write only while it is. Renewal counts from before it was sent, on the local monotonic clock.
//   - A new PostgreSQL system is made only by the instance that the configuration names, only if neither the Lease nor the
//     configuration knows of a system, and never if any member is known to have data.
//   - What is not known never enables anything. The one exception is a new cluster: its other members cannot answer yet, and
//     the configuration, by naming an instance to bootstrap, says that none of them has data.
//
// # The rules, in order; the first that applies decides
//
//  1. lease-unknown: the Lease cannot be read. Standby data runs as a standby of whatever it followed last; anything else waits.
//  2. wrong-data: the data is of another system than the cluster's. Nothing is started (SystemMismatch).
//  3. holder-with-data: I am the recorded holder and have data. RunPrimary. But while the Lease names another Pod of mine that
//     did not say that it stopped, wait until the Lease has run out since its last change was seen: that Pod may be alive on a
//     node that was cut off.
//  4. holder-forgotten: nobody is the recorded holder, but I renewed the Lease a moment ago and have data: the Lease was deleted
//     and made anew. RunPrimary, which takes it back. Nobody else takes it meanwhile: that needs everybody's position (rules 10
//     to 13), and whoever writes is the furthest.
//  5. holder-bootstrap: I am the holder, have no data, and no system was ever made: Bootstrap (initdb was interrupted).
//  6. holder-data-lost: I am the holder and have no data otherwise: DataLost, never a new system.
//  7. follow-holder: another instance is the holder. With data RunStandby of it, else CloneFrom it.
//  8. bootstrap: nobody is the holder, I am empty and named to bootstrap, and no system is known: take the Lease and Bootstrap.
//  9. empty-waits: nobody is the holder and I am empty: wait for somebody to clone from.
//  10. members-silent: nobody is the holder, I have data, and some member has not answered: wait. After AnswerBound this is
//     reported as a problem, but it is never resolved by campaigning: the silent member may have the newest data.
//  11. less-advanced: another member is further (timeline, then the directory that was primary on it, then LSN, then the lower
//     name): wait for it to take the Lease.
//  12. writer-may-live: the Lease was seen to change within its duration: wait. If it was deleted and made anew, it has forgotten
//     which Pod may be writing, which may be one of mine that was cut off.
//  13. campaign: I am the furthest: Campaign, that is, take the Lease by compare-and-swap.
//
// # What comes with failover
//
// An expired Lease of another holder is for now taken by nobody (rule 7 goes on following). Lease.Expired is computed already,
// from the last change that was seen locally and the monotonic clock, since failover will campaign on it.
package election
