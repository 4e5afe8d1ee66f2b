package datadir

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRemoveSockets(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	for _, name := range []string{".s.PGSQL.5432", ".s.PGSQL.5432.lock", "log"} {
		require.NoError(t, os.WriteFile(filepath.Join(directory, name), []byte("24\n"), 0o600))
	}
	require.NoError(t, RemoveSockets(directory))
	left, err := os.ReadDir(directory)
	require.NoError(t, err)
	require.Len(t, left, 1)
	require.Equal(t, "log", left[0].Name())
	require.NoError(t, RemoveSockets(directory), "nothing is there any more")
}
