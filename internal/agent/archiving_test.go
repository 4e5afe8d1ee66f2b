package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/agentapi"
)

// The seed of a major upgrade has no stanza before it has the writes, so that nothing can be archived: it keeps no WAL for that. What had the
// writes archives all of it.
func TestAgent_settings_archive(t *testing.T) {
	t.Parallel()
	a := &Agent{}
	a.volume, a.config = datadir.NewVolume(t.TempDir(), 17, nil), &agentapi.Config{Backup: &agentapi.BackupConfig{}}
	a.backups.command = "push"
	w := &world{}
	command := func(detached, spare bool) string {
		a.detach, a.besides.spare = detached, spare
		return a.settings(w, "").ArchiveCommand
	}
	assert.Equal(t, "true", command(true, true), "the seed")
	assert.Equal(t, "push", command(true, false), "the origin, and a seed that had the writes")
	a.config.Backup = nil
	assert.Empty(t, command(true, true), "there is no repository")
}

// A switch to the other generation does not wait for the archiver, as no other hand-over does; but where nothing would archive afterwards.
func TestAgent_whileStopped_archive(t *testing.T) {
	t.Parallel()
	for _, holds := range []bool{true, false} {
		a := &Agent{}
		a.config, a.options.Paths.Run = &agentapi.Config{Backup: &agentapi.BackupConfig{}}, t.TempDir()
		a.switching.stopped, a.switching.holds, a.switching.status = true, holds, &agentapi.UpgradeSwitchoverStatus{}
		w := &world{}
		w.view.Holder = "db-2"
		w.server.Running = true
		require.NotNil(t, a.whileStopped(w))
		if !holds {
			assert.NoFileExists(t, a.options.Paths.holdArchive())
			continue
		}
		assert.FileExists(t, a.options.Paths.holdArchive())
		a.holdArchive(false)
		a.switching.end(0, nil)
		assert.Nil(t, a.whileStopped(w))
		assert.NoFileExists(t, a.options.Paths.holdArchive(), "once")
	}
}

// TestLastWAL: a server that stops waits for an archiver only as long as it gets something done.
func TestLastWAL(t *testing.T) {
	t.Parallel()
	const file = 16 << 20
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, test := range map[string]struct {
		waiting []int64 // each 5 s
		want    []bool
	}{
		"nothing gets done":             {[]int64{file, file, file, file}, []bool{false, false, false, true}},
		"one after the other":           {[]int64{3 * file, 2 * file, 2 * file, file, file, 0}, []bool{false, false, false, false, false, false}},
		"it gets stuck":                 {[]int64{2 * file, file, file, file, file}, []bool{false, false, false, false, true}},
		"more is no progress":           {[]int64{file, file, 2 * file, 2 * file}, []bool{false, false, false, true}},
		"nothing waits, and it lingers": {[]int64{0, 0, 0, 0}, []bool{false, false, false, true}},
	} {
		l := lastWAL{}
		for i, waiting := range test.waiting {
			assert.Equal(t, test.want[i], l.stuck(waiting, start.Add(time.Duration(i)*5*time.Second)), "%s: %d", name, i)
		}
	}
}
