package datadir

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestInPlaceCrash: after a crash in any step of a recovery in place the data directory is the old one or the recovered one, whole, and nothing
// is left of what was being removed.
func TestInPlaceCrash(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		// crash does the first part of a step.
		crash func(*Volume) error
		want  string
		kept  bool
	}{
		"nothing was done":             {func(*Volume) error { return nil }, "old", false},
		"between the renames":          {func(v *Volume) error { return os.Rename(v.Dir(), v.before()) }, "old", false},
		"it was replaced":              {(*Volume).ReplaceInPlace, "new", true},
		"while going back":             {func(v *Volume) error { return steps(v.ReplaceInPlace(), os.Rename(v.Dir(), v.dropping())) }, "old", false},
		"it went back":                 {func(v *Volume) error { return steps(v.ReplaceInPlace(), v.GoBack()) }, "old", false},
		"while the old is removed":     {func(v *Volume) error { return steps(v.ReplaceInPlace(), os.Rename(v.before(), v.dropping())) }, "new", false},
		"the old was removed":          {func(v *Volume) error { return steps(v.ReplaceInPlace(), v.DropBefore()) }, "new", false},
		"while what is new is removed": {func(v *Volume) error { return os.Rename(v.beside(), v.dropping()) }, "old", false},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			v := NewVolume(t.TempDir(), 17, func(string) error { return nil })
			for name, path := range map[string]string{"old": v.Dir(), "new": v.beside()} {
				require.NoError(t, os.MkdirAll(path, 0o700))
				require.NoError(t, os.WriteFile(filepath.Join(path, "is"), []byte(name), 0o600))
			}
			require.NoError(t, os.WriteFile(filepath.Join(v.beside(), recoveredFile), []byte("first"), 0o600))
			require.NoError(t, test.crash(v))
			for range 2 { // an agent that starts, and is started again
				require.NoError(t, v.RemoveLeftovers())
			}
			content, err := os.ReadFile(filepath.Join(v.Dir(), "is"))
			require.NoError(t, err)
			assert.Equal(t, test.want, string(content))
			name, err := v.RecoveredBy()
			require.NoError(t, err)
			assert.Equal(t, test.want == "new", name == "first")
			kept, err := v.HasBefore()
			require.NoError(t, err)
			assert.Equal(t, test.kept, kept)
			require.NoError(t, v.DropBeside(), "beside the loop")
			rest, err := v.HasBeside()
			require.NoError(t, err)
			assert.False(t, rest)
		})
	}
}

// steps is the first error of things that were done one after the other.
func steps(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
