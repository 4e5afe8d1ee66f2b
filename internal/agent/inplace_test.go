package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
)

// TestInPlace: a cluster goes back to before a table was dropped. The present data serves until the recovered data is there, and is put back if no
// server runs on that; the standby follows, and takes over with what was recovered.
func TestInPlace(t *testing.T) {
	t.Parallel()
	needBackrest(t)
	c := newTestCluster(t, 2)
	withRepository(t, c)
	primary, standby := startForBackups(c, "db-1"), startForBackups(c, "db-2")
	primary.awaitReady(agentapi.RolePrimary)
	standby.awaitReady(agentapi.RoleStandby)
	primary.await(backupBound, "ready to be backed up", func(s agentapi.Status) bool { return s.Repository != nil && s.Repository.Ready })
	_, err := primary.query("postgres", "CREATE TABLE t AS SELECT 1 AS n")
	require.NoError(t, err)
	require.Empty(t, primary.backUp("first", "", "db-1", "").Error)
	_, err = primary.query("postgres", "INSERT INTO t VALUES (2)")
	require.NoError(t, err)
	text := primary.ask("SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') || 'Z' FROM pg_sleep(0.1)")
	moment, err := backup.ParseTime(text)
	require.NoError(t, err)
	_, err = primary.query("postgres", "SELECT pg_sleep(1.2)")
	require.NoError(t, err)
	_, err = primary.query("postgres", "DROP TABLE t")
	require.NoError(t, err)
	primary.archived()
	system := primary.status().SystemIdentifier

	wish := func(name string) agentapi.InPlaceReport {
		c.change(func(config *agentapi.Config) {
			config.InPlace = &agentapi.InPlace{Name: name, Target: backup.Target{Time: &moment}}
		})
		status := primary.await(backupBound, "done with the data of "+name, func(s agentapi.Status) bool {
			return s.InPlace != nil && s.InPlace.Name == name && s.InPlace.Stage != agentapi.InPlacePreparing
		})
		assert.True(t, status.Ready, "it serves all the time")
		return *status.InPlace
	}
	announce := func(timeline int64) {
		c.change(func(config *agentapi.Config) {
			config.Floor = &agentapi.Floor{SystemIdentifier: system, Timeline: timeline}
		})
		for _, a := range []*testAgent{primary, standby} {
			a.await(short, "aware of what may take over", func(s agentapi.Status) bool { return s.Floor == timeline })
		}
	}
	replace := func() { c.change(func(config *agentapi.Config) { config.InPlace.Replace = true }) }

	report := wish("broken")
	require.Equal(t, agentapi.InPlacePrepared, report.Stage, report.Error)
	require.Equal(t, int64(2), report.Timeline)
	files, err := filepath.Glob(primary.dataDir() + ".recovered/pg_wal/0*")
	require.NoError(t, err)
	for _, file := range files {
		require.NoError(t, os.Remove(file))
	}
	announce(report.Timeline)
	replace()
	failed := primary.await(2*long, "back", func(s agentapi.Status) bool {
		return s.InPlace != nil && s.InPlace.Stage == agentapi.InPlaceFailed
	})
	assert.Contains(t, failed.InPlace.Error, "that before was put back")
	assert.Equal(t, int64(1), primary.awaitReady(agentapi.RolePrimary).Timeline)
	c.change(func(config *agentapi.Config) { config.InPlace, config.Floor = nil, nil })
	standby.awaitReady(agentapi.RoleStandby)
	_, err = primary.query("postgres", "SELECT * FROM t")
	require.ErrorContains(t, err, "does not exist")

	report = wish("good")
	require.Equal(t, agentapi.InPlacePrepared, report.Stage, report.Error)
	announce(report.Timeline)
	primary.stop() // and what a crash between the two renames leaves
	require.NoError(t, os.Rename(primary.dataDir(), primary.dataDir()+".before"))
	replace()
	primary = startForBackups(c, "db-1")
	primary.await(2*long, "recovered", func(s agentapi.Status) bool {
		return s.InPlace != nil && s.InPlace.Stage == agentapi.InPlaceReplaced && s.Ready
	})
	assert.Equal(t, "2", primary.ask("SELECT count(*) FROM t"))
	_, err = primary.query("postgres", "INSERT INTO t VALUES (3)")
	require.NoError(t, err)
	standby.await(2*long, "following", func(s agentapi.Status) bool { return s.Streaming && s.Timeline == report.Timeline })
	standby.answers("SELECT count(*) FROM t", "3")
	c.change(func(config *agentapi.Config) { config.InPlace = nil })
	for _, kind := range []string{".before", ".recovered", ".dropping"} {
		require.Eventually(t, func() bool {
			_, err := os.Stat(primary.dataDir() + kind)
			return os.IsNotExist(err)
		}, short, often, kind)
	}
	primary.archived()

	primary.stop()
	standby.awaitReady(agentapi.RolePrimary)
	assert.Equal(t, "3", standby.ask("SELECT count(*) FROM t"), "what was recovered can take over")
}

// TestInPlaceRefused: what cannot be reached is known before anything is touched.
func TestInPlaceRefused(t *testing.T) {
	t.Parallel()
	needBackrest(t)
	c := newTestCluster(t, 1)
	withRepository(t, c)
	primary := startForBackups(c, "db-1")
	primary.awaitReady(agentapi.RolePrimary)
	primary.await(backupBound, "ready to be backed up", func(s agentapi.Status) bool { return s.Repository != nil && s.Repository.Ready })
	early := time.Now().Add(-time.Hour)
	require.Empty(t, primary.backUp("first", "", "db-1", "").Error)
	for name, test := range map[string]struct {
		target backup.Target
		why    string
	}{
		"early":   {backup.Target{Time: &early}, "is before the first backup"},
		"nowhere": {backup.Target{LSN: "FF/0"}, "recovery ended before configured recovery target was reached"},
	} {
		c.change(func(config *agentapi.Config) { config.InPlace = &agentapi.InPlace{Name: name, Target: test.target} })
		status := primary.await(backupBound, "refusing "+name, func(s agentapi.Status) bool {
			return s.InPlace != nil && s.InPlace.Name == name && s.InPlace.Stage == agentapi.InPlaceFailed
		})
		assert.Contains(t, status.InPlace.Error, test.why)
		assert.True(t, status.Ready)
	}
	c.change(func(config *agentapi.Config) { config.InPlace = nil })
	require.Eventually(t, func() bool {
		_, err := os.Stat(primary.dataDir() + ".recovered")
		return os.IsNotExist(err)
	}, short, often)
}

// TestFloor: data from before a recovery in place does not take over, whatever happens to the primary.
func TestFloor(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, 2)
	primary, standby := c.start("db-1"), c.start("db-2")
	system := primary.awaitReady(agentapi.RolePrimary).SystemIdentifier
	standby.awaitReady(agentapi.RoleStandby)
	c.change(func(config *agentapi.Config) { config.Floor = &agentapi.Floor{SystemIdentifier: system, Timeline: 2} })
	standby.await(short, "aware of what may take over", func(s agentapi.Status) bool { return s.Floor == 2 })
	primary.await(short, "aware of what may take over", func(s agentapi.Status) bool { return s.Floor == 2 })
	primary.stop()
	require.Never(t, func() bool { return standby.status().Role == agentapi.RolePrimary }, 15*time.Second, often)
	c.change(func(config *agentapi.Config) { config.Floor.SystemIdentifier = "1" + system })
	standby.awaitReady(agentapi.RolePrimary)
}

// TestInPlaceRoom: without room for the data twice the figures are told.
func TestInPlaceRoom(t *testing.T) {
	t.Parallel()
	volume := datadir.NewVolume(t.TempDir(), 17, nil)
	require.ErrorContains(t, roomFor(volume, backup.Backup{Size: 1 << 60}), "MiB must be free")
	require.ErrorContains(t, roomFor(volume, backup.Backup{Size: 1 << 60}), "Make spec.storage.size greater")
}
