package datadir

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/postgres"
)

// TestSaveWAL: what waits to be archived from before the last checkpoint is moved, also if an earlier try ended half way; a rewind gets it back, and
// what is from after a fork is known as such.
func TestSaveWAL(t *testing.T) {
	t.Parallel()
	v := NewVolume(t.TempDir(), 17, func(string) error { return nil })
	wal := filepath.Join(v.Dir(), "pg_wal")
	require.NoError(t, os.MkdirAll(filepath.Join(wal, "archive_status"), 0o700))
	write := func(name string) {
		require.NoError(t, os.WriteFile(filepath.Join(wal, name), []byte(name), 0o600))
	}
	mark := func(name string) {
		require.NoError(t, os.WriteFile(filepath.Join(wal, "archive_status", name), nil, 0o600))
	}
	names := func(folder string) []string {
		found, err := filepath.Glob(filepath.Join(folder, "0*"))
		require.NoError(t, err)
		for i := range found {
			found[i] = filepath.Base(found[i])
		}
		return found
	}
	saved := func() []string {
		paths, err := v.SavedWAL("pg17-1")
		require.NoError(t, err)
		for i := range paths {
			paths[i] = filepath.Base(paths[i])
		}
		return paths
	}
	require.Empty(t, saved())
	for _, name := range []string{"000000010000000000000001", "000000010000000000000003", "000000010000000000000004", "000000010000000000000005", "00000002.history"} {
		write(name)
	}
	mark("000000010000000000000001.done")
	for _, name := range []string{"000000010000000000000002", "000000010000000000000003", "000000010000000000000004", "000000010000000000000005", "00000002.history"} {
		mark(name + ".ready") // the file of the first of them was moved before the mark could be removed
	}
	count, err := v.SaveWAL("pg17-1", 0x5000028)
	require.NoError(t, err)
	require.Equal(t, 3, count)
	require.Equal(t, []string{"000000010000000000000003", "000000010000000000000004"}, saved())
	require.Equal(t, []string{"000000010000000000000001", "000000010000000000000005", "00000002.history"}, names(wal), "the checkpoint's own stays, and what is archived")
	require.Equal(t, []string{"000000010000000000000001.done", "000000010000000000000005.ready", "00000002.history.ready"}, names(filepath.Join(wal, "archive_status")))

	require.NoError(t, v.PutBackWAL("pg17-1"))
	require.NoError(t, v.PutBackWAL("pg17-1"))
	require.Contains(t, names(wal), "000000010000000000000003")
	require.Len(t, saved(), 2, "it is still to be archived")

	require.NoError(t, os.WriteFile(filepath.Join(wal, postgres.HistoryFile(2)), []byte("1\t0/4000100\tno reason\n"), 0o600))
	for name, want := range map[string]bool{"000000010000000000000003": true, "000000010000000000000004": false, "000000020000000000000004": true} {
		on, err := v.IsOnLine(name, 2)
		require.NoError(t, err)
		require.Equal(t, want, on, name)
	}

	dropped, err := v.DropSavedWAL("pg17-1")
	require.NoError(t, err)
	require.Empty(t, dropped)
	dropped, err = v.DropSavedWAL("pg18-2")
	require.NoError(t, err)
	require.Equal(t, []string{"pg17-1"}, dropped)
	require.Empty(t, saved())
}
