//go:build e2e

package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// benchRows make about 700 MiB of data and indexes.
const benchRows = 4_000_000

// TestBenchBackup measures what backups cost: how long one takes, full and incremental, against pg_basebackup of the same data in the same run;
// how long a recovery takes beyond the start of an empty cluster; and how many transactions a primary makes while it is backed up, against
// those before. It asserts only that all of that works.
func TestBenchBackup(t *testing.T) {
	namespace := newNamespace(t)
	startClient(t, namespace)
	size := resource.MustParse("4Gi")
	wanted := backedUp(namespace, "db", "17", 2)
	wanted.Spec.Storage.Size = &size
	c := create(t, wanted.DeepCopy())
	c.waitReady(t)
	c.waitBackedUp(t)
	primary := c.primaryPod(t)
	c.superuser(t, primary, fmt.Sprintf(`CREATE TABLE load AS SELECT g AS id, md5(g::text) || md5((-g)::text) AS value FROM generate_series(1, %d) g;
		ALTER TABLE load ADD PRIMARY KEY (id); CHECKPOINT`, benchRows))
	bytes, err := strconv.ParseFloat(c.superuser(t, primary, "SELECT sum(pg_database_size(oid)) FROM pg_database"), 64)
	require.NoError(t, err)
	c.waitSound(t)

	standby := c.standbyPod(t)
	plain := c.took(t, standby, `pg_basebackup -d "$(psql -XAtq -U postgres -d postgres -c 'SHOW primary_conninfo')" -D - -Ft -X none -c fast >/dev/null`)
	measured := func(what string, took time.Duration) {
		t.Logf("MEASURED: %s: %.1f s, %.0f MB/s, %.2f of pg_basebackup's time", what, took.Seconds(), bytes/1e6/took.Seconds(), took.Seconds()/plain.Seconds())
	}
	measured(fmt.Sprintf("pg_basebackup of %.0f MB to /dev/null", bytes/1e6), plain)
	quiet := c.transactions(t, primary, 20*time.Second)
	for _, kind := range []v1.BackupType{v1.BackupFull, v1.BackupIncremental} {
		measured(string(kind)+" backup", c.measureBackup(t, "bench-"+string(kind), kind))
	}
	done := make(chan time.Duration, 1)
	go func() { done <- c.measureBackup(t, "bench-busy", v1.BackupFull) }()
	busy := c.transactions(t, primary, 20*time.Second)
	measured("full backup under load", <-done)
	t.Logf("MEASURED: transactions: %.0f/s before, %.0f/s while it was backed up: %.2f", quiet, busy, busy/quiet)

	c.waitArchived(t, c.switchWAL(t))
	object := newCluster(namespace, "recovered", "17", 1)
	object.Spec.Storage.Size = &size
	object.Spec.Bootstrap = recoveryOf(wanted, "")
	began := time.Now()
	create(t, newCluster(namespace, "empty", "17", 1)).waitReady(t)
	empty := time.Since(began)
	began = time.Now()
	recovered := create(t, object)
	recovered.waitReady(t)
	took := time.Since(began)
	measured(fmt.Sprintf("recovery to the end (ready after %.1f s, an empty cluster after %.1f s): the difference", took.Seconds(), empty.Seconds()), took-empty)
	require.Equal(t, strconv.Itoa(benchRows), recovered.superuser(t, recovered.primaryPod(t), "SELECT count(*) FROM load"))
}

// standbyPod is the Pod of a standby.
func (c cluster) standbyPod(t *testing.T) string {
	t.Helper()
	primary := c.primaryPod(t)
	for name := range c.pods(t) {
		if name != primary {
			return name
		}
	}
	require.Fail(t, "there is no standby")
	return ""
}

// took runs a shell command in the container of PostgreSQL, and says how long it took there.
func (c cluster) took(t *testing.T, pod, command string) time.Duration {
	t.Helper()
	out, err := inPod(c.namespace, pod, naming.ContainerPostgres, "", "sh", "-c", "set -e; began=$(date +%s%N); "+command+"; echo $(( $(date +%s%N) - began ))")
	require.NoError(t, err)
	fields := strings.Fields(out)
	nanoseconds, err := strconv.ParseInt(fields[len(fields)-1], 10, 64)
	require.NoError(t, err, out)
	return time.Duration(nanoseconds)
}

// transactions is how many small ones a connection commits in a second, one after the other.
func (c cluster) transactions(t *testing.T, pod string, period time.Duration) float64 {
	t.Helper()
	c.superuser(t, pod, "DROP TABLE IF EXISTS bench; CREATE TABLE bench (id bigserial PRIMARY KEY, value text)")
	c.superuser(t, pod, fmt.Sprintf(`DO $$ DECLARE until timestamptz := clock_timestamp() + interval '%d s'; BEGIN
		WHILE clock_timestamp() < until LOOP INSERT INTO bench (value) VALUES (md5(random()::text)); COMMIT; END LOOP; END $$`, int(period.Seconds())))
	committed, err := strconv.ParseFloat(c.superuser(t, pod, "SELECT count(*) FROM bench"), 64)
	require.NoError(t, err)
	return committed / period.Seconds()
}

// measureBackup asks for a backup, and says how long the attempt took.
func (c cluster) measureBackup(t *testing.T, name string, kind v1.BackupType) time.Duration {
	t.Helper()
	began := time.Now()
	assert.NoError(t, kube.Create(t.Context(), &v1.PostgresBackup{ObjectMeta: meta(c.namespace, name), Spec: v1.PostgresBackupSpec{Cluster: c.name, Type: kind}}))
	for time.Since(began) < boundBackup {
		switch b := c.backup(t, name); b.Status.Phase {
		case v1.BackupCompleted:
			return time.Since(began)
		case v1.BackupFailed:
			assert.Fail(t, "the backup failed", b.Status.Message)
			return time.Since(began)
		case v1.BackupPending, v1.BackupRunning, "":
			time.Sleep(tick / 5)
		}
	}
	assert.Fail(t, "the backup took too long", name)
	return time.Since(began)
}
