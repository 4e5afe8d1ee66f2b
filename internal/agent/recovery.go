package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/backrest"
	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/agent/sql"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

const (
	// recoveryConfiguration is the configuration for the repository of a recovery.
	recoveryConfiguration = "recovery"
	// recoveryRetry is the pause after a recovery that failed: it may have copied everything.
	recoveryRetry = time.Minute
	// recoveryReach is the pause if the repository could not be reached, and recoveryPatience for how long that is no problem yet: its host
	// may be starting just now.
	recoveryReach    = 10 * time.Second
	recoveryPatience = time.Minute
	// reasonRecovery is ReasonRecoveryFailed of apis/v1.
	reasonRecovery = "RecoveryFailed"
)

// unreachableError is that a repository could not be read.
type unreachableError struct{ error }

// recoverData makes the data from a backup, beside the loop, once the lease is held.
func (a *Agent) recoverData(ctx context.Context, w *world) outcome {
	pause := recoveryRetry
	if a.clones.unreachable {
		pause = recoveryReach
	}
	if a.seed.isSettled() && !w.now.Before(a.clones.next) && w.now.Sub(a.clones.last) >= pause {
		a.clones.last = w.now
		a.log.Info("Making the data from a backup", "repository", a.config.Recovery.Repository.Kind, "path", a.config.Recovery.Repository.Path)
		seeder, recovery := *a.seeder, *a.config.Recovery
		settings := a.recoverySettings()
		a.seed = a.begin(ctx, "recover", func(ctx context.Context) error { return a.restore(ctx, &seeder, recovery, settings) })
	}
	result := a.seedOutcome(agentapi.RolePrimary, "data is being made from a backup")
	if a.clones.failures > 0 && (!a.clones.unreachable || w.now.Sub(a.clones.since) > recoveryPatience) {
		result.problem = problem(reasonRecovery, "making the data from a backup failed, and is tried again: "+a.clones.message)
	}
	return result
}

// recoverySettings are those of the repository of the recovery. Another cluster's repository host knows us by that cluster's certificate.
func (a *Agent) recoverySettings() backrest.Settings {
	paths := a.options.Paths
	secret := func(key string) string {
		if path := paths.secret(naming.DirRecovery, key); a.config.Recovery.Repository.Kind == agentapi.RepositoryHost {
			if _, err := os.Stat(path); err == nil {
				return path
			}
		}
		return paths.secret(naming.DirServer, key)
	}
	return backrest.Settings{
		Repository: a.config.Recovery.Repository, Secrets: paths.secret(naming.DirRecovery, ""), HostConfig: a.options.HostConfig,
		TLS: backrest.TLS{
			Cert: secret(naming.KeyTLSCert), Key: secret(naming.KeyTLSKey), CA: secret(naming.KeyCACert), Name: naming.ServerCertificate(a.config.Cluster),
		},
		ServerAddress: "*", ServerPort: a.options.Ports.Backup,
	}
}

// restore finds the backup to begin with, and makes the data from it.
func (a *Agent) restore(ctx context.Context, seeder *datadir.Seeder, recovery agentapi.Recovery, settings backrest.Settings) error {
	tool, err := a.backupTool()
	if err != nil {
		return err
	}
	if _, err := tool.Write(recoveryConfiguration, settings); err != nil {
		return err
	}
	contents, err := tool.Info(ctx, recoveryConfiguration, "")
	if host := recovery.Repository.Host; err != nil && host != "" && !strings.HasPrefix(host, naming.Repository(a.config.Cluster)+".") {
		err = fmt.Errorf("%w. A volume is served as long as its PostgresCluster exists: if that is gone, create the new cluster under its name", err)
	}
	if err != nil {
		return unreachableError{err}
	}
	for i, c := range contents {
		if major, _, ok := backup.ParseStanza(c.Stanza); ok && major == a.major {
			if contents[i], err = tool.Follow(ctx, recoveryConfiguration, c, recovery.Target.Timeline); err != nil {
				return unreachableError{err}
			}
		}
	}
	source, err := backup.Choose(contents, a.major, recovery.Target, time.Now())
	if err != nil {
		return err
	}
	target, missing, err := a.withinArchive(ctx, tool, contents, source, recovery.Target)
	if err != nil {
		return err
	}
	a.log.Info("Restoring", "stanza", source.Stanza, "backup", source.Backup.Label, "ended", source.Backup.Stopped)
	socket := filepath.Join(a.options.Paths.Run, "recovery")
	client := sql.NewClient(socket, a.options.Ports.Postgres)
	defer client.Close()
	err = seeder.Recover(ctx, datadir.Recovery{
		Restore: func(ctx context.Context, folder string) error {
			return tool.Restore(ctx, recoveryConfiguration, source, folder)
		},
		Parameters: func(folder string) postgres.Parameters {
			return recoveryParameters(target, tool.RestoreCommand(recoveryConfiguration, source.Stanza, folder))
		},
		Socket: socket, Port: a.options.Ports.Postgres, Users: a.users(),
		Recovering: func(ctx context.Context) (bool, error) {
			state, err := client.Observe(ctx)
			return state.InRecovery, err
		},
	})
	if err != nil && missing != nil {
		err = fmt.Errorf("%w (%s)", err, missing)
	}
	return err
}

// withinArchive is the target of a recovery from that source, and the WAL that is missing on the way; nil: none is. A recovery to the end would end
// there and succeed, without what came after: that has to be wished, by the position as the target.
func (a *Agent) withinArchive(
	ctx context.Context, tool *backrest.Tool, all []backup.Contents, source backup.Source, target backup.Target,
) (backup.Target, *backup.Gap, error) {
	i := slices.IndexFunc(all, func(c backup.Contents) bool { return c.Stanza == source.Stanza })
	gap, err := tool.Gap(ctx, recoveryConfiguration, all[i], source.Backup)
	if err != nil {
		return target, nil, unreachableError{err}
	}
	target, err = target.Within(gap)
	return target, gap, err
}

// recoveryParameters are the target as PostgreSQL has it.
func recoveryParameters(target backup.Target, restoreCommand string) postgres.Parameters {
	parameters := postgres.Parameters{"restore_command": restoreCommand}
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
