package postgres

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestBytes(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]int64{
		"128MB": 128 << 20, "1GB": 1 << 30, "16": 16 * 8192, " 1 GB ": 1 << 30, "1.5GB": 3 << 29, "4096kB": 4 << 20, "100B": 100,
		"": -1, "many": -1, "1Gi": -1, "-1": -1, "1mb": -1, "9999999999TB": -1,
	} {
		got, ok := Bytes(value, 8192)
		assert.Equal(t, want >= 0, ok, value)
		assert.Equal(t, max(want, 0), got, value)
	}
}

func TestSharedMemory(t *testing.T) {
	t.Parallel()
	const gib = int64(1) << 30
	assert.Less(t, SharedMemory(nil, gib), gib/2, "the defaults leave room")
	assert.Less(t, SharedMemory(nil, 128<<20), int64(128)<<20, "also in a small container")
	assert.Greater(t, SharedMemory(map[string]string{"shared_buffers": "2GB"}, gib), 2*gib)
	assert.Greater(t, SharedMemory(map[string]string{"max_connections": "100000"}, gib), gib, "locks of a hundred thousand connections")
	assert.Less(t, SharedMemory(map[string]string{"shared_buffers": "x", "max_connections": "y"}, gib), gib/2, "what PostgreSQL refuses is not ours to judge")
}

// TestPromotionNeedsNoRestart: a standby's file has every parameter of which it must not go below a minimum, and so must a primary's:
// taking a line out at the promotion would leave a restart pending.
func TestPromotionNeedsNoRestart(t *testing.T) {
	t.Parallel()
	minimums := map[string]int{
		"max_connections": 100, "max_worker_processes": 32, "max_wal_senders": 20, "max_prepared_transactions": 0, "max_locks_per_transaction": 64,
	}
	standby, _ := Settings{Major: 17, Minimums: minimums}.Merge()
	primary, _ := Settings{Major: 17}.Merge()
	assert.Equal(t, standby, primary)
}

func TestSettings_Promoting(t *testing.T) {
	t.Parallel()
	settings := Settings{Major: 17, User: map[string]string{"max_standby_streaming_delay": "-1", "max_standby_archive_delay": "1h"}}
	merged, _ := settings.Merge()
	assert.Equal(t, "-1", merged["max_standby_streaming_delay"])
	settings.Promoting = true
	merged, _ = settings.Merge()
	assert.Equal(t, "0", merged["max_standby_streaming_delay"], "whatever the user wishes")
	assert.Equal(t, "0", merged["max_standby_archive_delay"])
}

func TestSettings_Still(t *testing.T) {
	t.Parallel()
	settings := Settings{Major: 17, User: map[string]string{"default_transaction_read_only": "off", "autovacuum": "on"}}
	merged, _ := settings.Merge()
	assert.Equal(t, "off", merged["default_transaction_read_only"])
	settings.Still = true
	merged, _ = settings.Merge()
	assert.Equal(t, "on", merged["default_transaction_read_only"], "whatever the user wishes")
	assert.Equal(t, "off", merged["autovacuum"])
}
