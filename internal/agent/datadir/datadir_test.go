package datadir

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agent/supervise"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// newVolume is an empty volume, seen by an instance of PostgreSQL 16.
func newVolume(t *testing.T) *Volume {
	t.Helper()
	volume := NewVolume(t.TempDir(), 16, func(string) error { return nil })
	require.NoError(t, volume.Prepare())
	return volume
}

// fill makes a complete data directory at path, as initdb of PostgreSQL 16 does.
func fill(t *testing.T, path string) {
	t.Helper()
	control, err := os.ReadFile("../../postgres/testdata/pg_control.16")
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(path, "global"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(path, postgres.ControlFile), control, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(path, versionFile), []byte("16\n"), 0o600))
}

func TestLock(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	lock, err := Lock(path)
	require.NoError(t, err)
	_, err = Lock(path)
	require.ErrorIs(t, err, ErrInUse)
	require.NoError(t, lock.Close())
	lock, err = Lock(path)
	require.NoError(t, err)
	require.NoError(t, lock.Close())
	_, err = Lock(filepath.Join(path, "nowhere"))
	require.Error(t, err)
}

func TestVolume_Inspect(t *testing.T) {
	t.Parallel()
	volume := newVolume(t)
	found, err := volume.Inspect()
	require.NoError(t, err)
	assert.Equal(t, Found{}, found)
	found, err = NewVolume(filepath.Join(t.TempDir(), "new"), 16, nil).Inspect()
	require.NoError(t, err)
	assert.Equal(t, Found{}, found)

	fill(t, volume.seeding())
	require.NoError(t, os.Mkdir(filepath.Join(volume.root(), "15"), 0o700))
	found, err = volume.Inspect()
	require.NoError(t, err)
	assert.False(t, found.Complete, "what is being made does not count")
	assert.Equal(t, []int{15}, found.Others)

	fill(t, volume.Dir())
	found, err = volume.Inspect()
	require.NoError(t, err)
	assert.True(t, found.Complete)
	assert.False(t, found.Standby)
	assert.Equal(t, "7713734891087028239", found.Control.SystemIdentifier)
	require.NoError(t, volume.SetStandby(true))
	found, err = volume.Inspect()
	require.NoError(t, err)
	assert.True(t, found.Standby)
	require.NoError(t, volume.SetStandby(false))
	require.NoError(t, volume.SetStandby(false))

	require.NoError(t, os.Truncate(filepath.Join(volume.Dir(), postgres.ControlFile), 10))
	_, err = volume.Inspect()
	require.ErrorIs(t, err, postgres.ErrControl)
}

func TestVolume_RemoveLeftovers(t *testing.T) {
	t.Parallel()
	exists := func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	}
	t.Run("beside complete data", func(t *testing.T) {
		t.Parallel()
		volume := newVolume(t)
		fill(t, volume.Dir())
		fill(t, volume.old())
		fill(t, volume.seeding())
		require.NoError(t, volume.RemoveLeftovers())
		assert.True(t, exists(volume.Dir()))
		assert.False(t, exists(volume.old()) || exists(volume.seeding()))
	})
	t.Run("between two renames", func(t *testing.T) {
		t.Parallel()
		volume := newVolume(t)
		fill(t, volume.old())
		require.NoError(t, volume.RemoveLeftovers())
		assert.True(t, exists(volume.Dir()))
	})
	t.Run("nothing", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, newVolume(t).RemoveLeftovers())
	})
}

// program is a stand-in for one of PostgreSQL's.
// TestVolume_WaitingWAL: what the archiver has not come to yet counts, and nothing else.
func TestVolume_WaitingWAL(t *testing.T) {
	t.Parallel()
	v := newVolume(t)
	wal := filepath.Join(v.Dir(), "pg_wal")
	require.NoError(t, os.MkdirAll(filepath.Join(wal, "archive_status"), 0o700))
	for name, size := range map[string]int{"000000010000000000000001": 1000, "000000010000000000000002": 200, "000000010000000000000003": 30, "00000002.history": 4} {
		require.NoError(t, os.WriteFile(filepath.Join(wal, name), make([]byte, size), 0o600))
	}
	for _, name := range []string{"000000010000000000000001.done", "000000010000000000000002.ready", "000000010000000000000009.ready", "00000002.history.ready"} {
		require.NoError(t, os.WriteFile(filepath.Join(wal, "archive_status", name), nil, 0o600))
	}
	waiting, err := v.WaitingWAL()
	require.NoError(t, err)
	require.Equal(t, int64(204), waiting)
}

// TestVolume_ArchiveAgain: what a standby marked as done is archived, and so are histories of timelines that were skipped: without them a
// recovery would not find the timelines that come after.
func TestVolume_ArchiveAgain(t *testing.T) {
	t.Parallel()
	v := newVolume(t)
	wal := filepath.Join(v.Dir(), "pg_wal")
	status := filepath.Join(wal, "archive_status")
	require.NoError(t, os.MkdirAll(status, 0o700))
	for _, name := range []string{
		"000000010000000000000001", "000000010000000000000002", "000000020000000000000002", "000000020000000000000003",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(wal, name), nil, 0o600))
		require.NoError(t, os.Truncate(filepath.Join(wal, name), 16<<20))
	}
	require.NoError(t, os.WriteFile(filepath.Join(wal, "00000002.history"), []byte("1\t0/2A00000\tx\n"), 0o600))
	for _, name := range []string{
		"000000010000000000000001.done", "000000010000000000000002.done", "000000020000000000000001.done", "000000020000000000000002.done", "00000002.history.done",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(status, name), nil, 0o600))
	}
	require.NoError(t, v.ReserveTimelines(2, 4))
	marks := func() []string {
		entries, err := os.ReadDir(status)
		require.NoError(t, err)
		var names []string
		for _, entry := range entries {
			names = append(names, entry.Name())
		}
		return names
	}
	want := []string{
		"000000010000000000000001.ready", "000000010000000000000002.done", // in the second, timeline 1 was left: everybody has other bytes after that
		"000000020000000000000001.done", "000000020000000000000002.ready", "00000002.history.ready", "00000003.history.ready",
	}
	for _, count := range []int{4, 0} {
		marked, err := v.ArchiveAgain(2)
		require.NoError(t, err)
		require.Equal(t, count, marked)
		require.ElementsMatch(t, want, marks())
	}
}

// TestWhole: which files everybody has alike.
func TestWhole(t *testing.T) {
	t.Parallel()
	const size = 16 << 20
	history := postgres.History{{Timeline: 1, End: 0x1_03000000}, {Timeline: 3, End: 0x1_05000148}}
	for name, want := range map[string]bool{
		"00000005.history":         true,
		"0000000500000001000000FF": true,  // its own
		"0000000100000000000000FF": true,  // of an ancestor
		"000000010000000100000002": true,  // it was left just at the end
		"000000010000000100000003": false, // and was not there
		"000000030000000100000004": true,
		"000000030000000100000005": false, // it was left there
		"000000020000000100000001": false, // no ancestor
	} {
		assert.Equal(t, want, whole(name, size, 5, history), name)
	}
}

func program(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+body), 0o755))
	return path
}

const copies = `for arg; do case "$arg" in --pgdata=*) target=${arg#--pgdata=};; esac; done
mkdir -p $target/global; cp ../../postgres/testdata/pg_control.16 $target/global/pg_control; echo 16 > $target/PG_VERSION; touch $target/new`

func TestSeeder(t *testing.T) {
	t.Parallel()
	seeder := func(t *testing.T, body string) *Seeder {
		t.Helper()
		path := program(t, body)
		return &Seeder{
			Children: &supervise.Children{}, Programs: Programs{InitDB: path, BaseBackup: path}, Volume: newVolume(t),
		}
	}
	t.Run("replaces what was there", func(t *testing.T) {
		t.Parallel()
		s := seeder(t, copies)
		fill(t, s.Volume.Dir())
		fill(t, s.Volume.seeding())
		require.NoError(t, os.WriteFile(s.Volume.seeding()+"/half", nil, 0o600))
		require.NoError(t, s.Clone(t.Context(), "", "slot"))
		found, err := s.Volume.Inspect()
		require.NoError(t, err)
		assert.True(t, found.Complete && found.Standby)
		assert.FileExists(t, s.Volume.Dir()+"/new")
		assert.NoFileExists(t, s.Volume.Dir()+"/half")
		assert.NoDirExists(t, s.Volume.old())
	})
	t.Run("keeps what was there if it fails", func(t *testing.T) {
		t.Parallel()
		s := seeder(t, "echo 'this is why' >&2; exit 1")
		fill(t, s.Volume.Dir())
		require.ErrorContains(t, s.Clone(t.Context(), "", "slot"), "this is why")
		found, err := s.Volume.Inspect()
		require.NoError(t, err)
		assert.True(t, found.Complete)
	})
	t.Run("refuses data of another major", func(t *testing.T) {
		t.Parallel()
		s := seeder(t, copies+"; echo 15 > $target/PG_VERSION")
		require.ErrorContains(t, s.InitDB(t.Context()), "PostgreSQL 15")
		found, err := s.Volume.Inspect()
		require.NoError(t, err)
		assert.False(t, found.Complete)
	})
}

func TestFindPrograms(t *testing.T) {
	t.Parallel()
	_, err := findProgram("no_such_program", 99)
	require.ErrorContains(t, err, "no_such_program")
	path, err := findProgram("sh", 99)
	require.NoError(t, err)
	assert.True(t, filepath.IsAbs(path))
}
