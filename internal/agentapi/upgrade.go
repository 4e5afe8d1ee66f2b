package agentapi

import "time"

// PathUpgradeSwitchover takes an UpgradeSwitchoverRequest at the agent of the live primary: 202 if it has begun, how it goes is in
// Status.Upgrade; 409 and why if it cannot.
const PathUpgradeSwitchover = "/v1/upgrade/switchover"

// PathUpgradeExpect takes an UpgradeExpectRequest at the agent of the target, before writes are paused: 202, or 409 and why not.
const PathUpgradeExpect = "/v1/upgrade/expect"

// UpgradeProtocol is Status.UpgradeProtocol of agents that understand what is in this file. OldestUpgradeProtocol is that of those with
// which an upgrade can be made all the same, but for MethodInPlace.
const (
	UpgradeProtocol       = 2
	OldestUpgradeProtocol = 1
)

// Upgrade is what the agents are told of a major upgrade (Config.Upgrade). It is a state that they keep up, not a list of steps: an
// agent that reads it for the first time, or again after a crash, does what is missing.
//
// A generation is named by its major version: the live one is the one that the Lease names (Config.Version if it names none). Which
// generation an instance is of is its Member.Version. Instances of the other generation take no part in the election.
type Upgrade struct {
	// ID names this attempt: lower-case letters and digits. Names of slots and subscriptions have it, and what an earlier attempt
	// left is removed.
	ID string `json:"id"`
	// From and To are the majors.
	From string `json:"from"`
	To   string `json:"to"`
	// ToVersion is what the image of To has, such as 18.6; for Check; empty: it is not known before it runs.
	ToVersion string `json:"toVersion,omitempty"`
	// OneWay says that there is to be no way back; for Check.
	OneWay bool `json:"oneWay,omitempty"`
	// Check asks the live primary for a preflight: Status.Upgrade.Preflight. It may be set without a Seed, and without an ID.
	Check bool `json:"check,omitempty"`
	// Seed is the instance that makes, and is, the first server of To; empty: there is none yet.
	Seed string `json:"seed,omitempty"`
	// Method is how its data is made; empty: the seed chooses, and says why.
	Method UpgradeMethod `json:"method,omitempty"`
	// Origin is the instance that was the primary of From at the switchover, and goes on outside of the election so that there is a
	// way back; empty: there was no switchover yet, or there is no way back any more.
	Origin string `json:"origin,omitempty"`
	// Retire says that there is no way back any more: the live primary removes everything logical, and puts back replica identities.
	Retire bool `json:"retire,omitempty"`
}

// Detached is the instance that runs the generation which is not live, read-write but closed to clients; empty: none.
func (u *Upgrade) Detached(live string) string {
	switch {
	case u == nil:
		return ""
	case live == u.From:
		return u.Seed
	case live == u.To:
		return u.Origin
	default:
		return ""
	}
}

// UpgradeMethod is how the data of the next generation is made.
type UpgradeMethod string

// The methods of a major upgrade.
const (
	// MethodPhysical: a standby's data, replayed to one position, goes through pg_upgrade with hard links.
	MethodPhysical UpgradeMethod = "Physical"
	// MethodLogical: the schema is dumped, and the tables are copied by logical replication.
	MethodLogical UpgradeMethod = "Logical"
	// MethodInPlace: the primary is stopped, and a standby that has everything goes through pg_upgrade; nothing follows by logical replication.
	MethodInPlace UpgradeMethod = "InPlace"
)

// UpgradeStatus is what an agent knows of a major upgrade (Status.Upgrade). Only what the instance is concerned with is set.
type UpgradeStatus struct {
	// ID is that of the attempt that it is about; that of its marker on disk, if there is one.
	ID string `json:"id,omitempty"`
	// Preflight is the live primary's, if Upgrade.Check asked for it.
	Preflight *Preflight `json:"preflight,omitempty"`
	// Seed is the next generation's first server, while its agent makes or runs it outside of the election.
	Seed *SeedStatus `json:"seed,omitempty"`
	// Switchover is the live primary's: the one that is going on, or how the last one of this ID ended.
	Switchover *UpgradeSwitchoverStatus `json:"switchover,omitempty"`
	// Back is how the origin follows the new generation, after the switchover.
	Back *ReverseStatus `json:"back,omitempty"`
	// Retired says that nothing logical is left on this server, for Upgrade.Retire.
	Retired bool `json:"retired,omitempty"`
}

// SeedStage is how far a seed has come. The stages are in this order.
type SeedStage string

// The stages of a seed. What each needs, does, and how it is resumed is in the package comment of internal/agent/generation.
const (
	// SeedPreparing: publications, replica identities and slots are made on the source; or the data to begin with is copied.
	SeedPreparing SeedStage = "Preparing"
	// SeedStreaming: the old server streams as a standby, until the source has stopped for good (in place).
	SeedStreaming SeedStage = "Streaming"
	// SeedReplaying: the old server, of which nobody knows, replays to the slots' position (physical).
	SeedReplaying SeedStage = "Replaying"
	// SeedConverting: pg_upgrade runs (physical); initdb runs (logical).
	SeedConverting SeedStage = "Converting"
	// SeedCopying: globals, schema and tables are copied (logical).
	SeedCopying SeedStage = "Copying"
	// SeedJoining: the new server runs, its subscriptions begin, extensions are updated and statistics made.
	SeedJoining SeedStage = "Joining"
	// SeedFollowing: all of that is done; it follows the source.
	SeedFollowing SeedStage = "Following"
	// SeedFailed: this attempt is over; Problem says why. Only another ID begins again.
	SeedFailed SeedStage = "Failed"
)

// SeedStatus is the next generation's first server.
type SeedStatus struct {
	Stage SeedStage `json:"stage"`
	// Step is for people: what is being done just now, such as "copying tables of app".
	Step string `json:"step,omitempty"`
	// Since is when this stage began.
	Since time.Time `json:"since"`
	// Method and Why: how the data is made, and why so if that was the seed's choice.
	Method UpgradeMethod `json:"method,omitempty"`
	Why    string        `json:"why,omitempty"`
	// Source is the instance, System the PostgreSQL system that it is made from, and Position the position from which it follows.
	Source   string `json:"source,omitempty"`
	System   string `json:"system,omitempty"`
	Position string `json:"position,omitempty"`
	// NewSystem is its own PostgreSQL system.
	NewSystem string `json:"newSystem,omitempty"`
	// TablesDone of TablesTotal are copied (logical).
	TablesDone  int `json:"tablesDone,omitempty"`
	TablesTotal int `json:"tablesTotal,omitempty"`
	// Analyzed says that statistics are there.
	Analyzed bool `json:"analyzed,omitempty"`
	// Streaming says that every database's subscription is active. LagBytes is how far the last of them is behind the source; nil:
	// not known.
	Streaming bool   `json:"streaming,omitempty"`
	LagBytes  *int64 `json:"lagBytes,omitempty"`
	// Findings are what speaks against this seed, such as an extension that the new image does not have.
	Findings []Finding `json:"findings,omitempty"`
	// Problem is why it failed, or what keeps it from going on.
	Problem *Problem `json:"problem,omitempty"`
}

// ReverseStatus is the origin, which follows the new generation.
type ReverseStatus struct {
	// Streaming says that every database's subscription is active; LagBytes is how far the last of them is behind; nil: not known.
	Streaming bool     `json:"streaming,omitempty"`
	LagBytes  *int64   `json:"lagBytes,omitempty"`
	Problem   *Problem `json:"problem,omitempty"`
}

// Preflight is what was found on the live primary.
type Preflight struct {
	// To and Method are what it is for; At is when it ended.
	To       string        `json:"to"`
	Method   UpgradeMethod `json:"method,omitempty"`
	At       time.Time     `json:"at"`
	Findings []Finding     `json:"findings,omitempty"`
	// Problem is why it could not be made.
	Problem *Problem `json:"problem,omitempty"`
}

// Severity is what a finding means.
type Severity string

// The severities of a finding.
const (
	// SeverityBlocker: no upgrade by logical replication before it is mended. InPlace may do.
	SeverityBlocker Severity = "Blocker"
	// SeverityFixed: pgsteward deals with it by itself, and puts it back.
	SeverityFixed Severity = "Fixed"
	// SeverityWarning: somebody should know.
	SeverityWarning Severity = "Warning"
)

// Finding is something on the live primary that an upgrade does not carry over as it is.
type Finding struct {
	Severity Severity `json:"severity"`
	// Check is the check's name, such as "LargeObjects".
	Check string `json:"check"`
	// Database is empty if it concerns the whole server.
	Database string `json:"database,omitempty"`
	// Objects are examples, quoted as in SQL, at most ten; More is how many others there are.
	Objects []string `json:"objects,omitempty"`
	More    int      `json:"more,omitempty"`
	// Message says what is wrong and what to do.
	Message string `json:"message"`
}

// UpgradeSwitchoverRequest asks the live primary's agent to move the writes to the detached primary of the other generation.
type UpgradeSwitchoverRequest struct {
	// ID is that of Upgrade.
	ID string `json:"id"`
	// Target is the detached instance, To its major: the same request goes either way.
	Target string `json:"target"`
	To     string `json:"to"`
	// MaxPauseMillis is how long writes may pause; when that has passed before Target has everything, the primary opens again. With
	// Offline that is how long the primary may be stopped.
	MaxPauseMillis int64 `json:"maxPauseMillis"`
	// Reverse says that the way back is to be kept: the old primary follows the new one.
	Reverse bool `json:"reverse"`
	// Offline says that Target is a standby still, and becomes the detached instance while PostgreSQL is stopped here (in place).
	Offline bool `json:"offline,omitempty"`
}

// UpgradeExpectRequest tells the detached instance that it is about to get the writes. It says to the kubelet that it is ready, for so
// long, so that the Services need not wait for a probe when it has them.
type UpgradeExpectRequest struct {
	// ID is that of Upgrade, To the instance's major.
	ID     string `json:"id"`
	To     string `json:"to"`
	Millis int64  `json:"millis"`
	// Stopped is where the source has stopped (in place): the beginning of the record of its last checkpoint. The instance is to be
	// converted as of there; it is not asked to be ready.
	Stopped string `json:"stopped,omitempty"`
}

// UpgradeSwitchoverStatus is a change of the live generation as the agent of the old primary sees it.
type UpgradeSwitchoverStatus struct {
	Target string          `json:"target"`
	To     string          `json:"to"`
	Phase  SwitchoverPhase `json:"phase"`
	Since  time.Time       `json:"since"`
	// Ended is when it came to its end; nil before.
	Ended *time.Time `json:"ended,omitempty"`
	// PauseMillis is how long no client could write, as far as this side knows: until the Lease named the target, or it opened again.
	PauseMillis int64 `json:"pauseMillis,omitempty"`
	// Refused is why it came to nothing.
	Refused string `json:"refused,omitempty"`
}
