package agent

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pgsteward/pgsteward/internal/agentapi"
)

// What an upgrade left is removed after each attempt, also if the server has run since before it, when there was nothing to remove.
func TestUpgradeWork_duty(t *testing.T) {
	t.Parallel()
	work := &upgradeWork{}
	before := work.duty(nil, "16", 7)
	assert.NotEmpty(t, before)
	assert.Empty(t, work.duty(&agentapi.Upgrade{Check: true, From: "16", To: "17"}, "16", 7), "it is only looked at")
	assert.Equal(t, before, work.duty(nil, "16", 7), "nothing was made")
	attempt := &agentapi.Upgrade{ID: "a1", From: "16", To: "17", Seed: "db-3"}
	assert.Empty(t, work.duty(attempt, "16", 7), "the seed works here")
	calledOff := work.duty(nil, "16", 7)
	assert.NotEqual(t, before, calledOff)
	assert.Equal(t, calledOff, work.duty(&agentapi.Upgrade{ID: "a1", From: "16", To: "17"}, "16", 7), "once")
	attempt.ID = "a2"
	assert.Empty(t, work.duty(attempt, "16", 7))
	assert.NotEqual(t, calledOff, work.duty(nil, "16", 7), "the next attempt failed as well")
	assert.Equal(t, "forward a2 8", work.duty(attempt, "17", 8))
	attempt.Retire = true
	assert.Equal(t, "retire a2 8", work.duty(attempt, "17", 8))
}
