package cmd

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestInstall(t *testing.T) {
	t.Parallel()
	target := t.TempDir()
	source := filepath.Join(t.TempDir(), "manager")
	require.NoError(t, os.WriteFile(source, []byte("program"), 0o755))
	for range 2 { // an init container may run again
		require.NoError(t, install(source, target))
	}
	installed := filepath.Join(target, "pgsteward")
	content, err := os.ReadFile(installed)
	require.NoError(t, err)
	assert.Equal(t, "program", string(content))
	info, err := os.Stat(installed)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o755), info.Mode().Perm())
	passwd, err := os.ReadFile(filepath.Join(target, "passwd"))
	require.NoError(t, err)
	assert.Contains(t, string(passwd), fmt.Sprintf("\npostgres:x:%d:%d:PostgreSQL:/var/lib/pgsteward:/bin/sh\n", os.Getuid(), os.Getgid()))
	require.Error(t, install(source, filepath.Join(target, "nowhere")))
	require.Error(t, install(filepath.Join(target, "nothing"), target))
}
