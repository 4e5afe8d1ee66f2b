package backup

import "time"

const (
	// VerifyBound is how long a verification may take.
	VerifyBound = 48 * time.Hour
	// VerifyWait is how much longer its Job is there, until it has found a node and a volume.
	VerifyWait = 6 * time.Hour
)

// VerificationOverdue says whether a verification should have ended since then: when the last one did, or verifications began to be wanted.
// They are that far apart.
func VerificationOverdue(since time.Time, interval time.Duration, now time.Time) bool {
	return !since.IsZero() && interval > 0 && now.Sub(since) > interval+VerifyBound+VerifyWait
}
