package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

const (
	envJob = "JOB_NAME"
	// backupPoll is how often the backup is looked at.
	backupPoll = 5 * time.Second
	// backupRetry bounds for how long the API server may be out.
	backupRetry = 10 * time.Minute
	// defaultBackupBound is how long a backup may take, all its attempts included.
	defaultBackupBound = 3 * 24 * time.Hour
)

// backupCommand runs in the Job of a scheduled backup: its result is the backup's.
func backupCommand() *cobra.Command {
	var cluster, kind string
	var bound time.Duration
	command := &cobra.Command{
		Use:   "backup",
		Short: "Asks for a backup of a cluster and waits for it",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			ctx, cancel := context.WithTimeoutCause(ctx, bound, fmt.Errorf("the backup has not ended within %s", bound))
			defer cancel()
			config, err := ctrl.GetConfig()
			if err != nil {
				return fmt.Errorf("access to Kubernetes: %w", err)
			}
			scheme := runtime.NewScheme()
			if err := v1.AddToScheme(scheme); err != nil {
				return fmt.Errorf("making the scheme: %w", err)
			}
			api, err := client.New(config, client.Options{Scheme: scheme})
			if err != nil {
				return fmt.Errorf("access to Kubernetes: %w", err)
			}
			wanted := &v1.PostgresBackup{
				ObjectMeta: metav1.ObjectMeta{Namespace: os.Getenv(envNamespace), Name: os.Getenv(envJob), Labels: naming.ClusterLabels(cluster)},
				Spec:       v1.PostgresBackupSpec{Cluster: cluster, Type: v1.BackupType(kind)},
			}
			if cluster == "" || wanted.Namespace == "" || wanted.Name == "" {
				return errors.New("--cluster, " + envNamespace + " and " + envJob + " must be set; to ask for a backup by hand create a PostgresBackup")
			}
			return backUp(ctx, api, wanted, backupPoll)
		},
	}
	command.Flags().StringVar(&cluster, "cluster", "", "the PostgresCluster to back up")
	command.Flags().StringVar(&kind, "type", "", "full, differential or incremental; default: as spec.backup.method says")
	command.Flags().DurationVar(&bound, "timeout", defaultBackupBound, "how long the backup may take")
	return command
}

// backUp creates the PostgresBackup, unless an earlier Pod of the Job has, and waits until it has ended. Its failure is an error.
func backUp(ctx context.Context, api client.Client, wanted *v1.PostgresBackup, poll time.Duration) error {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	created, said, out := false, "", time.Now()
	for {
		b := wanted.DeepCopy()
		var err error
		if !created {
			err = api.Create(ctx, b)
			created = err == nil || apierrors.IsAlreadyExists(err)
		}
		if created {
			err = api.Get(ctx, client.ObjectKeyFromObject(wanted), b)
		}
		switch {
		case apierrors.IsNotFound(err) && created:
			return fmt.Errorf("PostgresBackup %s was deleted", wanted.Name)
		case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
			return fmt.Errorf("asking for the backup: %w", err)
		case err != nil:
			if time.Since(out) > backupRetry {
				return fmt.Errorf("asking for the backup: %w", err)
			}
		default:
			out = time.Now()
			if text := fmt.Sprintf("%s: %s %s", b.Name, b.Status.Phase, b.Status.Message); text != said {
				said = text
				fmt.Println(text)
			}
			switch b.Status.Phase {
			case v1.BackupCompleted:
				return nil
			case v1.BackupFailed:
				return fmt.Errorf("PostgresBackup %s failed: %s", b.Name, b.Status.Message)
			case v1.BackupPending, v1.BackupRunning:
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}
