package conf

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/agent/supervise"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// newFiles keeps the files of a data directory; the stand-in for postgres refuses files that contain the word bad.
func newFiles(t *testing.T) (*Files, *datadir.Volume) {
	t.Helper()
	volume := datadir.NewVolume(t.TempDir(), 16, func(string) error { return nil })
	require.NoError(t, volume.Prepare())
	require.NoError(t, os.MkdirAll(volume.Dir(), 0o700))
	return again(t, volume), volume
}

// again is what an agent that was started again has.
func again(t *testing.T, volume *datadir.Volume) *Files {
	t.Helper()
	program := filepath.Join(t.TempDir(), "postgres")
	require.NoError(t, os.WriteFile(program, []byte(`#!/bin/sh
for arg; do case "$arg" in config_file=*) file=${arg#config_file=};; esac; done
grep -q bad $file || exit 0
echo '2026-11-29 23:00:00 GMT [1] LOG:  invalid value for parameter "work_mem": "bad" in file "/x/candidate.conf" line 3' >&2
echo '2026-11-29 23:00:00 GMT [1] FATAL:  configuration file "/x/candidate.conf" contains errors' >&2
exit 1
`), 0o755))
	return NewFiles(&supervise.Children{}, volume, program, []string{"postgres"})
}

func workMem(value string) Choice { return Choice{Parameters: map[string]string{"work_mem": value}} }

func read(t *testing.T, volume *datadir.Volume) string {
	t.Helper()
	content, err := os.ReadFile(volume.Dir() + "/postgresql.conf")
	require.NoError(t, err)
	return string(content)
}

func TestFiles(t *testing.T) {
	t.Parallel()
	files, volume := newFiles(t)
	settings := postgres.Settings{Major: 16}
	apply := func(files *Files) bool {
		t.Helper()
		changed, err := files.Apply(settings)
		require.NoError(t, err)
		return changed
	}

	files.Choose(t.Context(), workMem("8MB"), settings)
	assert.Empty(t, files.Problem())
	assert.True(t, apply(files))
	assert.False(t, apply(files))
	assert.Contains(t, read(t, volume), "work_mem = '8MB'")
	require.NoError(t, files.Proved())

	files.Choose(t.Context(), workMem("bad"), settings)
	assert.Equal(t, `invalid value for parameter "work_mem": "bad"`, files.Problem())
	assert.False(t, apply(files))
	assert.NoFileExists(t, volume.AgentDir()+"/candidate.conf")

	files = again(t, volume)
	files.Choose(t.Context(), workMem("bad"), settings)
	apply(files)
	assert.Contains(t, read(t, volume), "work_mem = '8MB'", "what worked is remembered")

	files.Choose(t.Context(), Choice{HBA: []string{"nonsense"}}, settings)
	assert.Contains(t, files.Problem(), "pg_hba line 1")
	files.Choose(t.Context(), Choice{Parameters: map[string]string{"a b": "1"}}, settings)
	assert.Contains(t, files.Problem(), "not the name")
	files.Choose(t.Context(), workMem("9MB"), settings)
	assert.Empty(t, files.Problem())
	assert.True(t, apply(files))
}

func TestFiles_Revert(t *testing.T) {
	t.Parallel()
	files, _ := newFiles(t)
	settings := postgres.Settings{Major: 16}
	files.Choose(t.Context(), workMem("8MB"), settings)
	require.NoError(t, files.Proved())
	assert.False(t, files.Revert("crash"), "there is nothing to go back from")

	files.Choose(t.Context(), workMem("9MB"), settings)
	assert.False(t, files.Revert("recovery aborted because of insufficient parameter settings"), "the next start has what is needed")
	assert.Empty(t, files.Problem())
	assert.True(t, files.Revert("out of memory"))
	assert.Contains(t, files.Problem(), "out of memory")
	files.Choose(t.Context(), workMem("9MB"), settings)
	assert.Contains(t, files.Problem(), "out of memory", "it is not tried again")
	require.NoError(t, files.Proved())

	files.Choose(t.Context(), workMem("10MB"), settings)
	assert.True(t, files.Revert("disk full"))
	assert.False(t, files.Revert("disk full"), "the proven one does not start either")
	files.Choose(t.Context(), workMem("10MB"), settings)
	assert.Empty(t, files.Problem(), "so the configuration was not the cause")

	files.Refuse("pg_hba line 3: no")
	assert.Equal(t, "pg_hba line 3: no", files.Problem())
}

func TestFiles_ignores_what_is_ours(t *testing.T) {
	t.Parallel()
	files, volume := newFiles(t)
	settings := postgres.Settings{Major: 16, Port: 5432}
	files.Choose(t.Context(), Choice{Parameters: map[string]string{"port": "1", "work_mem": "8MB"}, Generation: 3}, settings)
	assert.Contains(t, files.Problem(), "port")
	assert.Equal(t, int64(3), files.Generation())
	_, err := files.Apply(settings)
	require.NoError(t, err)
	assert.Contains(t, read(t, volume), "port = '5432'")
	assert.Contains(t, read(t, volume), "work_mem = '8MB'")
}
