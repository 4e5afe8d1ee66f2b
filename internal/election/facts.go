package election

import (
	"time"

	"github.com/pgsteward/pgsteward/internal/postgres"
)

// DataKind says what an instance has on its volume.
type DataKind int

// The kinds of data. The zero value is that nothing is known.
const (
	DataUnknown DataKind = iota
	// DataNone: the volume has no complete data directory.
	DataNone
	// DataPrimary and DataStandby: a data directory that was last run as that.
	DataPrimary
	DataStandby
)

// HasData says whether there is a data directory.
func (k DataKind) HasData() bool { return k == DataPrimary || k == DataStandby }

// Data is what an instance has.
type Data struct {
	Kind             DataKind
	SystemIdentifier string
	// Position is how far it has come: what it received and flushed.
	Position postgres.Position
	// Exact says whether Position is really all: a standby that runs and has read all of its WAL. Otherwise it may have
	// acknowledged more than Position shows. It does not matter for a primary's data, which comes before any standby's.
	Exact bool
	// Newest is the highest timeline of which the directory has a history file; known of the own data only.
	Newest int64
	// Clean says whether a primary was shut down properly: Position is then that of its last record, the shutdown checkpoint.
	Clean bool
}

// Lease is the primary Lease as one agent sees it.
type Lease struct {
	// Known is false until the Lease was read once. What was read may be old: taking it is compare-and-swap.
	Known bool
	// Holder is the recorded holder; empty if there is none.
	Holder string
	// HolderPod is the UID of the Pod in which the holder may be writing; empty if its PostgreSQL was stopped.
	HolderPod string
	// SystemIdentifier is that of the system whose primary the Lease is about; empty if none was ever made.
	SystemIdentifier string
	// Expired says whether the duration has passed since the last change that was seen, by the local monotonic clock, and
	// ExpiredFor how long ago that was; or how long ago the last promise of this instance ended, if that was later, since its
	// holder may have gone on until then.
	Expired    bool
	ExpiredFor time.Duration
	// Held says whether this agent renewed it so recently that it may write, and has seen it in nobody else's hands since.
	Held bool

	// Members are all that its holder knew at the last renewal, itself included. None: a holder that knows nothing of failover.
	Members []string
	// Position is the holder's at the last renewal, TimelineStart where its timeline began.
	Position      postgres.Position
	TimelineStart postgres.LSN
	// Timeline is the highest that was ever given to a promotion.
	Timeline int64
	// Sync is the published synchronous set; nil: replication is asynchronous.
	Sync *SyncSet
	// End is where the last holder ended, if it handed over and nobody has written the Lease since; nil: that is not known.
	End *End
}

// End is where a primary ended that was shut down properly: it has everything up to there, and nothing was acknowledged after.
type End struct {
	By       string
	Position postgres.Position
}

// Member is another instance of the cluster, and what it said last.
type Member struct {
	Name string
	// Data is DataUnknown if there is no recent answer.
	Data Data
	// Age is the time since the question was sent that was answered; Silent is how long it is being asked without any answer.
	Age    time.Duration
	Silent time.Duration
	// Streaming says whether it receives WAL; Fenced whether it is fenced by hand; Unable why it could not be primary now, such
	// as a server that does not start.
	Streaming bool
	Fenced    bool
	Unable    string
	// Primary says whether it says to run as the primary.
	Primary bool
	// Promised says whether it has promised to this Pod, and the promise counts still.
	Promised bool
}

// Server is the instance's own PostgreSQL.
type Server struct {
	// Running says whether any process of it exists, Writable whether it may write.
	Running  bool
	Writable bool
	// Stopping says whether it is being stopped.
	Stopping bool
	// Down is how long it has been unable to serve as a primary although it should, and may: since it ended or was to start, but not
	// since before this instance became the holder, nor from while the lease was not renewed. Failures are the attempts in a row
	// that failed.
	Down     time.Duration
	Failures int
	// Ended is how long it has been certain that no process of it runs, so that it can have acknowledged nothing since; zero
	// while one may.
	Ended time.Duration
	// Unable is why this instance could not be primary now; empty: it could.
	Unable string
}

// Promise is what this instance has promised: not to campaign for as long as Remaining, counted from when it was asked.
type Promise struct {
	Holder, Pod string
	Remaining   time.Duration
}

// RequestKind says why the lease is to be handed over.
type RequestKind int

// The kinds of requests.
const (
	// NoRequest: nobody wants it handed over.
	NoRequest RequestKind = iota
	// Switchover: somebody wishes another primary. If there is no target it is refused.
	Switchover
	// Termination: this Pod ends. If there is no target the Lease says that it has stopped.
	Termination
)

// Request is a wish that the lease be handed over.
type Request struct {
	Kind RequestKind
	// Target is who shall have it; empty: the best.
	Target string
	// Preferred is who clients are sent to already; empty: nobody.
	Preferred string
	// Stopped is how long PostgreSQL has been stopped for it; zero while it runs.
	Stopped time.Duration
}

// Policy is what the configuration says about availability.
type Policy struct {
	// MaximumLag is how many bytes a candidate may lack at most, in asynchronous replication.
	MaximumLag uint64
	// CrashBound and CrashFailures bound the attempts to start a primary in place while another could take over.
	CrashBound    time.Duration
	CrashFailures int
	// SyncMode is the wanted mode of replication, SyncNumber how many standbys shall confirm a commit.
	SyncMode   SyncMode
	SyncNumber int
}

// Facts is what one instance knows.
type Facts struct {
	// Self is its name, Pod the UID of its Pod.
	Self   string
	Pod    string
	Data   Data
	Server Server

	Lease Lease
	// Bootstrap and SystemIdentifier are the configuration's.
	Bootstrap        string
	SystemIdentifier string
	Policy           Policy
	// HolderFenced says whether the holder of the Lease is fenced by hand.
	HolderFenced bool
	// Fenced says whether this instance is fenced by hand, Forced whether it was told to take over whatever it lacks.
	Fenced bool
	Forced bool
	// Members are the others, without Self.
	Members []Member
	// Promise is the last one given. Young says that this agent was started less than a duration ago, so that there may be
	// one that it has forgotten.
	Promise Promise
	Young   bool
	Request Request
	// Waited is how long nobody has been the holder.
	Waited time.Duration
}

// Action is what an instance is to do.
type Action int

// The actions.
const (
	// Wait: run nothing read-write. A standby that runs goes on.
	Wait Action = iota
	// Bootstrap: take or renew the Lease, then make a new system.
	Bootstrap
	// RunPrimary: renew the Lease, then run read-write. If Timeline is set, write it to the Lease first, run as a standby, and
	// promote to that timeline.
	RunPrimary
	// RunStandby: follow Upstream; if that is empty, whatever was followed last.
	RunStandby
	// CloneFrom: copy the data of Upstream.
	CloneFrom
	// Campaign: take the Lease by compare-and-swap, writing Timeline to it.
	Campaign
	// Refuse: start nothing; Problem says why.
	Refuse
	// Stop: stop PostgreSQL (fast) and keep it stopped; go on renewing the Lease if it is held.
	Stop
	// HandOver: PostgreSQL is stopped; make Target the holder, and the holder's Pod nobody, in one update.
	HandOver
	// Release: PostgreSQL is stopped and nobody can take over; write to the Lease that nobody writes.
	Release
)

var actionNames = [...]string{
	"Wait", "Bootstrap", "RunPrimary", "RunStandby", "CloneFrom", "Campaign", "Refuse", "Stop", "HandOver", "Release",
}

// String is the action's name.
func (a Action) String() string { return actionNames[a] }

// Problem is why an instance cannot go on without help.
type Problem int

// The problems.
const (
	NoProblem Problem = iota
	// SystemMismatch: the data belongs to another system.
	SystemMismatch
	// DataLost: there must be data, and there is none.
	DataLost
	// MembersSilent: nobody is primary, and members do not answer.
	MembersSilent
	// LagTooGreat: the primary is lost, and what this instance lacks of it is more than is allowed.
	LagTooGreat
	// QuorumMissing: the primary is lost, and too few of the synchronous set answer to be sure of every acknowledged commit.
	QuorumMissing
	// InstanceFenced: it is stopped by hand.
	InstanceFenced
)

// Refusal is why a member cannot take over.
type Refusal struct {
	Member string
	Reason string
}

// Decision is what to do, by which rule, and why.
type Decision struct {
	Action   Action
	Upstream string
	// Target is whom to hand over to: with HandOver, and with Stop while a hand-over is begun.
	Target string
	// Clean says, with HandOver, that everything ends at the position of the data: Lease.End is to be published.
	Clean bool
	// Timeline is the one to promote to; 0: no promotion, the data goes on with its own.
	Timeline int64
	// Sync, if set, is to be published with the update that takes the Lease.
	Sync *SyncSet
	// Ask: the members' positions matter now. Seek: ask them for a promise to this Pod.
	Ask  bool
	Seek bool
	Rule string
	// Reason is for people.
	Reason  string
	Problem Problem
	// Refused says who could not take over, and why.
	Refused []Refusal
}
