package recovery

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/backrest"
	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/agent/sql"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// UnreachableError is that a repository could not be read.
type UnreachableError struct{ error }

// Unwrap is what went wrong.
func (e UnreachableError) Unwrap() error { return e.error }

// Repository is one that is recovered from.
type Repository struct {
	Tool *backrest.Tool
	// Configuration is the name of the tool's configuration for it.
	Configuration string
	// Stanza is where its backups are; empty: in any.
	Stanza string
}

// Found is a backup to begin with, and how far to go from there.
type Found struct {
	backup.Source
	Target backup.Target
	// Gap is WAL that is missing on the way; nil: none is.
	Gap *backup.Gap
}

// Find finds the backup to begin with. A recovery to the end that would end at WAL that is missing, and succeed, without what came after, is
// refused: that has to be wished, by the position as the target.
func (r Repository) Find(ctx context.Context, major int, target backup.Target) (Found, error) {
	contents, err := r.Tool.Info(ctx, r.Configuration, r.Stanza)
	if err != nil {
		return Found{}, UnreachableError{err}
	}
	for i, c := range contents {
		if version, _, ok := backup.ParseStanza(c.Stanza); ok && version == major {
			if contents[i], err = r.Tool.Follow(ctx, r.Configuration, c, target.Timeline); err != nil {
				return Found{}, UnreachableError{err}
			}
		}
	}
	found := Found{}
	if found.Source, err = backup.Choose(contents, major, target, time.Now()); err != nil {
		return Found{}, err
	}
	found.Target = target
	if target.Immediate { // what comes after the backup is not needed
		return found, nil
	}
	i := slices.IndexFunc(contents, func(c backup.Contents) bool { return c.Stanza == found.Stanza })
	if found.Gap, err = r.Tool.Gap(ctx, r.Configuration, contents[i], found.Backup); err != nil {
		return Found{}, UnreachableError{err}
	}
	found.Target, err = target.Within(found.Gap)
	return found, err
}

// Server is the one that recovers, which nobody else can reach.
type Server struct {
	// Socket is the folder of its socket, Port its port, and Users who may connect there.
	Socket string
	Port   int
	Users  []string
	// Parameters are those that it has beside what a recovery needs.
	Parameters postgres.Parameters
	// Use is called when it has recovered, before it is stopped; nil: there is nothing to do.
	Use func(ctx context.Context, client *sql.Client) error
}

// Recover makes the seeder's data from what was found.
func (r Repository) Recover(ctx context.Context, seeder *datadir.Seeder, found Found, server Server) error {
	return r.recover(ctx, found, server, seeder.Recover)
}

// RecoverBeside makes data from what was found, beside the seeder's, for the recovery in place of that name.
func (r Repository) RecoverBeside(ctx context.Context, seeder *datadir.Seeder, found Found, server Server, attempt string) error {
	return r.recover(ctx, found, server, func(ctx context.Context, recovery datadir.Recovery) error {
		return seeder.RecoverBeside(ctx, attempt, recovery)
	})
}

func (r Repository) recover(ctx context.Context, found Found, server Server, do func(context.Context, datadir.Recovery) error) error {
	client := sql.NewClient(server.Socket, server.Port)
	defer client.Close()
	recovery := datadir.Recovery{
		Restore: func(ctx context.Context, folder string) error {
			return r.Tool.Restore(ctx, r.Configuration, found.Source, folder)
		},
		Parameters: func(folder string) postgres.Parameters {
			parameters := targetParameters(found.Target)
			parameters["restore_command"] = r.Tool.RestoreCommand(r.Configuration, found.Stanza, folder)
			maps.Copy(parameters, server.Parameters)
			return parameters
		},
		Socket: server.Socket, Port: server.Port, Users: server.Users,
		Recovering: func(ctx context.Context) (bool, error) {
			state, err := client.Observe(ctx)
			return state.InRecovery, err
		},
	}
	if server.Use != nil {
		recovery.Use = func(ctx context.Context) error { return server.Use(ctx, client) }
	}
	err := do(ctx, recovery)
	if err != nil && found.Gap != nil {
		err = fmt.Errorf("%w (%s)", err, found.Gap)
	}
	return err
}

// targetParameters are the target as PostgreSQL has it.
func targetParameters(target backup.Target) postgres.Parameters {
	parameters := postgres.Parameters{}
	switch {
	case target.Time != nil:
		parameters["recovery_target_time"] = target.Time.UTC().Format("2006-01-02 15:04:05.999999+00")
	case target.LSN != "":
		parameters["recovery_target_lsn"] = target.LSN
	case target.Name != "":
		parameters["recovery_target_name"] = target.Name
	case target.Immediate:
		parameters["recovery_target"] = "immediate"
	}
	if target.Exclusive {
		parameters["recovery_target_inclusive"] = "off"
	}
	if target.Timeline > 0 {
		parameters["recovery_target_timeline"] = strconv.FormatInt(target.Timeline, 10)
	}
	return parameters
}
