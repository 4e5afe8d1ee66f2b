package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/backrest"
	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/agent/recovery"
	"github.com/pgsteward/pgsteward/internal/agent/supervise"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

const (
	// configuration is the name of the configuration for the repository.
	configuration = "verification"
	// socketFolder is where the server has its socket, in Run.
	socketFolder = "verification"
	// reachPause is the pause after the repository could not be read, reachPatience for how long that may be so: its host, or the store,
	// may be restarted just now.
	reachPause    = 10 * time.Second
	reachPatience = 10 * time.Minute
	// maxError bounds the error: Kubernetes takes 4096 bytes from a Pod that ends.
	maxError = 1500
)

// Options are what a verification is started with.
type Options struct {
	// Config is the cluster's configuration, Secrets the folder of its Secrets.
	Config, Secrets string
	// Data is the volume to restore to, Run a folder for files of the process.
	Data, Run string
	// BackupPort is the repository host's, PostgresPort that of the sockets.
	BackupPort, PostgresPort int
	// Users are the operating system's users that may be the superuser of the server.
	Users []string
	// Credential is what PostgreSQL runs as, if that is another user than this process; HostConfig where the repository host has its
	// configuration, if that is elsewhere than here. They are for tests.
	Credential *syscall.Credential
	HostConfig string
	Output     io.Writer
}

// verification is one that runs.
type verification struct {
	options  Options
	log      *slog.Logger
	children *supervise.Children
	seeder   *datadir.Seeder
	result   agentapi.Verification
}

// Run verifies the latest backup. That it is no good, or cannot be verified, is a result too.
func Run(ctx context.Context, options Options) agentapi.Verification {
	v := &verification{
		options: options, children: &supervise.Children{Credential: options.Credential},
		log:    slog.New(slog.NewJSONHandler(options.Output, nil)).With("logger", "verify"),
		result: agentapi.Verification{Started: time.Now().UTC()},
	}
	reaping, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	go v.children.Reap(reaping)
	err := v.verify(ctx)
	v.result.Ended = time.Now().UTC()
	if err != nil {
		v.result.Error = err.Error()
		if len(v.result.Error) > maxError {
			v.result.Error = strings.ToValidUTF8(v.result.Error[:maxError], "") + " …"
		}
	}
	v.log.Info("Ending the verification", "backup", v.result.Label, "checked", v.result.Checked, "skipped", v.result.Skipped, "error", v.result.Error)
	return v.result
}

// verify restores the backup and checks it.
func (v *verification) verify(ctx context.Context) error {
	config, major, err := v.readConfig()
	if err != nil {
		return err
	}
	programs, err := datadir.FindPrograms(ctx, v.children, major)
	if err != nil {
		return err
	}
	if programs.Version.Major != major {
		return fmt.Errorf("the image has PostgreSQL %s, the cluster's version is %d", programs.Version.Text, major)
	}
	repository, err := v.repository(config, major)
	if err != nil {
		return err
	}
	found, err := v.find(ctx, repository, major)
	if err != nil {
		return err
	}
	v.result.Label, v.result.Name = found.Backup.Label, found.Backup.Name
	v.log.Info("Restoring", "stanza", found.Stanza, "backup", found.Backup.Label, "ended", found.Backup.Stopped)
	v.seeder = &datadir.Seeder{Children: v.children, Programs: programs, Volume: datadir.NewVolume(v.options.Data, major, v.chown)}
	defer v.discard()
	err = repository.Recover(ctx, v.seeder, found, recovery.Server{
		Socket: filepath.Join(v.options.Run, socketFolder), Port: v.options.PostgresPort, Users: v.options.Users,
		Parameters: apart(), Use: v.checkRelations,
	})
	if err != nil {
		return err
	}
	return v.checkPages(ctx, v.seeder.Volume.Dir())
}

// apart are the parameters that keep the server to itself. The data is the cluster's: it may have subscriptions, whose workers would take
// what the cluster's are to get, and event triggers, which may do anything.
func apart() postgres.Parameters {
	return postgres.Parameters{
		"archive_mode":                    "off",
		"max_logical_replication_workers": "0",
		"session_replication_role":        "replica",
		"autovacuum":                      "off",
		"fsync":                           "off", // the data is thrown away
	}
}

// readConfig reads what the cluster is.
func (v *verification) readConfig() (agentapi.Config, int, error) {
	var config agentapi.Config
	content, err := os.ReadFile(v.options.Config)
	if err != nil {
		return config, 0, fmt.Errorf("reading the configuration: %w", err)
	}
	if err := json.Unmarshal(content, &config); err != nil {
		return config, 0, fmt.Errorf("reading the configuration: %w", err)
	}
	major, err := strconv.Atoi(config.Version)
	switch {
	case err != nil:
		return config, 0, fmt.Errorf("version %s is no major of PostgreSQL", config.Version)
	case config.Backup == nil:
		return config, 0, errors.New("the cluster has no spec.backup")
	case config.SystemIdentifier == "":
		return config, 0, errors.New("the cluster has no data yet")
	}
	return config, major, nil
}

// repository is that of the cluster, of which only its present PostgreSQL system counts.
func (v *verification) repository(config agentapi.Config, major int) (recovery.Repository, error) {
	program, err := backrest.Find()
	if err != nil {
		return recovery.Repository{}, err
	}
	secret := func(key string) string { return filepath.Join(v.options.Secrets, naming.DirServer, key) }
	tool := &backrest.Tool{Children: v.children, Program: program, Work: filepath.Join(v.options.Run, "backrest"), Chown: v.chown}
	_, err = tool.Write(configuration, backrest.Settings{
		Repository: config.Backup.Repository, Secrets: filepath.Join(v.options.Secrets, naming.DirBackup), HostConfig: v.options.HostConfig,
		TLS: backrest.TLS{
			Cert: secret(naming.KeyTLSCert), Key: secret(naming.KeyTLSKey), CA: secret(naming.KeyCACert), Name: naming.ServerCertificate(config.Cluster),
		},
		ServerAddress: "localhost", ServerPort: v.options.BackupPort,
	})
	return recovery.Repository{Tool: tool, Configuration: configuration, Stanza: backup.Stanza(major, config.SystemIdentifier)}, err
}

// find finds the latest good backup, and how to get to its end. A repository that does not answer has some time to come back.
func (v *verification) find(ctx context.Context, repository recovery.Repository, major int) (recovery.Found, error) {
	for {
		found, err := repository.Find(ctx, major, backup.Target{Immediate: true})
		if !errors.As(err, new(recovery.UnreachableError)) || time.Since(v.result.Started) > reachPatience {
			return found, err
		}
		v.log.Warn("Reading the repository failed, and is tried again", "error", err)
		timer := time.NewTimer(reachPause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return found, errors.Join(context.Cause(ctx), err)
		case <-timer.C:
		}
	}
}

// chown gives a path to the user that PostgreSQL runs as.
func (v *verification) chown(path string) error {
	if v.options.Credential == nil {
		return nil
	}
	return os.Chown(path, int(v.options.Credential.Uid), int(v.options.Credential.Gid))
}

// discard removes the data: the Pod, and with it the volume, stays for a while, so that its result can be read.
func (v *verification) discard() {
	if err := v.seeder.Volume.Remove(); err != nil {
		v.log.Warn("Removing the restored data failed", "error", err)
	}
}
