package election

import (
	"time"

	"github.com/pgsteward/pgsteward/internal/postgres"
)

// AnswerBound is how long an instance waits for silent members before it says so.
const AnswerBound = 60 * time.Second

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
	Position         postgres.Position
}

// Lease is the primary Lease as one agent sees it.
type Lease struct {
	// Known is false until the Lease was read once. What was read may be old: taking it is compare-and-swap.
	Known bool
	// Holder is the recorded holder; empty if there is none.
	Holder string
	// HolderPod is the UID of the Pod in which the holder may be writing.
	HolderPod string
	// SystemIdentifier is that of the system whose primary the Lease is about; empty if none was ever made.
	SystemIdentifier string
	// Expired says whether the duration has passed since the last change that was seen, by the local monotonic clock.
	Expired bool
	// Held says whether this agent renewed it so recently that it may write, and has seen it in nobody else's hands since.
	Held bool
}

// Member is another instance of the cluster, and what it has: DataUnknown if it did not answer.
type Member struct {
	Name string
	Data Data
}

// Facts is what one instance knows.
type Facts struct {
	// Self is its name, Pod the UID of its Pod.
	Self string
	Pod  string
	Data Data

	Lease Lease
	// Bootstrap and SystemIdentifier are the configuration's.
	Bootstrap        string
	SystemIdentifier string
	// Members are the others, without Self.
	Members []Member
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
	// RunPrimary: renew the Lease, then run read-write; promote if the data is a standby's.
	RunPrimary
	// RunStandby: follow Upstream; if that is empty, whatever was followed last.
	RunStandby
	// CloneFrom: copy the data of Upstream.
	CloneFrom
	// Campaign: take the Lease.
	Campaign
	// Refuse: start nothing; Problem says why.
	Refuse
)

var actionNames = [...]string{"Wait", "Bootstrap", "RunPrimary", "RunStandby", "CloneFrom", "Campaign", "Refuse"}

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
)

// Decision is what to do, by which rule, and why.
type Decision struct {
	Action   Action
	Upstream string
	Rule     string
	// Reason is for people.
	Reason  string
	Problem Problem
}
