package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/pgsteward/pgsteward/internal/agent/verify"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// verifyCommand runs in the Job of a scheduled verification: its result is the verification's.
func verifyCommand() *cobra.Command {
	var bound time.Duration
	var result string
	command := &cobra.Command{
		Use:   "verify",
		Short: "Restores the latest backup of a cluster, checks it and throws it away (in a Pod of its own)",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			ctx, cancel := context.WithTimeoutCause(ctx, bound, fmt.Errorf("the verification has not ended within %s", bound))
			defer cancel()
			came := verify.Run(ctx, verify.Options{
				Config: filepath.Join(naming.PathConfig, naming.FileConfig), Secrets: naming.PathSecrets,
				Data: naming.PathData, Run: naming.PathRun,
				BackupPort: naming.PortBackup, PostgresPort: naming.PortPostgres,
				Users: []string{naming.Superuser}, Output: os.Stdout,
			})
			return report(came, result)
		},
	}
	command.Flags().DurationVar(&bound, "timeout", backup.VerifyBound, "how long the verification may take")
	command.Flags().StringVar(&result, "result", "/dev/termination-log", "the file from which Kubernetes takes a container's last words")
	return command
}

// report leaves the result where the operator reads it. A backup that is no good is an error.
func report(came agentapi.Verification, file string) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // there is not much room
	err := encoder.Encode(came)
	if err == nil {
		err = os.WriteFile(file, text.Bytes(), 0o644) //nolint:gosec // the kubelet reads it
	}
	if err != nil {
		return fmt.Errorf("leaving the result: %w", err)
	}
	if came.Error != "" {
		return errors.New(came.Error)
	}
	return nil
}
