package controllers

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/build"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/observe"
	"github.com/pgsteward/pgsteward/internal/status"
)

// keeps says whether the PostgresBackup is to wait, when it is deleted, until its backup is gone: as long as somebody could remove that.
func keeps(b *v1.PostgresBackup, c *v1.PostgresCluster) bool {
	return b.Status.Phase == v1.BackupCompleted && c != nil && c.DeletionTimestamp.IsZero() && c.Spec.Backup != nil
}

// removing says whether the backup of the PostgresBackup is being removed from the repository.
func removing(b *v1.PostgresBackup) bool {
	return !b.DeletionTimestamp.IsZero() && b.Status.Reason == v1.ReasonRemovingBackup
}

// remove is one pass over a PostgresBackup that is being deleted: its backup goes with it, if it may.
func (r *PostgresBackup) remove(ctx context.Context, b *v1.PostgresBackup, c *v1.PostgresCluster, others []v1.PostgresBackup) (ctrl.Result, error) {
	if !slices.Contains(b.Finalizers, naming.BackupFinalizer) {
		return ctrl.Result{}, nil
	}
	deletion, err := r.deletion(ctx, b, c, others)
	if err != nil {
		return ctrl.Result{}, err
	}
	verdict := deletion.Decide()
	if verdict.Removal == backup.Removed || verdict.Removal == backup.Left {
		return ctrl.Result{}, r.release(ctx, b, verdict)
	}
	// the status first, as with a backup: what nobody began counts as failed soon
	if err := r.tell(ctx, b, status.Removal(b.Status, deletion.Now, verdict)); err != nil {
		return ctrl.Result{}, err
	}
	if verdict.Removal != backup.Remove {
		return ctrl.Result{RequeueAfter: verdict.Recheck}, nil
	}
	if err := r.askRemoval(ctx, b, c, deletion, verdict); err != nil {
		verdict = deletion.Failed(err.Error())
		return ctrl.Result{RequeueAfter: verdict.Recheck}, r.tell(ctx, b, status.Removal(b.Status, deletion.Now, verdict))
	}
	return ctrl.Result{RequeueAfter: verdict.Recheck}, nil
}

// release lets the PostgresBackup go, and says what became of its backup.
func (r *PostgresBackup) release(ctx context.Context, b *v1.PostgresBackup, verdict backup.Verdict) error {
	if err := r.Writer.BackupFinalizer(ctx, b, false); err != nil {
		return err
	}
	if verdict.Removal == backup.Removed {
		r.Recorder.Eventf(b, nil, corev1.EventTypeNormal, v1.ReasonBackupRemoved, "Remove", "The backup %s is not in the repository any more", b.Status.Label)
		return nil
	}
	kind, where := corev1.EventTypeWarning, ""
	if verdict.Wished {
		kind = corev1.EventTypeNormal
	}
	if b.Status.Location != "" {
		where = " (" + b.Status.Location + ")"
	}
	r.Recorder.Eventf(b, nil, kind, v1.ReasonBackupLeft, "Remove", "The backup %s is left in the repository%s: %s", b.Status.Label, where, verdict.Message)
	return nil
}

// deletion is the backup that is not wanted any more, and all that matters for whether it can be removed.
func (r *PostgresBackup) deletion(ctx context.Context, b *v1.PostgresBackup, c *v1.PostgresCluster, others []v1.PostgresBackup) (backup.Deletion, error) {
	d := backup.Deletion{Now: r.Reader.Now(), ID: string(b.UID), Label: b.Status.Label, Running: removing(b)}
	if removal := b.Status.Removal; removal != nil {
		d.Attempts, d.Runner = int(removal.Attempts), removal.Runner
		if removal.StartedAt != nil {
			d.Begun = removal.StartedAt.Time
		}
		if removal.FailingSince != nil {
			d.Failing = removal.FailingSince.Time
		}
	}
	if b.Annotations[naming.AnnotationKeepInRepository] == "true" {
		d.Leave = fmt.Sprintf("its annotation %s is true", naming.AnnotationKeepInRepository)
		return d, nil
	}
	ends, err := r.Reader.NamespaceEnds(ctx, b.Namespace)
	if err != nil {
		return d, err
	}
	switch {
	case ends:
		d.Lost = fmt.Sprintf("namespace %s is being deleted", b.Namespace)
	case c == nil:
		d.Lost = fmt.Sprintf("there is no PostgresCluster %s any more, whose instances could remove it", b.Spec.Cluster)
	case !c.DeletionTimestamp.IsZero() && c.Spec.Deletion.Backups == v1.Delete:
		d.Leave = fmt.Sprintf("PostgresCluster %s is being deleted with its PostgresBackups, as its spec.deletion.backups says", c.Name)
	case !c.DeletionTimestamp.IsZero():
		d.Lost = fmt.Sprintf("PostgresCluster %s is being deleted", c.Name)
	case c.Spec.Backup == nil:
		d.Lost = fmt.Sprintf("PostgresCluster %s has no spec.backup any more", c.Name)
	case b.Status.Label == "" || b.Status.SystemIdentifier != c.Status.SystemIdentifier:
		d.Lost = fmt.Sprintf("it is not of the PostgreSQL system that PostgresCluster %s has now", c.Name)
	case b.Status.Location != "" && !build.InRepository(c, b.Status.Location):
		d.Lost = fmt.Sprintf("it is not in the repository that PostgresCluster %s has now", c.Name)
	case c.Spec.Suspend:
		d.Obstacle = fmt.Sprintf("PostgresCluster %s is suspended", c.Name)
	}
	if d.Lost == "" && d.Leave == "" {
		r.addRepository(&d, b, c, others)
	}
	return d, nil
}

// addRepository adds what is known of the repository, and who uses it.
func (r *PostgresBackup) addRepository(d *backup.Deletion, b *v1.PostgresBackup, c *v1.PostgresCluster, others []v1.PostgresBackup) {
	report, _ := r.Reader.Repository(c).Get()
	if _, system, ok := backup.ParseStanza(report.Stanza); ok && system == b.Status.SystemIdentifier && report.Known {
		listed := slices.ContainsFunc(report.Backups, func(one backup.Backup) bool { return one.Label == b.Status.Label })
		d.All = report.Backups
		d.Known = listed || b.Status.FinishedAt == nil || observe.NewerThan(report, b.Status.FinishedAt.Time)
	}
	for i := range others {
		if o := &others[i]; o.UID != b.UID && (o.Status.Phase == v1.BackupRunning || removing(o)) {
			d.Before = o.Name
		}
	}
	if build.HasRepositoryHost(c) {
		d.Host = naming.Repository(c.Name)
	}
	for name, heard := range r.Reader.Agents.Reports(types.NamespacedName{Namespace: c.Namespace, Name: c.Name}) {
		one := backup.Remover{Runner: runner(name, heard)}
		s, known := heard.Status.Get()
		if run := s.Removal; known && run != nil {
			one.Removal = &backup.Attempt{ID: run.ID, Ended: run.Ended != nil, Error: run.Error}
		}
		d.Runners = append(d.Runners, one)
		if known && name != naming.Repository(c.Name) {
			d.Instances = append(d.Instances, instance(name, s))
		}
	}
}

// askRemoval asks for what was decided.
func (r *PostgresBackup) askRemoval(ctx context.Context, b *v1.PostgresBackup, c *v1.PostgresCluster, d backup.Deletion, verdict backup.Verdict) error {
	key := types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
	client, host, ok := r.Reader.Agents.Ask(key, verdict.Runner, r.Reader.Agents.Reports(key)[verdict.Runner].PodUID)
	if !ok {
		return fmt.Errorf("%s is not heard any more", verdict.Runner)
	}
	report, _ := r.Reader.Repository(c).Get()
	return r.Writer.RemoveBackup(ctx, client, host, agentapi.RemovalRequest{
		ID: d.RemovalID(d.Attempts + 1), Stanza: report.Stanza, Label: b.Status.Label,
	})
}
