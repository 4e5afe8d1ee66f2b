package cmd

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pgsteward/pgsteward/internal/agent/repository"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// repositoryCommand runs in the Pod that has the volume with backups.
func repositoryCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "repository",
		Short: "Serves backups and WAL from a volume (in its Pod)",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			name, uid := os.Getenv(envInstance), os.Getenv(envPodUID)
			if name == "" || uid == "" {
				return errors.New(envInstance + " or " + envPodUID + " is not set; the repository host is started by the operator, in a Pod of its own")
			}
			host, err := repository.New(repository.Options{
				Name: name, PodUID: uid, Version: version,
				Data: naming.PathData, Run: naming.PathRun, Secrets: naming.PathSecrets,
				Config:      filepath.Join(naming.PathConfig, naming.FileConfig),
				InstanceRun: naming.PathRun, InstanceData: naming.PathData,
				AgentPort: naming.PortAgent, HealthPort: naming.PortHealth, BackupPort: naming.PortBackup, PostgresPort: naming.PortPostgres,
				Output: os.Stdout,
			})
			if err != nil {
				return err
			}
			return host.Run(ctx)
		},
	}
}
