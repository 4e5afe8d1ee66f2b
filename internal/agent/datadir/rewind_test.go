package datadir

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agent/supervise"
)

// rewinder has a stand-in for pg_rewind that does as told unless it is only a trial, and notes how it was called.
func rewinder(t *testing.T, trial, body string) (seeder *Seeder, calls func() []string) {
	t.Helper()
	volume := newVolume(t)
	fill(t, volume.Dir())
	noted := filepath.Join(t.TempDir(), "calls")
	path := program(t, "echo \"$@\" >> "+noted+"\ncase \"$*\" in *--dry-run*) "+trial+"; exit;; esac\ntest -e "+volume.rewinding()+" || exit 9\n"+body)
	return &Seeder{Children: &supervise.Children{}, Programs: Programs{Rewind: path}, Volume: volume}, func() []string {
		content, _ := os.ReadFile(noted)
		return strings.Split(strings.TrimSpace(string(content)), "\n")
	}
}

func TestSeeder_Rewind(t *testing.T) {
	t.Parallel()
	t.Run("makes a standby", func(t *testing.T) {
		t.Parallel()
		s, calls := rewinder(t, "true", "true")
		require.NoError(t, s.Rewind(t.Context(), "host='other'"))
		found, err := s.Volume.Inspect()
		require.NoError(t, err)
		assert.True(t, found.Complete && found.Standby && !found.Torn)
		require.Len(t, calls(), 2)
		assert.Contains(t, calls()[1], "--source-server=host='other'")
	})
	t.Run("touches nothing if it cannot be", func(t *testing.T) {
		t.Parallel()
		s, calls := rewinder(t, "echo 'no common ancestor' >&2; exit 1", "true")
		require.ErrorContains(t, s.Rewind(t.Context(), ""), "no common ancestor")
		found, err := s.Volume.Inspect()
		require.NoError(t, err)
		assert.True(t, found.Complete && !found.Standby && !found.Torn)
		assert.Len(t, calls(), 1)
	})
	t.Run("leaves what must not be started if it fails half-way", func(t *testing.T) {
		t.Parallel()
		s, _ := rewinder(t, "true", "exit 1")
		require.Error(t, s.Rewind(t.Context(), ""))
		found, err := s.Volume.Inspect()
		require.NoError(t, err)
		assert.True(t, found.Torn)
		assert.False(t, found.Complete)
		require.NoError(t, s.Volume.RemoveLeftovers())
		found, err = s.Volume.Inspect()
		require.NoError(t, err)
		assert.True(t, found.Torn, "no clearing up makes it whole")

		s.Programs.BaseBackup = program(t, copies)
		require.NoError(t, s.Clone(t.Context(), "", "slot"))
		found, err = s.Volume.Inspect()
		require.NoError(t, err)
		assert.True(t, found.Complete && !found.Torn, "a copy does")
	})
	t.Run("is not there", func(t *testing.T) {
		t.Parallel()
		s, _ := rewinder(t, "true", "true")
		s.Programs.Rewind = ""
		require.ErrorIs(t, s.Rewind(t.Context(), ""), ErrNoRewind)
	})
}

// TestSeeder_keeps_data_without_a_source: what must make room for a copy stays while there is nothing to copy from.
func TestSeeder_keeps_data_without_a_source(t *testing.T) {
	t.Parallel()
	volume := newVolume(t)
	fill(t, volume.Dir())
	huge, err := os.Create(filepath.Join(volume.Dir(), "huge")) // sparse: there is no room for two of it
	require.NoError(t, err)
	require.NoError(t, errors.Join(huge.Truncate(1<<42), huge.Close()))
	reachable := errors.New("connection refused")
	s := &Seeder{
		Children: &supervise.Children{}, Programs: Programs{BaseBackup: program(t, copies)}, Volume: volume,
		Reachable: func(context.Context) error { return reachable },
	}
	require.ErrorIs(t, s.Clone(t.Context(), "", "slot"), reachable)
	assert.FileExists(t, huge.Name())
	reachable = nil
	require.NoError(t, s.Clone(t.Context(), "", "slot"))
	assert.NoFileExists(t, huge.Name())
}

func TestVolume_History(t *testing.T) {
	t.Parallel()
	volume := newVolume(t)
	fill(t, volume.Dir())
	history, err := volume.History(1)
	require.NoError(t, err)
	assert.Empty(t, history)
	_, err = volume.History(2)
	require.Error(t, err)
	require.NoError(t, os.MkdirAll(volume.Dir()+"/pg_wal", 0o700))
	require.NoError(t, os.WriteFile(volume.Dir()+"/pg_wal/00000002.history", []byte("1\t0/3000148\tno recovery target specified\n"), 0o600))
	history, err = volume.History(2)
	require.NoError(t, err)
	require.Len(t, history, 1)
	assert.Equal(t, "0/3000148", history.Start().String())
}
