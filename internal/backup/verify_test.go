package backup_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pgsteward/pgsteward/internal/backup"
)

// TestVerificationOverdue: one that takes as long as it may is not overdue, and what is not known is not.
func TestVerificationOverdue(t *testing.T) {
	t.Parallel()
	const week = 7 * 24 * time.Hour
	bound := week + backup.VerifyBound + backup.VerifyWait
	assert.False(t, backup.VerificationOverdue(noon.Add(-bound), week, noon))
	assert.True(t, backup.VerificationOverdue(noon.Add(-bound-time.Second), week, noon))
	assert.False(t, backup.VerificationOverdue(time.Time{}, week, noon))
	assert.False(t, backup.VerificationOverdue(noon.Add(-bound-time.Second), 0, noon))
}
