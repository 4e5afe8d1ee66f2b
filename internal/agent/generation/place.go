package generation

import (
	"context"
	"log/slog"

	"github.com/jackc/pgx/v5"

	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/agent/supervise"
	"github.com/pgsteward/pgsteward/internal/agentapi"
)

// Place is what the agent lends to the parts of this package. The agent makes it anew when its configuration changes, and ends what runs
// with the old one first.
type Place struct {
	Log      *slog.Logger
	Children *supervise.Children
	// Instance is this one, and Upgrade is what the configuration says.
	Instance string
	Upgrade  agentapi.Upgrade
	// Source is the instance that is the primary of the live generation.
	Source string
	// Old and New are the data directories of both majors on this volume, and Programs are the image's, of this instance's major.
	Old, New *datadir.Volume
	Programs datadir.Programs
	// Carried is the folder with the old image's programs; empty if there are none.
	Carried string
	// RunDirectory has the sockets; Port is that of the instance's server.
	RunDirectory string
	Port         int
	// Local opens a connection of the superuser to a database of the server that runs here.
	Local func(ctx context.Context, database string) (*pgx.Conn, error)
	// Remote opens a connection of naming.UpgradeUser to a database of another instance's server.
	Remote func(ctx context.Context, instance, database string) (*pgx.Conn, error)
	// Conninfo is a libpq connection string as the superuser naming.UpgradeUser to a database of another instance, for subscriptions and PostgreSQL's
	// programs; Replication is the one of a physical standby.
	Conninfo    func(instance, database string) string
	Replication func(instance string) string
	// Stopped is where the source has stopped for this attempt (in place); empty: it has not.
	Stopped func() string
	// Progress says what is being done just now, for people. It may be called often.
	Progress func(step string)
}
