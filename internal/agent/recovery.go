package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/backrest"
	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/agent/recovery"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
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

// recoverData makes the data from a backup, beside the loop, once the lease is held.
func (a *Agent) recoverData(ctx context.Context, w *world) outcome {
	pause := recoveryRetry
	if a.clones.unreachable {
		pause = recoveryReach
	}
	if a.seed.isSettled() && !w.now.Before(a.clones.next) && w.now.Sub(a.clones.last) >= pause {
		a.clones.last = w.now
		a.log.Info("Making the data from a backup", "repository", a.config.Recovery.Repository.Kind, "path", a.config.Recovery.Repository.Path)
		seeder, wanted := *a.seeder, *a.config.Recovery
		settings := a.recoverySettings()
		a.seed = a.begin(ctx, "recover", func(ctx context.Context) error { return a.restore(ctx, &seeder, wanted, settings) })
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
func (a *Agent) restore(ctx context.Context, seeder *datadir.Seeder, wanted agentapi.Recovery, settings backrest.Settings) error {
	tool, err := a.backupTool()
	if err != nil {
		return err
	}
	if _, err := tool.Write(recoveryConfiguration, settings); err != nil {
		return err
	}
	repository := recovery.Repository{Tool: tool, Configuration: recoveryConfiguration}
	found, err := repository.Find(ctx, a.major, wanted.Target)
	host := wanted.Repository.Host
	if errors.As(err, new(recovery.UnreachableError)) && host != "" && !strings.HasPrefix(host, naming.Repository(a.config.Cluster)+".") {
		err = fmt.Errorf("%w. A volume is served as long as its PostgresCluster exists: if that is gone, create the new cluster under its name", err)
	}
	if err != nil {
		return err
	}
	a.log.Info("Restoring", "stanza", found.Stanza, "backup", found.Backup.Label, "ended", found.Backup.Stopped)
	return repository.Recover(ctx, seeder, found, recovery.Server{
		Socket: filepath.Join(a.options.Paths.Run, "recovery"), Port: a.options.Ports.Postgres, Users: a.users(),
	})
}
