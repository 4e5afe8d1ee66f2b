// Package upgrade decides the next step of a major upgrade: facts in, one Step out. It is pure, and is called by internal/plan. This
// comment is its specification; that of what an agent does in the Pod is the package comment of internal/agent/generation.
//
// # Generations
//
// A generation is one PostgreSQL system. During an upgrade there are two, and their majors name them: From and To. The Lease NAME-primary
// says which is live (annotation pgsteward.io/version; without it the one that the volumes name): its holder is the primary that clients
// write to, and only members of the live generation elect, promise and count.
//
// The other generation has one server that runs read-write by order, the detached one: before the switchover the seed, afterwards the
// origin, which was the primary. It never holds the Lease, has no role label, is in no Service but the headless one, and its
// pg_hba.conf lets in nobody but pgsteward's own roles. It has no failover: if it is lost, its generation is dropped. Standbys of its
// generation follow it by its stable name.
//
// Which generation an instance is of is said by agentapi.Member.Version, so by the operator, and by nothing else. The Lease says which of the
// two is live. So the two sides need no agreement on more than one bit, and that bit is changed by one compare-and-swap.
//
// # Who does what
//
// The operator says what each instance is to be, in the file that agents read; the agents do what is missing, and say what there is.
// Steps whose loss would matter are none of them, but for the switchover, which takes about a second: the agent of the live
// primary drives it, asked by one request. The phase is derived in every pass from what is observed. The status stores what
// cannot be observed again, and is written before it is acted on: the choice of the seed and which standbys were rolled, the attempt and
// its ID, the old image, when the switchover was, and failures.
//
// # Phases
//
// Each is given with: the observation that it is derived from; what is done; its bound; what a failure does; how it is undone. A crash of
// operator or agent changes no observation, so it goes on where it was; what is special about that is said.
//
//  1. Preflight. Observed: spec.version is above the live major, and no seed is chosen. Done: the live primary's agent looks for what an
//     upgrade does not carry (internal/agent/preflight), and Ready here looks at the cluster: every instance ready, its agent new
//     enough, not suspended or fenced, enough standbys left for synchronous commits, no switchover under way. With
//     spec.backup a backup is asked for and waited for, unless an annotation says that it need not be. A cluster of one instance then
//     gets a second one: the status says Surge, so that two are wanted until the upgrade is over, and internal/plan adds and removes it
//     as when a cluster is scaled. Then seed and ID are chosen: the standby with the highest number that no commit waits for. Bound: none; a
//     blocker waits for its mending, and the condition UpgradePreflight says which. Undone: setting version back.
//  2. PrepareSource. Observed: a seed is chosen, and its agent's stage is Preparing, or is not heard for this ID yet. Done: the seed's
//     instance gets the new version, so its Pod is made anew from the new image, with the old programs beside them (an init container
//     copies them); its agent makes publications, replica identities and slots on the live primary. Bound: prepareBound. A failure ends the
//     attempt. Undone: Revert.
//  3. SeedStandby. Observed: stage Replaying, Converting or Copying. Done: by the seed's agent. Bound: seedBound without progress (another
//     step, table or byte).
//  4. CatchUp. Observed: stage Joining; or Following with more lag than caughtUpLag, or without statistics. Bound: seedBound without progress.
//  5. RollStandbys. Observed: the seed follows, and a standby of the live generation can be spared. Done: one at a time the standbys are
//     told the new version; the Pod is made anew from the new image, and its agent copies the seed's data and streams from it. The next only when
//     the one before streams and the seed still follows. The last standby of the live generation is rolled only when the
//     switchover may follow at once (approved, and not waiting after a failed one), since then the live generation has no failover.
//     Bound: rollBound each; then the switchover goes ahead without it, and says so. Undone for one of them if the live generation
//     has none left and the switchover does not follow: refused refusalsTold times, or not approved any more, or outside its window (rollBound for
//     that as well: then the switchover is tried all the same). What was refused that often
//     is tried without that one; it goes over in Observe.
//  6. AwaitSwitchover. Observed: all that can be rolled is, and the switchover may not begin: not approved, not within the
//     window of the spec, or it was refused a moment ago.
//  7. Switchover. Observed: it may begin, or the live primary's agent says that it is under way. Done: one request to the live
//     primary's agent. Bound: maxWritePause, by that agent. Refused or too slow: From is open again, nothing is lost, and it is tried again
//     after switchoverBackoff, which doubles.
//  8. Observe. Observed: To is live, Origin is known, and the window is open. Done: the origin follows by logical replication. Standbys that
//     were left to the old version go over, one at a time, but the origin; while one of To is amiss only if no other of To could take over. A problem of the origin is a warning: the way back is gone, and
//     To is not touched. A loss of To's primary is To's failover; the slots for the way back are gone with it, so the way back is closed,
//     with the reason. Ends: after rollbackWindow, or at once if it is 0.
//  9. Rollback. Observed: To is live and spec.version is From, within the window. Done: the same request to the live primary's agent, the other
//     way round. Bound and failure as in Switchover. Afterwards, as soon as the pause was heard of: Revert.
//  10. Retire. Observed: To is live and the window is over, or the way back is lost. Done: the live primary removes everything logical and puts
//     back replica identities; then the instances of From are told the new version one at a time, as in RollStandbys, the origin last.
//     Bound: none, it is retried; each wait has its reason. Not undone.
//  11. Revert. Observed: From is live, and spec.version is From or the attempt failed, while instances of To exist. Done: the configuration names
//     no seed any more, so the live primary's agent drops slots and publications, and each instance of To is told From again; its agent
//     takes its old data if that is whole, and copies it otherwise. One at a time, but the seed, which serves nobody, at once.
//     Afterwards another attempt, until maxAttempts, then Failed.
//  12. Done, RolledBack, Failed: nothing is left to do. Failed begins again when spec.version or spec.image changes, or when
//     the annotation pgsteward.io/upgrade-retry gets another value.
//
// # In place
//
// With the method InPlace nothing is replicated logically, so that all is carried that pg_upgrade carries. The seed streams as a standby of From
// (stage Streaming), after pg_upgrade has looked at it. It is not From's any more as far as elections go. What differs:
//
//   - PrepareSource changes nothing on the live primary. The seed is caught up when it streams closely; SeedStandby, CatchUp and RollStandbys
//     do not happen: no other standby goes over before the writes do.
//   - Switchover. The live primary's agent stops its server, and the seed is converted meanwhile. Bound: offlinePause in place of maxWritePause, by
//     that agent: then, and whenever the seed fails or is silent, From starts again. An attempt in which writes were paused for it is the last one
//     until somebody wants another. What was refused before the pause is tried again as ever. A seed
//     that is no standby any more and did not get the writes is given up. Setting version back waits for how the switchover ends.
//   - After it there is no way back and no window, so that Observe goes to Retire at once; the first standby of To is made there. Until then To has
//     no failover. From's data is dropped by Retire, as ever, the origin's last.
//   - A crash of the live primary's agent in the pause: its server runs again; it says nothing of a switchover, which is a refusal after
//     askPatience. A failover within From in the pause ends the attempt.
//   - Whether it is in place is what the seed has chosen, as it says, whatever the spec says later.
//
// # What holds throughout
//
//   - Until Switchover the live generation is not changed, but for publications, slots, replica identities and an event trigger, all of
//     which Revert and Retire remove. Whatever fails before leaves From serving.
//   - A change of the live primary before Switchover (failover or switchover within From) ends the attempt: its slots are gone.
//     (From 17 on slots can be synchronized to standbys; not used yet.)
//   - Nothing else that restarts instances is done during an upgrade, but what mends one that does not work; scaling waits.
//   - Unknown is never progress: a silent seed is waited for until its bound; a silent live primary stops everything but waiting.
//   - One disruptive step per pass.
package upgrade
