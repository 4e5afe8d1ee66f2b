package generation

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/testing/servers"
)

// A copy of tables that is broken off leaves slots on the source, which are removed with all else; those of others' copies stay.
func TestClean_copies(t *testing.T) {
	l := newLogicalCopy(t, 15, servers.Newest(t, 17))
	l.begin(t)
	require.NoError(t, l.place.enlist(t.Context(), l.marker), "a role that does not exist needs no note")
	l.source.Exec("postgres", "CREATE ROLE pgsteward_upgrade LOGIN SUPERUSER; ALTER ROLE pgsteward_upgrade SET pgsteward.seeds = '41'")
	require.NoError(t, l.place.enlist(t.Context(), l.marker))
	require.NoError(t, l.place.enlist(t.Context(), l.marker), "again")
	c := l.source.Connect("postgres")
	system := text(t, l.target.Connect("postgres"), "SELECT system_identifier::text FROM pg_control_system()")
	assert.Equal(t, "pgsteward.seeds=41 "+system, text(t, c, "SELECT array_to_string(setconfig, ',') FROM pg_db_role_setting"))
	for _, slot := range []string{"pg_16400_sync_16384_" + system, "pg_16400_sync_16384_41", "pg_16400_sync_16384_42"} {
		l.source.Exec("postgres", "SELECT pg_create_logical_replication_slot('"+slot+"', 'pgoutput')")
	}
	require.NoError(t, Clean(t.Context(), opened(l.source), ""))
	assert.Equal(t, "pg_16400_sync_16384_42", text(t, c, "SELECT string_agg(slot_name, ' ') FROM pg_replication_slots"))
	assert.Equal(t, "0", text(t, c, "SELECT count(*)::text FROM pg_roles WHERE rolname = 'pgsteward_upgrade'"))
}
