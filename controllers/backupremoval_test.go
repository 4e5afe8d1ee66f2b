package controllers_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/controllers"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// inRepository is an older full backup, and a newer one that another needs.
func inRepository() []backup.Backup {
	at := time.Now().Add(-time.Hour)
	return []backup.Backup{
		{Label: "1F", Type: backup.Full, Stopped: at, Name: "old"}, {Label: "2F", Type: backup.Full, Stopped: at.Add(time.Minute), Name: "full"},
		{Label: "2F_3I", Type: backup.Incremental, Needs: []string{"2F"}, Stopped: at.Add(2 * time.Minute), Name: "incremental"},
	}
}

// repository has the agent say what is in the repository, and how a removal goes, until that is heard.
func (s *stage) repository(backups []backup.Backup, removal *agentapi.RemovalRun) {
	s.Helper()
	s.says = func(status *agentapi.Status) {
		status.Repository = &agentapi.RepositoryReport{Stanza: "pg16-" + system, Ready: true, Known: true, Backups: backups, At: time.Now()}
		status.Removal = removal
	}
	s.until("the repository is known", func() bool {
		report, known := s.r.Reader.Repository(s.cluster()).Get()
		return known && len(report.Backups) == len(backups)
	})
}

// look is a pass over a PostgresBackup.
func (s *stage) look(name string) ctrl.Result {
	s.Helper()
	r := &controllers.PostgresBackup{Reader: s.r.Reader, Writer: s.r.Writer, Recorder: s.recorder}
	result, err := r.Reconcile(s.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: s.namespace, Name: name}})
	require.NoError(s, err)
	return result
}

// remove deletes a PostgresBackup as a user does, and has it looked at.
func (s *stage) remove(name string) ctrl.Result {
	s.Helper()
	b := &v1.PostgresBackup{}
	s.get(b, name)
	require.NoError(s, s.c.Delete(s.Context(), b))
	return s.look(name)
}

// record is the PostgresBackup; nil: it is gone.
func (s *stage) record(name string) *v1.PostgresBackup {
	s.Helper()
	b := &v1.PostgresBackup{}
	err := s.c.Get(s.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, b)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(s, err)
	return b
}

// backedUp is a cluster whose repository has backups, each with its PostgresBackup.
func backedUp(t *testing.T) *stage {
	t.Helper()
	s := onAPIServer(t)
	s.create(`{replicas: 1, version: "16", backup: {retention: 30d, repository: {s3: {
		endpoint: "https://s3.example.com", bucket: backups, credentialsSecret: s3}}}}`)
	s.until("it has data", func() bool { return s.cluster().Status.SystemIdentifier != "" && s.cluster().Status.ReadyReplicas == 1 })
	s.repository(inRepository(), nil)
	for _, one := range inRepository() {
		b := &v1.PostgresBackup{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: one.Name}, Spec: v1.PostgresBackupSpec{Cluster: "prod-db"}}
		require.NoError(t, s.c.Create(t.Context(), b))
		finished := metav1.NewTime(one.Stopped)
		b.Status = v1.PostgresBackupStatus{
			Phase: v1.BackupCompleted, Label: one.Label, SystemIdentifier: system, FinishedAt: &finished, Location: s.location(one.Label),
		}
		require.NoError(t, s.c.Status().Update(t.Context(), b))
		s.look(one.Name)
		require.Contains(t, s.record(one.Name).Finalizers, naming.BackupFinalizer)
	}
	s.agents["prod-db-1"].Answer(agentapi.PathBackupRemove, http.StatusAccepted, "")
	s.events()
	return s
}

// location is where that backup is.
func (s *stage) location(label string) string {
	return "s3://backups/" + s.namespace + "/prod-db/" + label + " at https://s3.example.com"
}

// asked are the removals that the agent was asked for.
func (s *stage) asked() []string {
	s.Helper()
	return slices.DeleteFunc(s.agents["prod-db-1"].Asked(), func(request string) bool {
		return request[:len(agentapi.PathBackupRemove)] != agentapi.PathBackupRemove
	})
}

// TestBackupRemoval: who deletes a PostgresBackup removes its backup from the repository, unless that must stay; then it says why, and how
// to do without. Nothing waits for ever.
func TestBackupRemoval(t *testing.T) {
	t.Parallel()
	t.Run("it is removed", func(t *testing.T) {
		t.Parallel()
		s := backedUp(t)
		assert.NotZero(t, s.remove("old").RequeueAfter)
		b := s.record("old")
		require.NotNil(t, b)
		assert.Equal(t, v1.ReasonRemovingBackup, b.Status.Reason)
		id := string(b.UID) + "/remove-1"
		require.Equal(t, []string{agentapi.PathBackupRemove + ` {"id":"` + id + `","stanza":"pg16-` + system + `","label":"1F"}`}, s.asked())
		s.look("old")
		assert.Len(t, s.asked(), 1, "it is asked once")
		now := time.Now()
		s.repository(inRepository()[1:], &agentapi.RemovalRun{ID: id, Label: "1F", Ended: &now})
		s.look("old")
		assert.Nil(t, s.record("old"))
		s.told("Normal BackupRemoved The backup 1F is not in the repository any more")
	})
	t.Run("it is needed", func(t *testing.T) {
		t.Parallel()
		s := backedUp(t)
		assert.NotZero(t, s.remove("full").RequeueAfter)
		b := s.record("full")
		require.NotNil(t, b)
		assert.Equal(t, int64(2), b.Generation, "by which the controller hears of a deletion")
		assert.Equal(t, v1.ReasonBackupNeeded, b.Status.Reason)
		assert.Contains(t, b.Status.Message, "other backups need it: incremental (2F_3I)")
		assert.Contains(t, b.Status.Message, naming.AnnotationKeepInRepository+"=true")
		s.told("Warning BackupNeeded The backup stays, since other backups need it: incremental (2F_3I)")
		s.look("full")
		assert.Empty(t, s.events(), "it is said once")

		before := b.DeepCopy()
		b.Annotations = map[string]string{naming.AnnotationKeepInRepository: "true"}
		require.NoError(t, s.c.Patch(t.Context(), b, client.MergeFrom(before)))
		s.look("full")
		assert.Nil(t, s.record("full"))
		s.told("Normal BackupLeft The backup 2F is left in the repository (" + s.location("2F") + ")")
		assert.Empty(t, s.asked())
	})
	t.Run("it cannot be removed", func(t *testing.T) {
		t.Parallel()
		s := backedUp(t)
		s.agents["prod-db-1"].Answer(agentapi.PathBackupRemove, http.StatusConflict, "the repository cannot be used yet")
		assert.NotZero(t, s.remove("old").RequeueAfter)
		assert.Contains(t, s.record("old").Status.Message, "the repository cannot be used yet")
		s.told("Normal RemovingBackup")
		s.look("old")
		assert.Len(t, s.asked(), 1, "not again at once")
		s.r.Reader.Now = func() time.Time { return time.Now().Add(2 * time.Minute) }
		s.look("old")
		assert.Len(t, s.asked(), 2)
		s.told("Normal RemovingBackup")
		s.r.Reader.Now = func() time.Time { return time.Now().Add(time.Hour) }
		s.look("old")
		s.r.Reader.Now = func() time.Time { return time.Now().Add(2 * time.Hour) }
		s.look("old")
		assert.Nil(t, s.record("old"))
		s.told("Warning BackupLeft The backup 1F is left in the repository (" + s.location("1F") + "): it could not be removed for 30m0s")
	})
	t.Run("it is in another repository", func(t *testing.T) {
		t.Parallel()
		s := backedUp(t)
		b := s.record("old")
		b.Status.Location = "s3://before/" + s.namespace + "/prod-db/1F"
		require.NoError(t, s.c.Status().Update(t.Context(), b))
		s.remove("old")
		assert.Nil(t, s.record("old"))
		assert.Empty(t, s.asked())
		s.told("Warning BackupLeft The backup 1F is left in the repository (" + b.Status.Location + "): it is not in the repository that PostgresCluster prod-db has now")
	})
	t.Run("its cluster goes", func(t *testing.T) {
		t.Parallel()
		s := backedUp(t)
		s.remove("full")
		s.delete()
		s.look("full")
		assert.Nil(t, s.record("full"))
		s.told("Warning BackupLeft The backup 2F is left in the repository (" + s.location("2F") + "): there is no PostgresCluster prod-db any more")
		s.look("incremental")
		assert.Empty(t, s.record("incremental").Finalizers, "nobody could remove it any more")
		s.remove("incremental")
		assert.Nil(t, s.record("incremental"))
	})
	t.Run("its namespace goes", func(t *testing.T) {
		t.Parallel()
		s := backedUp(t)
		require.NoError(t, s.c.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}))
		for _, name := range []string{"old", "full", "incremental"} {
			s.remove(name)
			assert.Nil(t, s.record(name), name)
		}
		assert.Empty(t, s.asked(), "what is in the bucket stays")
	})
}
