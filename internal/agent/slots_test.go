package agent

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// TestAgent_slots: every standby keeps WAL for every other member, as much as that needs and no more; so a member that was away
// during a failover follows the new primary without being copied.
func TestAgent_slots(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, 3)
	// WAL goes as soon as no slot keeps it
	c.change(func(c *agentapi.Config) {
		c.Parameters = map[string]string{"wal_keep_size": "0", "min_wal_size": "32MB", "max_wal_size": "32MB"}
	})
	one, two, three := c.start("db-1"), c.start("db-2"), c.start("db-3")
	one.awaitReady(agentapi.RolePrimary)
	two.awaitReady(agentapi.RoleStandby)
	three.awaitReady(agentapi.RoleStandby)
	const slots = "SELECT string_agg(slot_name, ',' ORDER BY slot_name) FROM pg_replication_slots WHERE restart_lsn IS NOT NULL"
	two.answers(slots, "pgsteward_db_1,pgsteward_db_3")
	three.answers(slots, "pgsteward_db_1,pgsteward_db_2")

	position := func(a *testAgent, member string) postgres.LSN {
		text, err := a.query("postgres", "SELECT restart_lsn::text FROM pg_replication_slots WHERE slot_name = $1", naming.SlotName(member))
		if err != nil {
			return 0
		}
		lsn, _ := postgres.ParseLSN(text)
		return lsn
	}
	write := func() postgres.LSN {
		one.ask("SELECT pg_logical_emit_message(false, 'x', repeat('x', 100000)) FROM generate_series(1, 10)")
		one.ask("SELECT pg_switch_wal()")
		one.ask("CHECKPOINT")
		lsn, err := postgres.ParseLSN(one.ask("SELECT pg_current_wal_flush_lsn()::text"))
		require.NoError(t, err)
		return lsn
	}
	written := write()
	require.Eventually(t, func() bool { return position(two, "db-3") >= written }, long, often, "what the other has is not kept")
	require.Eventually(t, func() bool { // a restart point comes by itself only after minutes
		_, _ = two.query("postgres", "CHECKPOINT")
		return position(two, "db-1") > 0 && position(two, "db-1").String() == two.ask("SELECT redo_lsn::text FROM pg_control_checkpoint()")
	}, long, often, "of the primary's, as much as it would need to come back")
	assert.NotEmpty(t, two.status().Slots["db-3"])

	three.stop()
	has := position(one, "db-3")
	for range 6 { // more than is kept without a slot
		write()
	}
	_, _ = two.query("postgres", "CHECKPOINT")
	assert.LessOrEqual(t, position(two, "db-3"), has, "what the other has not is kept")

	logged := three.since()
	c.lease.give("db-2")
	two.awaitReady(agentapi.RolePrimary)
	one.awaitFollowing(two)
	c.start("db-3")
	three.awaitFollowing(two)
	assert.NotContains(t, logged(), "Copying")

	c.change(func(c *agentapi.Config) { c.Members = c.Members[:2] })
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		for _, a := range []*testAgent{one, two} {
			answer, err := a.query("postgres", slots)
			assert.NoError(t, err)
			if a == one {
				assert.False(t, strings.Contains(answer, "db_3"), "one that is gone keeps nothing")
			}
		}
	}, long, often)
}
