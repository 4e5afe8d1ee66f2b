//go:build e2e

package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// TestBackupInPlace: a cluster goes back to before a table was dropped, under its own name; what cannot be is refused while it serves.
func TestBackupInPlace(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	c := create(t, backedUp(namespace, "db", "17", 2))
	startClient(t, namespace)
	c.waitReady(t)
	c.waitServed(t, "before")
	c.waitBackedUp(t)
	c.write(t, "between")
	moment := c.superuser(t, c.primaryPod(t), "SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') FROM pg_sleep(1)")
	c.sql(t, naming.ServiceRW(c.name), "SELECT pg_sleep(1); DROP TABLE seen; CREATE TABLE mistake (n int)")
	timeline := c.get(t).Status.Timeline

	wish := func(name, moment string) string { return fmt.Sprintf(`{"name": %q, "targetTime": %q}`, name, moment) }
	recovery := func(collect require.TestingT) v1.RecoveryStatus {
		s := c.get(collect).Status.Recovery
		require.NotNil(collect, s)
		return *s
	}
	t.Run("what cannot be understood is refused at once", func(t *testing.T) {
		for _, text := range []string{"yesterday", `{"targetTime": "2026-01-01T00:00:00Z"}`, `{"name": "a"}`, wish("a", "2026-01-01T00:00:00")} {
			require.Error(t, c.tryAnnotate(naming.AnnotationRecoverInPlace, text), text)
		}
	})
	t.Run("what cannot be reached changes nothing", func(t *testing.T) {
		c.annotate(t, naming.AnnotationRecoverInPlace, wish("too-early", "2020-01-01T00:00:00Z"))
		eventually(t, boundSettle, "it is refused", func(collect *assert.CollectT) {
			require.Equal(collect, v1.RecoveryRefused, recovery(collect).Phase)
		})
		require.Contains(t, recovery(t).Message, "before the first moment")
		require.Equal(t, timeline, c.get(t).Status.Timeline)
	})
	t.Run("it is recovered to before the mistake", func(t *testing.T) {
		c.annotate(t, naming.AnnotationRecoverInPlace, wish("first", moment))
		eventually(t, 4*boundBackup, "it is done", func(collect *assert.CollectT) {
			s := recovery(collect)
			require.Equal(collect, v1.RecoveryCompleted, s.Phase, s.Message)
		})
		c.waitReady(t)
		require.Equal(t, []string{"before", "between"}, c.rows(t, naming.ServiceRW(c.name)))
		require.Greater(t, c.get(t).Status.Timeline, timeline)
		require.Equal(t, v1.BackupCompleted, c.backup(t, recovery(t).SafetyBackup).Status.Phase)
	})
	t.Run("the standby follows, and takes over with that", func(t *testing.T) {
		c.write(t, "after")
		c.waitRows(t, naming.ServiceRO(c.name), "after", "before", "between")
		c.deletePod(t, c.primaryPod(t), true)
		c.waitReady(t)
		require.Equal(t, []string{"after", "before", "between"}, c.rows(t, naming.ServiceRW(c.name)))
		c.waitArchived(t, c.switchWAL(t))
	})
	t.Run("it is done once", func(t *testing.T) {
		require.Equal(t, "first", recovery(t).Name)
		require.Equal(t, v1.RecoveryCompleted, recovery(t).Phase)
	})
}
