package controllers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/apply"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/build"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/observe"
	"github.com/pgsteward/pgsteward/internal/status"
)

// PostgresBackup carries out PostgresBackups: it asks an agent, or the repository host, and follows what comes of it.
type PostgresBackup struct {
	Reader   *observe.Reader
	Writer   *apply.Writer
	Recorder events.EventRecorder

	// watched is since when this operator looks after PostgresBackups.
	watched time.Time
	watch   sync.Once
}

// +kubebuilder:rbac:groups=pgsteward.io,resources=postgresbackups,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=pgsteward.io,resources=postgresbackups/status,verbs=get;patch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get
// +kubebuilder:rbac:groups=batch,resources=cronjobs,verbs=get;list;watch;create;patch;delete

// Reconcile is one pass over one PostgresBackup.
func (r *PostgresBackup) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	r.watch.Do(func() { r.watched = r.Reader.Now() })
	b, err := r.Reader.Backup(ctx, request.NamespacedName)
	if apierrors.IsNotFound(err) {
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading PostgresBackup %s: %w", request.NamespacedName, err)
	}
	ended := b.Status.Phase == v1.BackupCompleted || b.Status.Phase == v1.BackupFailed
	if !ended && r.Writer.OutdatedBackup(b) {
		return ctrl.Result{RequeueAfter: outdatedRecheck}, nil
	}
	c, err := r.Reader.Cluster(ctx, types.NamespacedName{Namespace: b.Namespace, Name: b.Spec.Cluster})
	if apierrors.IsNotFound(err) {
		c = nil
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading the PostgresCluster of PostgresBackup %s: %w", request.NamespacedName, err)
	}
	others, err := r.Reader.BackupsOf(ctx, types.NamespacedName{Namespace: b.Namespace, Name: b.Spec.Cluster})
	if err != nil {
		return ctrl.Result{}, err
	}
	if !b.DeletionTimestamp.IsZero() {
		return r.remove(ctx, b, c, others)
	}
	if ended {
		return ctrl.Result{}, r.Writer.BackupFinalizer(ctx, b, keeps(b, c))
	}
	wish := r.wish(b, c, others)
	decision := backup.Next(wish)
	next := status.Backup(b.Status, wish, decision, c)
	if decision.Step == backup.Complete && c != nil {
		next.Location = build.BackupLocation(c, next.Label)
	}
	// the status first: should we end here, the attempt counts as lost, while one that is not in the status would run unseen
	if err := r.tell(ctx, b, next); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.act(ctx, b, c, wish, decision); err != nil {
		return ctrl.Result{}, err
	}
	if decision.Step == backup.Complete {
		if err := r.Writer.BackupFinalizer(ctx, b, keeps(b, c)); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{RequeueAfter: decision.Recheck}, nil
}

// wish is the backup that was asked for, and all that matters for it.
func (r *PostgresBackup) wish(b *v1.PostgresBackup, c *v1.PostgresCluster, others []v1.PostgresBackup) backup.Wish {
	w := backup.Wish{
		Now: r.Reader.Now(), ID: string(b.UID), Created: b.CreationTimestamp.Time, Watched: r.watched,
		Attempts: int(b.Status.Attempts), Running: b.Status.Phase == v1.BackupRunning, Runner: b.Status.Runner,
	}
	if b.Status.StartedAt != nil {
		w.Started = b.Status.StartedAt.Time
	}
	if b.Status.FinishedAt != nil {
		w.Failed = b.Status.FinishedAt.Time
	}
	for i := range others {
		if o := &others[i]; comesBefore(o, b) {
			w.Before = append(w.Before, o.Name)
		}
	}
	switch {
	case c == nil:
		w.Obstacle = fmt.Sprintf("there is no PostgresCluster %s in namespace %s", b.Spec.Cluster, b.Namespace)
		return w
	case !c.DeletionTimestamp.IsZero() && b.Name != naming.FinalBackup(c.Name, string(c.UID)):
		w.Obstacle, w.Hopeless = fmt.Sprintf("PostgresCluster %s is being deleted", c.Name), true
	case c.Spec.Backup == nil:
		w.Obstacle, w.Hopeless = fmt.Sprintf("PostgresCluster %s has no spec.backup, which says where backups go: add it, and create another PostgresBackup", c.Name), true
	case c.Spec.Suspend:
		w.Obstacle = fmt.Sprintf("PostgresCluster %s is suspended", c.Name)
	}
	if build.HasRepositoryHost(c) {
		w.Host = naming.Repository(c.Name)
	}
	for name, heard := range r.Reader.Agents.Reports(types.NamespacedName{Namespace: c.Namespace, Name: c.Name}) {
		w.Runners = append(w.Runners, runner(name, heard))
		s, known := heard.Status.Get()
		if !known || name == naming.Repository(c.Name) {
			continue
		}
		w.Instances = append(w.Instances, instance(name, s))
		if ready := s.Repository != nil && s.Repository.Ready; s.Role == agentapi.RolePrimary && !ready && w.Host == "" && w.Obstacle == "" {
			w.Obstacle = "the primary is preparing the repository"
			if s.Repository != nil && s.Repository.Error != "" {
				w.Obstacle = s.Repository.Error
			}
		}
	}
	return w
}

// comesBefore says whether the other backup, of the same cluster, is to end before this one begins: one at a time, the oldest first.
func comesBefore(other, b *v1.PostgresBackup) bool {
	if removing(other) { // the repository is for one at a time
		return other.UID != b.UID
	}
	if other.UID == b.UID || other.Status.Phase == v1.BackupCompleted || other.Status.Phase == v1.BackupFailed {
		return false
	}
	if other.Status.Phase == v1.BackupRunning || other.CreationTimestamp.Before(&b.CreationTimestamp) {
		return true
	}
	return other.CreationTimestamp.Equal(&b.CreationTimestamp) && other.Name < b.Name
}

func instance(name string, s agentapi.Status) backup.Instance {
	i := backup.Instance{
		Name: name, Primary: s.Role == agentapi.RolePrimary, Standby: s.Role == agentapi.RoleStandby,
		Serves: s.Ready && s.State == agentapi.StateRunning && (s.Role == agentapi.RolePrimary || s.Streaming),
		System: s.SystemIdentifier,
	}
	if s.LagBytes != nil {
		i.Lag = *s.LagBytes
	}
	return i
}

func runner(name string, heard observe.Heard) backup.Runner {
	s, known := heard.Status.Get()
	one := backup.Runner{Name: name, Heard: known, Silent: heard.UnheardFor, Ready: true}
	if report := s.Repository; report != nil {
		one.Ready, one.Error = report.Ready || report.Error == "" && s.Role == agentapi.RoleStandby, report.Error
	} else if s.Role != agentapi.RoleStandby { // a standby asks nothing of the repository until it makes a backup
		one.Ready = false
	}
	if run := s.Backup; run != nil {
		one.Attempt = &backup.Attempt{ID: run.ID, Ended: run.Ended != nil, Error: run.Error, Result: run.Result}
	}
	return one
}

// act asks for what was decided.
func (r *PostgresBackup) act(ctx context.Context, b *v1.PostgresBackup, c *v1.PostgresCluster, w backup.Wish, d backup.Decision) error {
	if d.Step != backup.Begin && d.Step != backup.Cancel {
		return nil
	}
	key := types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
	client, host, ok := r.Reader.Agents.Ask(key, d.Runner, r.Reader.Agents.Reports(key)[d.Runner].PodUID)
	if !ok {
		return nil // it is not followed any more: the next pass sees that
	}
	if d.Step == backup.Cancel {
		return r.Writer.CancelBackup(ctx, client, host, w.AttemptID(w.Attempts))
	}
	return r.Writer.Backup(ctx, client, host, agentapi.BackupRequest{
		ID: w.AttemptID(w.Attempts + 1), Name: b.Name, Type: backup.Type(b.Spec.Type), Method: backup.Type(c.Spec.Backup.Method),
		FullEverySeconds: int64(build.FullEvery(c) / time.Second), Primary: d.Place.Primary, Standby: d.Place.Standby,
	})
}

// tell writes the status and says what is new in an event.
func (r *PostgresBackup) tell(ctx context.Context, b *v1.PostgresBackup, next v1.PostgresBackupStatus) error {
	before := b.Status
	if err := r.Writer.BackupStatus(ctx, b, next); err != nil {
		return err
	}
	if before.Phase == next.Phase && (before.Reason == next.Reason || next.Reason == "") {
		return nil
	}
	kind := corev1.EventTypeNormal
	if slices.Contains([]string{v1.ReasonBackupFailed, v1.ReasonWaitingForCluster, v1.ReasonBackupNeeded, v1.ReasonBackupRemovalFailed}, next.Reason) {
		kind = corev1.EventTypeWarning
	}
	if next.Reason != "" {
		r.Recorder.Eventf(b, nil, kind, next.Reason, "Backup", "%s", next.Message)
	}
	return nil
}
