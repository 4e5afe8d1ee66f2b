package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/lease"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/election"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// Synchronous replication: commits wait for a number of standbys out of a set. The lease says which, so that a candidate knows
// what it must have seen. What is in the lease and what PostgreSQL uses change one after the other, in the order that
// election.NextSync says; here the steps are carried out:
//
//   - PostgreSQL uses a set when new sessions see it and every sender has read it, and a while has passed since, in which senders
//     that answer clients have come around; and if it waited for nobody before, when its checkpointer has been seen to have time.
//   - The lease says a set when it was read back, or its update was answered.
//
// The next step is not begun before the last one is done. A standby's configuration always has the set with which it would begin
// as primary: it is in force before the first write. Whether a commit waits at all is the user's, by synchronous_commit.

const (
	reasonSyncDegraded = "SynchronousDegraded"
	reasonSyncBlocked  = "SynchronousBlocked"
	// flagSettle is how long after the names were read the checkpointer, if it has nothing to do, has read them too.
	flagSettle = 200 * time.Millisecond
	// syncSettle is how long after every sender has read a set it counts as in force.
	syncSettle = time.Second
	// otherSyncBound is how long PostgreSQL may use another set than that of its configuration before that is written anew.
	otherSyncBound = 5 * time.Second
	// syncPatience is how long too few standbys are no problem yet: one that starts again is back in a moment.
	syncPatience = 5 * time.Second
)

// syncing is what the loop remembers of a primary's synchronous replication; it is about one run of one server.
type syncing struct {
	started time.Time
	// use is the set in PostgreSQL's configuration; nil: none.
	use *election.SyncSet
	// readSince is since when every sender has read it; adopted is how far WAL had come when it was in force.
	readSince time.Time
	adopted   postgres.LSN
	// otherSince is since when PostgreSQL has been using another set than the one in the configuration.
	otherSince time.Time
	// fewSince is since when fewer standbys than wanted confirm commits.
	fewSince time.Time
	// reason is that of the last step.
	reason string
}

// syncFlag is what is known of a server's flag that commits are to wait at all. Every session reads the names of the synchronous
// standbys, but this flag is the checkpointer's to set (SyncRepUpdateSyncStandbysDefined), which may be busy with a checkpoint.
type syncFlag struct {
	// started is the run of the server; since is when names were first seen in it, after there were none.
	started, since time.Time
	// set says that the checkpointer was seen with nothing to do since then.
	set bool
}

func (f *syncFlag) note(started, now time.Time, names string, free bool) {
	switch {
	case names == "":
		*f = syncFlag{started: started}
	case f.since.IsZero(), !f.started.Equal(started):
		*f = syncFlag{started: started, since: now}
	default:
		f.set = f.set || free && now.Sub(f.since) >= flagSettle
	}
}

// forgetSync forgets what was about another run of the server, or about a time as primary that is over.
func (a *Agent) forgetSync(w *world) {
	switch w.decision.Action {
	case election.RunPrimary, election.Stop, election.HandOver, election.Release:
		if a.syncing.started.Equal(w.server.Started) {
			return
		}
	case election.Wait, election.Bootstrap, election.RunStandby, election.CloneFrom, election.Campaign, election.Refuse:
	}
	a.syncing, a.sync = syncing{}, nil
}

// publishedSync are the sets that may be in the lease: the one that was read, those that were sent without an answer, and the one that
// is to be sent.
func (a *Agent) publishedSync(w *world) []*election.SyncSet {
	published := []*election.SyncSet{a.leaseFacts(w).Sync}
	texts := w.view.Syncs
	if a.sync != nil {
		texts = append(slices.Clone(texts), a.sync.Set)
	}
	seen := []string{w.view.Sync}
	for _, text := range texts {
		if slices.Contains(seen, text) {
			continue
		}
		seen = append(seen, text)
		if set, err := election.ParseSyncSet(text); err == nil {
			published = append(published, &set)
		} else {
			published = append(published, nil)
		}
	}
	return published
}

// keepSync takes the next step, if one is to be taken.
func (a *Agent) keepSync(w *world) {
	if a.syncing.started.IsZero() {
		use, err := parseSyncNames(w.state.SyncNames)
		if err != nil { // nobody but us writes it
			a.log.Error("The server's synchronous standbys cannot be understood", "error", err)
		}
		a.syncing = syncing{started: w.server.Started, use: use}
	}
	s := &a.syncing
	if !a.syncInForce(w) {
		return
	}
	mode := a.syncMode()
	step := election.NextSync(election.SyncState{
		Self: a.options.Instance, Published: a.publishedSync(w), InUse: s.use, Settled: a.syncSettled(w), Wanted: a.wantedSync(w),
	})
	if step.Reason != s.reason {
		s.reason = step.Reason
		if step.DoUse || step.DoPublish {
			a.log.Info("Changing the synchronous standbys", "use", syncNames(step.Use), "publish", syncText(step.Publish),
				"doUse", step.DoUse, "doPublish", step.DoPublish, "reason", step.Reason)
		}
	}
	switch {
	case step.DoUse:
		s.use, s.readSince, s.adopted = step.Use, time.Time{}, 0
	case step.DoPublish:
		a.sync = &lease.Sync{Set: syncText(step.Publish), Mode: string(mode)}
	case len(a.publishedSync(w)) == 1 && w.view.SyncMode != string(mode) && (mode != agentapi.SyncNone || w.view.SyncMode != ""):
		a.sync = &lease.Sync{Set: w.view.Sync, Mode: string(mode)}
	}
}

// syncInForce says whether PostgreSQL works by the set that is in its configuration.
func (a *Agent) syncInForce(w *world) bool {
	s := &a.syncing
	read := w.state.SyncNames == syncNames(s.use)
	a.noteOtherSync(w, read)
	for _, sender := range w.state.Senders {
		is := s.use != nil && slices.Contains(s.use.Names, sender.Name)
		if sender.Candidate && !is || is && sender.Streaming && !sender.Candidate {
			read = false
		}
	}
	switch {
	case !read:
		s.readSince, s.adopted = time.Time{}, 0
		return false
	case s.readSince.IsZero():
		s.readSince = w.now
	}
	if w.now.Sub(s.readSince) < syncSettle {
		return false
	}
	if s.use != nil && !a.syncFlag.set {
		return false
	}
	if s.adopted == 0 {
		s.adopted = w.state.Written
	}
	return true
}

// noteOtherSync has the configuration written anew if PostgreSQL goes on using another set: somebody may have set it by ALTER SYSTEM.
func (a *Agent) noteOtherSync(w *world, read bool) {
	s := &a.syncing
	switch {
	case read:
		s.otherSince = time.Time{}
	case s.otherSince.IsZero():
		s.otherSince = w.now
	case w.now.Sub(s.otherSince) > otherSyncBound:
		s.otherSince = w.now
		a.log.Error("PostgreSQL does not use the synchronous standbys of its configuration, which is written anew",
			"uses", w.state.SyncNames, "configured", syncNames(s.use))
		a.conf.Forget()
	}
}

// syncSettled says whether what was written before the set was in force is confirmed as the set demands.
func (a *Agent) syncSettled(w *world) bool {
	s := &a.syncing
	if s.use == nil {
		return true
	}
	confirmed := 0
	for _, sender := range w.state.Senders {
		if sender.Streaming && sender.Flushed >= s.adopted && slices.Contains(s.use.Names, sender.Name) {
			confirmed++
		}
	}
	return s.adopted != 0 && confirmed >= s.use.Number
}

// streamingSync are the standbys that stream, out of the set if there is one; each once.
func (a *Agent) streamingSync(w *world, set *election.SyncSet) []string {
	var names []string
	for _, member := range a.others() {
		if set != nil && !slices.Contains(set.Names, member.Name) {
			continue
		}
		for _, sender := range w.state.Senders {
			if sender.Name == member.Name && sender.Streaming {
				names = append(names, member.Name)
				break
			}
		}
	}
	return names
}

func (a *Agent) syncMode() agentapi.SyncMode {
	return cmp.Or(a.config.Availability.Synchronous.Mode, agentapi.SyncNone)
}

func (a *Agent) syncNumber() int { return max(1, a.config.Availability.Synchronous.Number) }

// wantedSync is the set that shall be.
func (a *Agent) wantedSync(w *world) *election.SyncSet {
	return election.WantedSync(syncModes[a.syncMode()], a.syncNumber(), a.streamingSync(w, nil), a.otherNames())
}

func (a *Agent) otherNames() []string {
	var names []string
	for _, member := range a.others() {
		names = append(names, member.Name)
	}
	return names
}

// syncToUse is the set for the configuration: a primary's own choice, or that with which a new primary begins.
func (a *Agent) syncToUse(w *world) *election.SyncSet {
	if !a.syncing.started.IsZero() {
		return a.syncing.use
	}
	return election.InitialSync(syncModes[a.syncMode()], a.syncNumber(), a.publishedSync(w), a.options.Instance, a.otherNames())
}

// maySyncPromote says whether the set with which this instance is to begin as primary is in force; if it is not, it makes it so.
func (a *Agent) maySyncPromote(ctx context.Context, w *world) bool {
	names := syncNames(a.syncToUse(w))
	if w.state.SyncNames != names {
		a.reload(ctx, w, "")
		return false
	}
	return names == "" || a.syncFlag.set
}

// describeSync adds the synchronous standbys to a primary's status.
func (a *Agent) describeSync(w *world, status *agentapi.Status) {
	if use, err := parseSyncNames(w.state.SyncNames); err == nil && use != nil {
		status.Sync = use.String()
		status.SyncStandbys = a.streamingSync(w, use)
	}
}

// syncProblem is that fewer standbys than wanted confirm commits; nil if enough do.
func (a *Agent) syncProblem(w *world) *agentapi.Problem {
	mode, number := a.syncMode(), a.syncNumber()
	streaming := a.streamingSync(w, nil)
	if mode == agentapi.SyncNone || len(streaming) >= number {
		a.syncing.fewSince = time.Time{}
		return nil
	}
	if a.syncing.fewSince.IsZero() {
		a.syncing.fewSince = w.now
	}
	if w.now.Sub(a.syncing.fewSince) < syncPatience {
		return nil
	}
	names := "none"
	if len(streaming) > 0 {
		names = strings.Join(streaming, ", ")
	}
	if mode == agentapi.SyncRequired {
		return problem(reasonSyncBlocked, fmt.Sprintf(
			"commits wait until %d standbys confirm them, as spec.availability.synchronous requires; streaming: %s", number, names))
	}
	return problem(reasonSyncDegraded, fmt.Sprintf(
		"commits are to be confirmed by %d standbys and go on with fewer, as spec.availability.synchronous prefers; streaming: %s", number, names))
}

// syncNames is a set in the form of synchronous_standby_names
// (https://www.postgresql.org/docs/current/runtime-config-replication.html#GUC-SYNCHRONOUS-STANDBY-NAMES).
func syncNames(set *election.SyncSet) string {
	if set == nil || set.Number == 0 || len(set.Names) == 0 {
		return ""
	}
	return fmt.Sprintf(`ANY %d ("%s")`, set.Number, strings.Join(set.Names, `","`))
}

// parseSyncNames reads what syncNames makes.
func parseSyncNames(text string) (*election.SyncSet, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	set, err := election.ParseSyncSet(strings.ReplaceAll(text, `"`, ""))
	if err != nil {
		return nil, err
	}
	return &set, nil
}

// syncText is a set as the lease has it, the names by number; nil is none.
func syncText(set *election.SyncSet) string {
	if set == nil {
		return ""
	}
	sorted := election.SyncSet{Number: set.Number, Names: slices.Clone(set.Names)}
	slices.SortFunc(sorted.Names, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	return sorted.String()
}
