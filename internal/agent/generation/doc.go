// Package generation makes the next generation of a major upgrade in its Pod, and moves the writes to it and back. The whole is in the
// package comment of internal/upgrade. It decides nothing about roles: the agent's loop says when which part may run, and runs the servers.
//
// # The parts, by the instance that runs them
//
//   - Seed: the instance that Config.Upgrade.Seed names, while From is live. Make makes its data directory, with no server of To; Join
//     runs beside the detached server of To, and makes it follow; Look observes it.
//   - Source: the live primary while Config.Upgrade has a seed. It has the role naming.UpgradeUser and lets it in; everything else on it
//     is done by the seed through that role. When no seed is named any more, or Retire is set, Clean removes what is left.
//   - Switch: the live primary, asked to. Moves the writes to the detached server of the other generation.
//   - Origin: the old primary after the switch, detached: Back makes it follow.
//
// # Marker
//
// The file naming.FileUpgradeMarker in the agent's folder on the volume says what is on the volume, and is written before each step that
// cannot be taken back. A marker of another ID: what it speaks of is removed, and it begins anew. The fields are in marker.go.
//
// # Seed, physical
//
// Each stage is entered when what it needs is there, and does nothing that is done already.
//
//  1. Preparing. Needs: nothing. The old data directory must be a standby's, of the source's system, and not used up by an earlier attempt;
//     else it is copied from the source first. The server does not run. On the source, in each database that is not a template: the
//     replica identity FULL for tables that have none usable (remembered in schema naming.UpgradeSchema, on the source, so that it
//     is carried over as well), a publication for all tables, a logical slot. Then X = the insert position, a record after it, a new
//     segment. Marker: X and the databases. Bound: statement_timeout on each statement; an old transaction makes it fail with its pid.
//  2. Replaying. Needs: X. Marker first: the old data directory is used up. The old server runs without a network, to exactly X
//     (exclusive), and is promoted; it is stopped; the slots are advanced to X. Resumed: it was promoted, or replays on.
//  3. Converting. Needs: promoted and stopped at X. initdb with the same encoding, locale, checksums and segment size into
//     <to>.seeding; pg_upgrade --check, then --link; rename to <to>. Resumed: from the promoted directory, if pg_upgrade had not
//     linked; else the attempt fails and the next copies.
//  4. Joining. Needs: <to> is complete, and its server runs detached. In each database: a subscription without copy, the origin advanced to
//     X, enabled. Then extensions are updated, and statistics made in stages.
//  5. Following. Observed only.
//
// # Seed, in place
//
// Nothing is replicated logically: nothing is made on the source, and its data stays as it is until Retire.
//
//  1. Preparing. Needs: nothing. The old data directory as above; initdb as below. The old server runs as a hot standby without a network, and
//     pg_upgrade --check looks at it while the source serves.
//  2. Streaming. Needs: the source no more: it may stop at any moment. The old server follows it, until this instance is told where the source has
//     stopped: at the beginning of the record of its last checkpoint. That record must arrive, and be replayed. Marker: the position, and that
//     the old data directory is used up. Resumed: it streams again, and is told again. Not arrived within receiveBound: the attempt is over.
//  3. Replaying. Needs: the position. The old server is promoted, with nothing left to replay. Its new timeline must begin right behind that
//     record: the proof that it has all that the source ever wrote. Resumed: as above.
//  4. Converting. As above, but for the --check, which was made. Interrupted when pg_upgrade had begun, the attempt is over.
//  5. Joining. Needs: the server of To, detached. Extensions are updated, and coarse statistics made; AnalyzeAll makes the rest afterwards.
//  6. Following. Nothing is left to do but to get the Lease.
//
// # Seed, logical
//
//  1. Preparing: as above, without slots and X.
//  2. Converting: initdb as above.
//  3. Copying: needs the server of To, detached. Globals (roles, tablespaces are refused, settings), databases, schema; then a
//     subscription for each database that copies all tables, several at a time.
//  4. Joining: when every table is copied: extensions, statistics. 5. Following.
//
// # Switch
//
// Nothing is paused until both sides have said that all is well: every subscription active and near, the target detached and of the
// right ID; whoever receives WAL from here has confirmed it; and the API server has renewed the Lease. Then, timed from the first step:
//
//  1. Marker "switching", with the target. pg_hba.conf lets in nobody but our own roles; reloaded, and seen to be in force.
//     Transactions are read-only unless they say otherwise, also of sessions that are being let in just now. Clients are
//     ended until none is left.
//  2. A last transaction, with none before it under way, and E = the position behind it; every slot's confirmed position must reach E.
//     Not within the bound: pg_hba.conf as before, marker removed, refused. Prepared transactions that exist refuse it as well; so do
//     databases and large objects, which are looked for again now that no client can make any. Roles are brought over again.
//  3. On the target: subscriptions disabled; sequences set; if there is a way back, slots for it made, with nothing before them that
//     the old side does not have.
//     WAL senders that hang are ended, and the Lease is renewed once more: it could not be moved without the API server.
//  4. PostgreSQL is stopped: from here nothing can be written here, whatever happens. Its control file must say that no transaction followed
//     the last one: a session that was let in before shows only when it has proved who it is, so that it may have come after 2. Else refused
//     as in 5. Marker "origin".
//  5. One update of the Lease: holder, version, system identifier, position, members. It fails for certain: PostgreSQL starts again as
//     primary, and refused. Not known: it is read again, and what it says is so.
//  6. The target's agent sees that it holds the Lease, opens, labels Pods, and drops the disabled subscriptions. This side starts
//     detached, and follows back.
//
// # Offline
//
// The same for a seed in place, which is a standby until PostgreSQL is stopped here. Before the pause: the seed streams and is near, nothing is
// prepared, a checkpoint, and the API server has renewed the Lease. Then, timed from the first step, and within the bound of the request:
//
//  1. As in 1 above. The Services send nobody to the target, which takes none for long. The Lease is renewed once more.
//  2. PostgreSQL is stopped; the senders have offlineLinger longer than its last checkpoint for the rest. The target is told where it has
//     stopped, again and again while it streams, and asked how far it is, until it is Following as of just that position, and its server runs.
//     It has failed, is of another position, is silent for offlineSilence, or the bound has passed: PostgreSQL starts again, and refused.
//  3. Marker "origin", and one update of the Lease, as in 5 above. This side does not follow back.
//
// A crash of this agent before 3: the Lease names it still, or a standby of the same generation takes over, which has received everything. What the
// target makes is of no use then, since its position is not that of the next stop.
//
// # A switch that is interrupted
//
// A crash before 5: the Lease still names this instance, so the agent that comes up removes the marker and runs as primary; Join on the
// target enables what was disabled, and drops slots for the way back. After 5: the Lease names the other generation, and this one
// is the origin. So nothing that is done on the target before 5 may be more than what Join can put right.
package generation
