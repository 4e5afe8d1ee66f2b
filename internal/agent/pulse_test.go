package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestPulse_hung(t *testing.T) {
	t.Parallel()
	now := time.Now()
	p := pulse{promoting: now}
	hung := func(after time.Duration) string { return p.hung(now.Add(after), promotionBound) }
	assert.Empty(t, hung(promotionBound))
	p.waits = "Lock/relation"
	assert.Regexp(t, "does not end recovery: replay stands at 0/0 since .*, waiting for Lock/relation", hung(promotionBound+1))
	p.moved = now.Add(time.Second)
	assert.Empty(t, hung(promotionBound+time.Second), "it moves")
}
