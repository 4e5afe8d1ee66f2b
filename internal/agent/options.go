package agent

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/backrest"
	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/agent/lease"
	"github.com/pgsteward/pgsteward/internal/agent/role"
	"github.com/pgsteward/pgsteward/internal/agent/supervise"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// Options are what an agent is started with.
type Options struct {
	// Instance is the instance's name; Namespace, Pod and PodUID are its Pod's.
	Instance  string
	Namespace string
	Pod       string
	PodUID    string
	// Version is the agent's own version.
	Version string

	Paths Paths
	Ports Ports
	// ListenAddress is where everything listens; empty: on all addresses.
	ListenAddress string
	// MemoryLimit of the container in bytes; 0 if not known.
	MemoryLimit int64
	// StopBound is how long a fast shutdown may take before it becomes an immediate one. It must leave some seconds of the
	// Pod's grace period.
	StopBound time.Duration
	// FollowBound is how long a standby that says it cannot follow may try before it is cloned again.
	FollowBound time.Duration
	// RewindBound is how long a rewind may take before the data is copied instead; zero: DefaultRewindBound.
	RewindBound time.Duration
	// CheckpointBound is how long the checkpoint of the primary before a rewind may take; zero: sql.DefaultCheckpointBound.
	CheckpointBound time.Duration
	// Credential is what PostgreSQL runs as, and Users are the operating system's users that may be its superuser over the
	// socket. They are for an agent that runs as root, as in tests.
	Credential *syscall.Credential
	Users      []string

	// BackupHost changes where an instance's data is for a backup; nil: all have it in the same place. It is for tests, in which they do
	// not.
	BackupHost func(instance string, host backrest.Host) backrest.Host
	// HostConfig is where the repository host has its configuration; empty: where this instance has it. It is for tests too.
	HostConfig string

	// Watchdog is the command that becomes the watchdog, by calling supervise.Guard; empty: there is none.
	Watchdog []string
	// Programs finds PostgreSQL's programs of a major; nil: datadir.FindPrograms.
	Programs func(ctx context.Context, children *supervise.Children, major int) (datadir.Programs, error)

	// Lease makes the API of the Lease of that name.
	Lease   func(name string) (lease.API, error)
	Labeler role.Labeler
	// Output gets the log, one JSON object a line.
	Output   io.Writer
	LogLevel slog.Level
}

// Paths are where things are mounted.
type Paths struct {
	Data    string
	Run     string
	Config  string
	Secrets string
	// Carried has the old image's programs during a major upgrade.
	Carried string
}

// DefaultPaths are those of an instance's Pod.
func DefaultPaths() Paths {
	return Paths{
		Data: naming.PathData, Run: naming.PathRun, Secrets: naming.PathSecrets, Carried: naming.PathCarried,
		Config: filepath.Join(naming.PathConfig, naming.FileConfig),
	}
}

// secret is the path of a key of one of the mounted Secrets.
func (p Paths) secret(dir, key string) string { return filepath.Join(p.Secrets, dir, key) }

// logs is where PostgreSQL's log pipes are.
func (p Paths) logs() string { return filepath.Join(p.Run, "log") }

// Ports are the ports of an instance. All instances of a cluster have the same.
type Ports struct {
	Postgres int
	Agent    int
	Health   int
	// Backup is where the instance serves backups.
	Backup int
}

// DefaultPorts are those of an instance's Pod.
func DefaultPorts() Ports {
	return Ports{Postgres: naming.PortPostgres, Agent: naming.PortAgent, Health: naming.PortHealth, Backup: naming.PortBackup}
}

// Bounds and intervals of the loop.
const (
	roundInterval = time.Second
	// hurriedInterval is between rounds while something is about to happen in the server, which does not tell.
	hurriedInterval = 200 * time.Millisecond
	// urgentInterval is between rounds while clients wait for a primary: in a hand-over or a promotion.
	urgentInterval = 20 * time.Millisecond
	// refusalMemory is how long a standby does not count as streaming after its upstream has refused it. It tries again every
	// second.
	refusalMemory = 3 * time.Second
	// streamGrace is how long a standby that does not stream still counts as ready.
	streamGrace = 30 * time.Second
	// orphanGrace is how long a standby may be read while nobody is primary.
	orphanGrace = 2 * time.Minute
	// leasePatience is how long a standby waits for the lease to be read before it starts without knowing whom to follow.
	leasePatience = 3 * time.Second
	// deniedBound is how long the API server must have denied the Pod's token until the token counts as lost.
	deniedBound = 15 * time.Second
	// setupGrace is how long a primary that has not made its roles and database yet is kept from being ready.
	setupGrace = 15 * time.Second
	// reloadBound is how long a server may take to show that it has read its configuration again.
	reloadBound = 5 * time.Second
	// setupRetry is the pause after a setup that failed; after one that did not it grows to setupRefresh.
	setupRetry   = 2 * time.Second
	setupRefresh = 30 * time.Second
	// Restarts of a server that ends: the pause doubles from the first to the last; a server that ran for steadyRun starts afresh.
	restartFirst = 500 * time.Millisecond
	restartLast  = 30 * time.Second
	steadyRun    = time.Minute
	// failuresReported is after how many failures in a row the instance counts as failed.
	failuresReported = 3
	// Data that cannot be made is a problem after seedPatience; the pause between attempts grows to cloneLast.
	seedPatience = 30 * time.Second
	cloneFirst   = time.Second
	cloneLast    = 15 * time.Second
	// releaseTimeout bounds the last words to the API server.
	releaseTimeout = 3 * time.Second
	// flushTimeout bounds writing the rest of the log at the end.
	flushTimeout = 2 * time.Second
	// DefaultFollowBound is how long a standby that says it cannot follow may try before it is cloned again.
	DefaultFollowBound = 10 * time.Second
	// promoteRetry is how long a promotion may take before it is asked for again.
	promoteRetry = 5 * time.Second
	// DefaultStopBound leaves some seconds of the grace period that the operator gives Pods, 180 s.
	DefaultStopBound = 160 * time.Second
)
