package observe

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
)

// TestCourse: the CronJob and the names of the PostgresBackups say for which times backups were begun; the status says what is accounted for.
func TestCourse(t *testing.T) {
	t.Parallel()
	day := func(n, hour int) time.Time { return time.Date(2026, time.March, n, hour, 0, 0, 0, time.UTC) }
	now, wanted := day(5, 12), Wanted{Schedule: "0 2 * * *", TimeZone: "Etc/UTC"}
	job := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "db-backup"}}
	objects := Objects{"CronJob": []client.Object{job}}
	c := &v1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Name: "db"}}
	assert.Zero(t, course(objects, c, nil, wanted, now), "nothing was told yet")

	c.Status.Backup = &v1.BackupStatus{NextScheduled: &metav1.Time{Time: day(3, 2)}}
	job.Status.LastScheduleTime = &metav1.Time{Time: day(5, 2)}
	got := course(objects, c, nil, wanted, now)
	assert.Equal(t, 2, got.Missed)
	assert.True(t, day(4, 2).Equal(got.Last), got.Last)

	third := v1.PostgresBackup{ObjectMeta: metav1.ObjectMeta{Name: "db-backup-29541720"}} // the minutes until day(3, 2)
	got = course(objects, c, []v1.PostgresBackup{third, {ObjectMeta: metav1.ObjectMeta{Name: "db-backup-by-hand"}}}, wanted, now)
	assert.Equal(t, 1, got.Missed)

	c.Status.Backup.NextScheduled, c.Status.Backup.WaitingSince = &metav1.Time{Time: day(6, 2)}, &metav1.Time{Time: day(4, 2)}
	assert.Equal(t, 1, course(objects, c, nil, wanted, now).Missed, "what waited is not forgotten")
	assert.Zero(t, course(objects, c, nil, Wanted{}, now), "there is no schedule any more")
}
