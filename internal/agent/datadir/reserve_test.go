package datadir

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReserveSize(t *testing.T) {
	t.Parallel()
	for volume, size := range map[int64]int64{1 << 27: 32 << 20, 1 << 30: 32 << 20, 3 << 30: 48 << 20, 1 << 40: 64 << 20} {
		assert.Equal(t, size, ReserveSize(volume))
	}
}

func TestVolume_reserve(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	mount := func(t *testing.T, size string) *Volume {
		t.Helper()
		path := t.TempDir()
		if err := syscall.Mount("tmpfs", path, "tmpfs", 0, "size="+size); err != nil {
			t.Skip("mounting a small file system: ", err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(path, syscall.MNT_DETACH) })
		volume := NewVolume(path, 16, func(string) error { return nil })
		require.NoError(t, volume.Prepare())
		return volume
	}
	volume := mount(t, "200m")
	_, before, err := volume.Space()
	require.NoError(t, err)
	for range 2 {
		taken, err := volume.TakeReserve()
		require.NoError(t, err)
		assert.True(t, taken)
	}
	_, free, err := volume.Space()
	require.NoError(t, err)
	assert.Equal(t, before-32<<20, free, "it takes room, and once")
	require.NoError(t, volume.GiveUpReserve())
	require.NoError(t, volume.GiveUpReserve())
	// A process that another test was just starting may still have the file open.
	require.Eventually(t, func() bool {
		_, free, err := volume.Space()
		return err == nil && free == before
	}, 10*time.Second, 20*time.Millisecond, "the room is there again")
	assert.False(t, volume.HasReserve())

	taken, err := mount(t, "100m").TakeReserve()
	require.NoError(t, err)
	assert.False(t, taken, "it must not be what fills the volume")
}
