package agent

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
)

func TestPulse_hung(t *testing.T) {
	t.Parallel()
	now := time.Now()
	no := errors.New("timeout")
	var p pulse
	hung := func(after time.Duration) string { return p.hung(now.Add(after), hungBound, promotionBound) }
	for i := range hungAttempts {
		p.observing.note(now.Add(time.Duration(i)*time.Second), no)
	}
	assert.Empty(t, hung(hungBound))
	assert.Contains(t, hung(hungBound+1), "PostgreSQL does not answer, since ")
	p.observing.note(now, &pgconn.PgError{Code: "53300", Message: "too many clients"})
	assert.Empty(t, hung(time.Hour), "that is an answer")
	p.observing.note(now, no)
	assert.Empty(t, hung(time.Hour), "it was this agent that stood still")

	p = pulse{promoting: now}
	assert.Empty(t, hung(promotionBound))
	p.waits = "Lock/relation"
	assert.Regexp(t, "does not end recovery: replay stands at 0/0 since .*, waiting for Lock/relation", hung(promotionBound+1))
	p.moved = now.Add(time.Second)
	assert.Empty(t, hung(promotionBound+time.Second), "it moves")
}
