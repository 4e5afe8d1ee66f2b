package agentapi

import (
	"slices"
	"time"
)

// Paths of the agent's API on naming.PortAgent.
const (
	// PathStatus answers with the Status. With the query "watch" the answer does not end: one Status as a JSON document per
	// line, at once and after every change. With the query "fresh" positions are as of the request.
	PathStatus = "/v1/status"
	// PathPromise takes a PromiseRequest from a primary that cannot reach the API server, and answers with a Promise.
	PathPromise = "/v1/promise"
	// PathSwitchover takes a SwitchoverRequest: 202 if it has begun, how it goes is in the Status; 409 and why if it cannot.
	PathSwitchover = "/v1/switchover"
	// PathHandOver takes a HandOverRequest: 202 if the lease is going to be taken, 409 and why if not.
	PathHandOver = "/v1/handover"
	// PathRestart takes a RestartRequest: 202 if PostgreSQL is going to be restarted, 409 and why if it cannot.
	PathRestart = "/v1/restart"
)

// HeartbeatInterval is how often, at least, a watched status is sent again: so that a dead connection is noticed, and
// positions are fresh.
const HeartbeatInterval = 15 * time.Second

// Config is what the agents of a cluster are told: the file naming.FileConfig.
type Config struct {
	// Cluster and Namespace name the PostgresCluster; Generation is that of the spec it was made from.
	Cluster    string `json:"cluster"`
	Namespace  string `json:"namespace"`
	Generation int64  `json:"generation"`
	// Version is the PostgreSQL major, such as "16"; during a major upgrade that of the live generation, as far as the operator knew.
	Version string `json:"version"`
	// SystemIdentifier of the cluster's PostgreSQL system; empty while none is known. Data of another system is refused.
	SystemIdentifier string `json:"systemIdentifier,omitempty"`
	// Bootstrap is the instance that may make a new PostgreSQL system if its volume is empty; empty: nobody may, since the
	// cluster has data already.
	Bootstrap string `json:"bootstrap,omitempty"`
	// Members are all instances of the cluster, by number.
	Members []Member `json:"members"`
	// Database and Owner are the application's database and role.
	Database string `json:"database"`
	Owner    string `json:"owner"`
	// Parameters of postgresql.conf and lines of pg_hba.conf that the user wants.
	Parameters map[string]string `json:"parameters,omitempty"`
	HBA        []string          `json:"hba,omitempty"`
	// Lease says who is primary.
	Lease Lease `json:"lease"`
	// Availability says how the cluster fails over.
	Availability Availability `json:"availability"`
	// Fenced are the instances that must not run PostgreSQL; FenceAll among them is all.
	Fenced []string `json:"fenced,omitempty"`
	// ForceFailover is the instance that may take a lease that has run out although it would not be eligible.
	ForceFailover string `json:"forceFailover,omitempty"`
	// Upgrade is the major upgrade that is under way, or is to be checked; nil: none.
	Upgrade *Upgrade `json:"upgrade,omitempty"`
	// Backup is how the cluster is backed up; nil: not at all. Recovery is the backup that its data is made from; nil: it is new.
	Backup   *BackupConfig `json:"backup,omitempty"`
	Recovery *Recovery     `json:"recovery,omitempty"`
	// InPlace is a recovery of the cluster's own data that is under way, Floor which data must not take over since one; nil: none.
	InPlace *InPlace `json:"inPlace,omitempty"`
	Floor   *Floor   `json:"floor,omitempty"`
}

// FenceAll in Config.Fenced stands for every instance.
const FenceAll = "*"

// IsFenced says whether the instance must not run PostgreSQL.
func (c *Config) IsFenced(instance string) bool {
	return slices.Contains(c.Fenced, instance) || slices.Contains(c.Fenced, FenceAll)
}

// Availability says how the cluster fails over. What is zero has the agent's default.
type Availability struct {
	// MaximumLagBytes is how far a standby may be behind the primary's last known position and still become primary.
	MaximumLagBytes int64 `json:"maximumLagBytes,omitempty"`
	// CrashRestartSeconds is how long a primary whose server crashed may try to start it again before a standby takes over.
	CrashRestartSeconds int32 `json:"crashRestartSeconds,omitempty"`
	// Failsafe lets a primary go on without the API server while every member promises not to become primary.
	Failsafe bool `json:"failsafe,omitempty"`
	// Synchronous is how commits wait for standbys.
	Synchronous Synchronous `json:"synchronous"`
}

// SyncMode is how commits wait for standbys.
type SyncMode string

// The modes of synchronous replication; empty is SyncNone.
const (
	// SyncNone: they do not wait.
	SyncNone SyncMode = "none"
	// SyncPreferred: they wait for the standbys that are there.
	SyncPreferred SyncMode = "preferred"
	// SyncRequired: they wait, for ever if too few standbys are there.
	SyncRequired SyncMode = "required"
)

// Synchronous is how commits wait for standbys.
type Synchronous struct {
	Mode SyncMode `json:"mode,omitempty"`
	// Number of standbys that a commit waits for.
	Number int `json:"number,omitempty"`
}

// Member is one instance of the cluster.
type Member struct {
	// Name is the instance's name, such as prod-db-1.
	Name string `json:"name"`
	// Host is its stable host name.
	Host string `json:"host"`
	// Version is the major that the instance is to run; empty: Config.Version.
	Version string `json:"version,omitempty"`
}

// Lease is the Lease whose holder may write, and its timings.
type Lease struct {
	Name            string `json:"name"`
	DurationSeconds int32  `json:"durationSeconds"`
	// DeadlineSeconds is how long after its last renewal a primary begins to stop; zero: in proportion to the duration.
	DeadlineSeconds int32 `json:"deadlineSeconds,omitempty"`
	RenewSeconds    int32 `json:"renewSeconds"`
}

// State is what an instance is doing.
type State string

// The states of an instance.
const (
	// StateWaiting: it cannot go on by itself yet, e.g. there is no primary to clone from.
	StateWaiting State = "Waiting"
	// StateSeeding: its data is being made.
	StateSeeding State = "Seeding"
	// StateStarting: PostgreSQL is starting or recovering.
	StateStarting State = "Starting"
	// StateRunning: PostgreSQL accepts connections.
	StateRunning State = "Running"
	// StateStopping: PostgreSQL is being stopped.
	StateStopping State = "Stopping"
	// StateFailed: it cannot go on without somebody's help, or keeps failing; Problem says why.
	StateFailed State = "Failed"
)

// Role is what an instance is in its cluster: "primary", "standby" or empty while it is neither.
type Role string

// The roles of an instance.
const (
	RolePrimary Role = "primary"
	RoleStandby Role = "standby"
)

// Status is an instance as its agent sees it.
type Status struct {
	Instance     string `json:"instance"`
	PodUID       string `json:"podUID,omitempty"`
	AgentVersion string `json:"agentVersion,omitempty"`

	State State `json:"state"`
	Role  Role  `json:"role,omitempty"`
	// Ready says whether clients should come: the primary serves, or the standby streams.
	Ready bool `json:"ready"`
	// DataKnown is false until the agent has looked at its volume, or if it cannot read it: then HasData means nothing.
	DataKnown bool `json:"dataKnown"`
	// HasData says whether the volume has a complete data directory.
	HasData bool `json:"hasData"`
	// DataRole is what the data directory was last run as. It matters when no instance holds the lease.
	DataRole Role `json:"dataRole,omitempty"`

	// ServerVersion is PostgreSQL's version, such as "16.14", of the binaries in the image.
	ServerVersion    string `json:"serverVersion,omitempty"`
	SystemIdentifier string `json:"systemIdentifier,omitempty"`
	Timeline         int64  `json:"timeline,omitempty"`
	// LSN is the position up to which a primary has written, a standby has received, or a stopped instance's data reaches.
	LSN string `json:"lsn,omitempty"`
	// Exact says that a standby has nothing beyond LSN. A standby that was just started may have.
	Exact bool `json:"exact,omitempty"`
	// ReplayLSN is the position up to which a standby has replayed.
	ReplayLSN string `json:"replayLSN,omitempty"`
	// LagBytes is how far a standby's replay is behind what its upstream has sent.
	LagBytes *int64 `json:"lagBytes,omitempty"`
	// Streaming says whether a standby receives WAL from its upstream; Upstream is the instance it follows.
	Streaming bool   `json:"streaming,omitempty"`
	Upstream  string `json:"upstream,omitempty"`

	// TimelineStart is the position at which a primary's timeline began, for those that come back to it.
	TimelineStart string `json:"timelineStart,omitempty"`
	// History are the ancestors of that timeline, the oldest first; the newest of them if there are many.
	History []TimelineEnd `json:"history,omitempty"`
	// Sync is what a primary's PostgreSQL uses as its synchronous standbys, such as "ANY 1 (prod-db-2,prod-db-3)"; empty: none.
	// SyncStandbys are those of them that stream.
	Sync         string   `json:"sync,omitempty"`
	SyncStandbys []string `json:"syncStandbys,omitempty"`
	// Slots are the positions that the instance's slots keep WAL from, by the name of the member that each is for.
	Slots map[string]string `json:"slots,omitempty"`

	// Promised says that the instance has promised another not to become primary for now.
	Promised bool `json:"promised,omitempty"`
	// Fenced says that PostgreSQL is kept stopped because Config.Fenced has this instance.
	Fenced bool `json:"fenced,omitempty"`
	// Switchover is the one that is going on, or how the last one ended.
	Switchover *SwitchoverStatus `json:"switchover,omitempty"`
	// ServerStarted is when PostgreSQL's process was started; nil while none runs.
	ServerStarted *time.Time `json:"serverStarted,omitempty"`
	// AgentDigest is the SHA-256 of the agent's program, in hexadecimal digits.
	AgentDigest string `json:"agentDigest,omitempty"`

	// ConfigGeneration is the Config.Generation that is in force.
	ConfigGeneration int64 `json:"configGeneration,omitempty"`
	// FilesHash is Files.Hash of what the agent sees mounted, whether it is in force or not.
	FilesHash string `json:"filesHash,omitempty"`
	// PendingRestart are the parameters that wait for a restart.
	PendingRestart []string `json:"pendingRestart,omitempty"`
	// Lowering are those of a primary's PendingRestart that its standbys must not go below, and that the restart would lower: then the
	// primary is restarted first, since a standby keeps the greater value until it has replayed the change.
	Lowering []string `json:"lowering,omitempty"`

	// KnowsInPlace says that the agent understands Config.InPlace and Config.Floor.
	KnowsInPlace bool `json:"knowsInPlace,omitempty"`
	// InPlace is how far the primary is with a recovery in place; nil: it knows of none. Floor is the timeline of Config.Floor that is in force.
	InPlace *InPlaceReport `json:"inPlace,omitempty"`
	Floor   int64          `json:"floor,omitempty"`
	// UpgradeProtocol is the constant UpgradeProtocol of the agent; zero: it knows nothing of major upgrades.
	UpgradeProtocol int `json:"upgradeProtocol,omitempty"`
	// LiveVersion is the major of the live generation, as this agent reads the Lease; empty: not known.
	LiveVersion string `json:"liveVersion,omitempty"`
	// Upgrade is what it knows of a major upgrade; nil: nothing.
	Upgrade *UpgradeStatus `json:"upgrade,omitempty"`

	// Archive is how a primary's WAL goes into the repository; nil if it does not. Repository is what that has, from who uses it: the
	// primary, or the repository host. Backup is the one that runs there, or ran last.
	Archive    *Archive          `json:"archive,omitempty"`
	Repository *RepositoryReport `json:"repository,omitempty"`
	Backup     *BackupRun        `json:"backup,omitempty"`
	// Removal is the removal of a backup that runs there, or ran last.
	Removal *RemovalRun `json:"removal,omitempty"`

	// Problem is what is wrong, if something is.
	Problem *Problem `json:"problem,omitempty"`
}

// TimelineEnd is where an ancestor of a primary's timeline was left for the next.
type TimelineEnd struct {
	Timeline int64  `json:"timeline"`
	End      string `json:"end"`
}

// Problem is something that is wrong with an instance.
type Problem struct {
	// Reason is one of the Reason constants of apis/v1.
	Reason string `json:"reason"`
	// Message is for people: what, where, and what to do.
	Message string `json:"message"`
}

// PromiseRequest is a primary's question to a member: do you promise not to become primary for that long, counted from when you
// read this?
type PromiseRequest struct {
	Holder         string `json:"holder"`
	PodUID         string `json:"podUID"`
	DurationMillis int64  `json:"durationMillis"`
	// TakeOver: this Pod does not go on as the primary, but wants to begin.
	TakeOver bool `json:"takeOver,omitempty"`
}

// Promise is a member's answer.
type Promise struct {
	// Instance is who answers.
	Instance string `json:"instance"`
	Promised bool   `json:"promised"`
	// Why it does not promise.
	Why string `json:"why,omitempty"`
}

// SwitchoverRequest asks a primary to hand over.
type SwitchoverRequest struct {
	// Target is the instance to become primary; empty: the best one.
	Target string `json:"target,omitempty"`
}

// HandOverRequest is what a holder says that has stopped, to the instance that shall be primary, when it cannot write the lease
// itself any more: the token of a Pod that was deleted by force is void at once.
type HandOverRequest struct {
	Holder string `json:"holder"`
	PodUID string `json:"podUID"`
	// LeaseVersion is the version of the lease that the holder has seen last. A lease that was written since is not handed over.
	LeaseVersion string `json:"leaseVersion"`
}

// RestartRequest asks an agent to restart PostgreSQL in the Pod that runs.
type RestartRequest struct {
	// Why is for people.
	Why string `json:"why"`
	// ServerStarted is the Status.ServerStarted that was seen: a server that was started later is left alone.
	ServerStarted *time.Time `json:"serverStarted,omitempty"`
}

// SwitchoverPhase is how far a switchover has come.
type SwitchoverPhase string

// The phases of a switchover.
const (
	// SwitchoverPreparing: a target is looked for and a checkpoint is written; the primary serves.
	SwitchoverPreparing SwitchoverPhase = "Preparing"
	// SwitchoverStopping: PostgreSQL stops and the target receives the rest.
	SwitchoverStopping SwitchoverPhase = "Stopping"
	// SwitchoverHandedOver: the lease names the target. Whether that was promoted is the target's to say.
	SwitchoverHandedOver SwitchoverPhase = "HandedOver"
	// SwitchoverRefused: nothing was stopped; Refused says why. The primary is primary.
	SwitchoverRefused SwitchoverPhase = "Refused"
	// SwitchoverUndone: PostgreSQL was stopped, and it came to nothing; Refused says why. The primary is primary again.
	SwitchoverUndone SwitchoverPhase = "Undone"
)

// Undone says whether PostgreSQL was stopped for it in vain.
func (s SwitchoverStatus) Undone() bool { return s.Phase == SwitchoverUndone }

// SwitchoverStatus is a switchover as the agent of the old primary sees it.
type SwitchoverStatus struct {
	// Wanted is the target that was asked for; empty: the best. Target is the one that was chosen.
	Wanted string          `json:"wanted,omitempty"`
	Target string          `json:"target,omitempty"`
	Phase  SwitchoverPhase `json:"phase"`
	Since  time.Time       `json:"since"`
	// Ended is when it came to its end; nil before.
	Ended *time.Time `json:"ended,omitempty"`
	// Refused is why it came to nothing.
	Refused string `json:"refused,omitempty"`
}
