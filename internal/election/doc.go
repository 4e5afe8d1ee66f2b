// Package election decides what one instance is to do, from what it knows: its own data and server, the primary Lease, the
// cluster's configuration and what the other members report. It is pure: the agent observes, calls Decide, and acts. This comment
// is the protocol.
//
// # What is promised
//
//   - At any instant of true time at most one Pod may write.
//   - In a synchronous mode (preferred or required) every acknowledged commit is on every later primary, unless somebody forces an
//     instance. In asynchronous replication a failover loses at most what had not reached the instance that takes over, and that
//     is at most Policy.MaximumLag behind what the last primary wrote to the Lease, which it does at every renewal.
//   - A new PostgreSQL system is made only by the instance that the configuration names, only if neither the Lease nor the
//     configuration knows of a system, and never if any member is known to have data.
//   - What is not known never enables anything. The one exception is a new cluster: its other members cannot answer yet, and
//     the configuration, by naming an instance to bootstrap, says that none of them has data.
//
// # What the agent does around it
//
// These are assumptions of the argument below; the simulation models them, and fails without any of them.
//
//   - The Lease is written only by compare-and-swap on the version that a decision was made from. After a conflict it is decided
//     anew, from what the Lease says then.
//   - A renewal counts from before it was sent, and only if its answer came. Expiry counts from when the last change was SEEN,
//     also after a restart of the agent. Both on a clock that never stops, not even while the machine sleeps; so are the ages of
//     answers and promises measured.
//   - A holder counts by the duration in the last update that was answered, or a shorter one (Timings.Counting); others by that in
//     the Lease that they saw, or a longer one. The watchdog is told a shorter one before it is written.
//   - PostgreSQL is started read-write or promoted only while the lease is held and fresh (before StopFast). It counts as writing
//     from before it is told to until its last process has ended. A guard stops it as MustStop says; a watchdog, which is
//     another process, kills it at StopKill also while the agent stands still.
//   - From when an update that hands the lease over is sent on, answered or not, the agent holds nothing; it may write again only
//     after it has renewed the Lease as its recorded holder. A holder that cannot write the Lease may have the target take it, at the
//     one version of it in which it is the holder (POST /v1/handover).
//   - Lease.End is written by a hand-over only (Decision.Clean), and void from the next renewal on, whoever it is by.
//   - Every update by the holder names all members that its configuration knows; it goes on by promises (Held.ByPromises) only if
//     every name in the last update that was answered, and in any sent since that was not, has promised.
//   - The timeline of a decision is in the Lease before PostgreSQL is promoted to it. The synchronous set is changed in the steps
//     of NextSync, and InitialSync is in force before the first write of a new primary.
//   - A member answers for itself: Exact only if its standby has read all of its WAL.
//
// # Why no two write
//
// Let D be the duration. A holder writes by a right that counts from a moment s: when it sent a renewal that was carried out later,
// or when it sent the first question of a round of promises. It has ended by s + 15/16 D on its own clock (StopKill, plus the
// time a killed process takes to end).
//
//  1. Another instance writes only after it has become the recorded holder. It can do so by a hand-over, which the holder sends
//     only after its PostgreSQL has ended, or by campaigning on an expired lease (rule 11) or one without a holder (rule 18).
//  2. A campaign is compare-and-swap: if the holder's renewal is carried out first, the campaign fails, and the other way round. So
//     only the last renewal counts. Whoever campaigns has seen it, at or after s, and has waited D since, by its own clock. With
//     both clocks wrong by DriftBound, 15/16 D on the slowest and D on the fastest clock are at least 4 % of D apart: 0.3 s of
//     the default 8 s, in which a killed process ends.
//  3. A holder that goes on by promises has been promised by every member that the Lease, whatever version of it is the last, can
//     name; and only members that it names campaign. A member that promised at r does not campaign before r + D, and r is not
//     before the question was sent. Rounds follow each other without a gap, since a round counts only if it is complete before
//     the last right has run out; so a campaign that was sent before a promise was given had been sent after D since the promise
//     before, or since the last renewal was seen, that is, after the holder had stopped. A member that was restarted has
//     forgotten what it promised, but waits D from when it first reads the Lease.
//  4. Another Pod of the same instance is not asked by the first, being itself. It waits until the lease has expired, and for the
//     promise of one other member (rule 4): a member promises to one Pod at a time, so the first cannot have all any more. The
//     same holds for an instance that takes a Lease that was made anew (rule 17).
//  5. A holder that takes back a Lease that was deleted (rule 8) still has its right; whoever else would take it needs the promise
//     and the position of all, rule 17.
//
// # Why no synchronous commit is lost
//
// The Lease publishes a set "ANY k (names)" of n names: of every commit that was acknowledged so far, at least k of them have it.
// (Any k would do for a primary that is none of them; one that is counts itself.) NextSync keeps that true at every moment: what
// PostgreSQL uses is replaced only by what the published set covers, and the published set by a narrower one only when that is in
// use and everything before it is confirmed. So of any n-k+1 of the set one has every commit; and a candidate that is not behind
// any of them has them all: data on one timeline is the same up to its end, and a primary of a later timeline had everything when it
// began it, by the same argument. The answers must have been asked for after the lease was seen expired and the candidate's own
// promise had ended, when nothing is acknowledged any more; or, if the holder itself hands over, after the last process of its server
// had ended (Server.Ended), however short that server lived. In preferred mode, with no standby, the set is empty: then only the primary's own data is complete, and
// nobody takes over from it.
//
// A primary that was shut down properly and hands over says where it ended (Lease.End). Until somebody renews the Lease nothing is
// acknowledged beyond: whoever has reached that has every commit, whatever the set says. The target begins by publishing the set by
// which it will write (firstSync), in the update that takes the Lease, if so many of that set have everything up to the end: of those
// in both sets all but those that the published one does without, and the last primary itself, which is no member of its own set.
//
// Timelines are given once: the Lease has the highest that was ever given, and who is to be promoted writes a higher one first. If two
// could make the same, their data could not be told apart later.
//
// # The rules, in order; the first that applies decides
//
//  1. fenced: this instance is fenced by hand. Stop; a lease that is held is kept.
//  2. lease-unknown: the Lease cannot be read. Standby data runs as a standby of who says to be the primary, else of whatever it
//     followed last; anything else waits.
//  3. wrong-data: the data is of another system than the cluster's. Nothing is started (SystemMismatch).
//  4. other-pod: I am the recorded holder, but the Lease names another Pod of mine that did not say that it stopped. It may be alive
//     on a node that was cut off: wait until the Lease has run out since its last change was seen, and one other member of it has
//     promised to this Pod, so that the other does not go on by promises. Without data it starts nothing, and asks for no promise: that
//     would keep those from campaigning who have data.
//  5. hand-over: I am the recorded holder, and the lease is to be handed over. With a target that streams and lags little: Stop; then
//     HandOver to one that says, after the stop, that it has received the last record. Without, a switchover is refused, or undone
//     after SwitchoverBound; a Pod that ends Releases after HandOverBound. A Pod that has not taken the Lease yet, since it was handed over
//     to its instance or held by another Pod of it, cannot give it away: it takes it first (rule 7), or Releases if it ends.
//  6. holder-failing: I am the recorded holder, with this Pod, and my PostgreSQL did not come back within the bounds of the configuration. If by the
//     answers since it went down somebody could campaign, Stop it; and when nothing of it runs any more, HandOver to whoever could
//     campaign by answers since then, for which it stays stopped for AnswerWait at most.
//  7. holder-with-data: I am the recorded holder and have data. RunPrimary.
//  8. holder-forgotten: nobody is the recorded holder, but I renewed the Lease a moment ago and have data: the Lease was deleted
//     and made anew. RunPrimary, which takes it back with what it had written there; a timeline to promote to comes from the Lease
//     as always. Nobody else takes it meanwhile: that needs everybody's position and promise (rules 15 to 18), and whoever writes is
//     the furthest.
//  9. holder-bootstrap: I am the holder, have no data, and no system was ever made: Bootstrap (initdb was interrupted).
//  10. holder-data-lost: I am the holder and have no data otherwise: HandOver as in rule 6 if it was this Pod that held the Lease,
//     else DataLost; never a new system.
//  11. failover: another instance is the holder, its lease has run out, and all of "candidacy" holds: Campaign.
//  12. follow-holder: another instance is the holder. With data RunStandby of it, else CloneFrom it.
//  13. bootstrap: nobody is the holder, I am empty and named to bootstrap, and no system is known: take the Lease and Bootstrap.
//  14. empty-waits: nobody is the holder and I am empty: wait for somebody to clone from.
//  15. members-silent: nobody is the holder, I have data, and some member has not answered, or, if the furthest was
//     a standby, some standby does not run and may have more than it shows: wait, as a standby that runs. After AnswerBound this is
//     reported as a problem, but it is never resolved by campaigning: the silent member may have the newest data. Not for an
//     instance that somebody forces.
//  16. less-advanced: I am not forced, and another member is further (timeline, then the directory that was primary on it, then LSN, then the lower
//     name): wait for it to take the Lease.
//  17. writer-may-live: the Lease was seen to change within its duration, or a member has not promised to this Pod: wait. If it was
//     deleted and made anew, it has forgotten which Pod may be writing, which may be one of mine that was cut off. One that is forced
//     needs no promise of a member that is silent, but must itself have promised nothing that still counts: whoever writes knows
//     of it, since it has data, and cannot go on without it.
//  18. campaign: I am the furthest: Campaign, that is, take the Lease by compare-and-swap. One that is forced leaves out some
//     timelines, which a member that is gone may have been given.
//
// # Candidacy
//
// An instance campaigns on an expired lease of another (rule 11) if all of this holds. What is marked (f) is left out for an instance
// that somebody forces.
//
//   - expired: the lease has run out, by this instance's clock, since its last change was seen.
//   - member: the Lease names it as a member.
//   - promised: no promise that it gave counts any more.
//   - unfenced (f): the holder is not fenced by hand: a person has stopped the writes.
//   - able: its PostgreSQL works, as far as it knows.
//   - answers (f): every member has answered since, or was silent for AnswerWait. "Since" is since the lease ran out, or since the
//     last promise that this instance gave ended, if that was later: until then its holder may have written.
//   - furthest (f): no member that could take over is further. After Patience it does not wait for that one any more.
//   - quorum (f): it has reached Lease.End; or of the published synchronous set so many answered, and are not ahead, that it has
//     every acknowledged commit.
//   - lag (f): in asynchronous replication, it lacks no more than Policy.MaximumLag of what the last primary published.
//
// # What is there twice
//
// Leaving out a rule or condition makes a seed or a course of the tests fail; mutations_test.go lists which. For these there is none,
// and they stay:
//
//   - failsafe/in-time (Held.ByPromises: the right has not run out): a promise that is given later counts from then and keeps its
//     giver from campaigning as well; and the agent of a server that is being stopped does not ask. But promises that are complete
//     only when others may have campaigned already should never start anything.
//   - holder-failing/mine (rule 6 is for this Pod's lease): a server counts as down only from when this Pod held the Lease. But a Lease
//     that cannot be given away must not keep its Pod from taking it.
//   - guard/decision (the agent kills a server that writes although the decision is another): all decisions of one that holds agree
//     with what the guard does by the clock. It is for what no rule expects: somebody who promotes a standby by hand.
//
// # What is not covered
//
//   - A machine, or a Pod as a whole with PostgreSQL, that stands still for longer than the duration and goes on: until the
//     guard, which looks every 50 ms, has killed PostgreSQL, it may answer clients. With synchronous replication no commit is
//     acknowledged then once the standbys follow another; one that is cut off from the API server may not yet.
//   - A clock that is wrong by more than DriftBound, and storage that forgets what it has flushed.
//   - An instance that somebody forces: it can lose whatever it does not have. A force counts until its instance has held the Lease
//     once; what it was for is over then, and the wish may be seen for long after it was dropped.
package election
