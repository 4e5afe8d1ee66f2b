package carry

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// installed is the major of some PostgreSQL on this machine.
func installed(t *testing.T) int {
	t.Helper()
	for major := 18; major >= 15; major-- {
		if _, err := os.Stat(fmt.Sprintf("/usr/lib/postgresql/%d/bin/pg_ctl", major)); err == nil {
			return major
		}
	}
	t.Skip("no PostgreSQL in /usr/lib/postgresql: apt-get install postgresql")
	return 0
}

// TestCopy carries this machine's PostgreSQL over, and runs it with nothing but what was carried.
func TestCopy(t *testing.T) {
	t.Parallel()
	major, folder := installed(t), t.TempDir()
	manifest, err := Copy(Options{Root: "/", Major: major, To: folder})
	require.NoError(t, err)
	assert.Equal(t, Needed, manifest.Programs)
	assert.Empty(t, manifest.Missing)
	read, err := Read(folder)
	require.NoError(t, err)
	assert.Equal(t, &manifest, read)

	for _, name := range Needed {
		output, err := exec.Command(manifest.Program(folder, name), "--version").CombinedOutput()
		require.NoError(t, err, "%s: %s", name, output)
		assert.Contains(t, string(output), fmt.Sprintf("(PostgreSQL) %d.", major))
	}
	assert.Empty(t, manifest.Program(folder, "psql"))
	// Its own libraries are loaded, and not the machine's.
	loaded := exec.Command(manifest.Program(folder, "postgres"), "--version")
	loaded.Env = []string{"LD_DEBUG=files"}
	output, err := loaded.CombinedOutput()
	require.NoError(t, err)
	assert.Contains(t, string(output), filepath.Join(folder, libFolder, "libc.so.6"))
	assert.NotRegexp(t, `calling init: (/usr)?/lib\S*/(libssl|libicu|libxml|libpam)`, string(output))
	assert.FileExists(t, filepath.Join(folder, manifest.Bin, "../lib/plpgsql.so"))

	// Again, over what is there.
	_, err = Copy(Options{Root: "/", Major: major, To: folder})
	require.NoError(t, err)
}

func TestCopy_says_what_is_not_there(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	read, err := Read(folder)
	require.NoError(t, err)
	assert.Nil(t, read)
	manifest, err := Copy(Options{Root: t.TempDir(), Major: 16, To: folder})
	require.NoError(t, err)
	assert.Contains(t, manifest.Problem, "the image has no program postgres in any of /usr/lib/postgresql/16/bin")
	assert.Equal(t, Needed, manifest.Missing)
	read, err = Read(folder)
	require.NoError(t, err)
	assert.Equal(t, &manifest, read)
}

// TestImage_resolve: a link means a path of the image, wherever the image lies.
func TestImage_resolve(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "usr/lib"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "usr/lib/libx.so.1.2"), nil, 0o644))
	require.NoError(t, os.Symlink("usr/lib", filepath.Join(root, "lib")))
	require.NoError(t, os.Symlink("/lib/libx.so.1.2", filepath.Join(root, "usr/lib/libx.so.1")))
	require.NoError(t, os.Symlink("round", filepath.Join(root, "round")))
	found, err := image(root).resolve("/lib/libx.so.1")
	require.NoError(t, err)
	assert.Equal(t, "/usr/lib/libx.so.1.2", found)
	_, err = image(root).resolve("/round")
	require.ErrorContains(t, err, "too many links")
	_, err = image(root).resolve("/nowhere")
	require.ErrorIs(t, err, os.ErrNotExist)
}
