package agentapi

import "time"

// Paths of the agent's API on naming.PortAgent.
const (
	// PathStatus answers with the Status. With the query "watch" the answer does not end: one Status as a JSON document per
	// line, at once and after every change.
	PathStatus = "/v1/status"
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
	// Version is the PostgreSQL major, such as "16".
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
}

// Member is one instance of the cluster.
type Member struct {
	// Name is the instance's name, such as prod-db-1.
	Name string `json:"name"`
	// Host is its stable host name.
	Host string `json:"host"`
}

// Lease is the Lease whose holder may write, and its timings.
type Lease struct {
	Name            string `json:"name"`
	DurationSeconds int32  `json:"durationSeconds"`
	RenewSeconds    int32  `json:"renewSeconds"`
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
	// ReplayLSN is the position up to which a standby has replayed.
	ReplayLSN string `json:"replayLSN,omitempty"`
	// LagBytes is how far a standby's replay is behind what its upstream has sent.
	LagBytes *int64 `json:"lagBytes,omitempty"`
	// Streaming says whether a standby receives WAL from its upstream; Upstream is the instance it follows.
	Streaming bool   `json:"streaming,omitempty"`
	Upstream  string `json:"upstream,omitempty"`

	// ConfigGeneration is the Config.Generation that is in force.
	ConfigGeneration int64 `json:"configGeneration,omitempty"`
	// FilesHash is Files.Hash of what the agent sees mounted, whether it is in force or not.
	FilesHash string `json:"filesHash,omitempty"`
	// PendingRestart are the parameters that wait for a restart.
	PendingRestart []string `json:"pendingRestart,omitempty"`

	// Problem is what is wrong, if something is.
	Problem *Problem `json:"problem,omitempty"`
}

// Problem is something that is wrong with an instance.
type Problem struct {
	// Reason is one of the Reason constants of apis/v1.
	Reason string `json:"reason"`
	// Message is for people: what, where, and what to do.
	Message string `json:"message"`
}
