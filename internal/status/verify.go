package status

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/facts"
)

// verification is what is told of the verification of backups. What came of the last one stays when its Pod is gone.
func verification(known *facts.Verification, before *v1.VerificationStatus) *v1.VerificationStatus {
	if known == nil {
		return nil
	}
	s := &v1.VerificationStatus{}
	if before != nil {
		s = before.DeepCopy()
	}
	s.NextScheduled = moment(known.Next)
	last := known.Last
	if last == nil || s.FinishedAt != nil && !last.Ended.Truncate(time.Second).After(s.FinishedAt.Time) {
		return s
	}
	s.Label, s.Name, s.StartedAt, s.FinishedAt = last.Label, last.Name, moment(last.Started), moment(last.Ended)
	s.Phase, s.Message = v1.VerificationFailed, failed(*last)
	if last.Error == "" {
		s.Phase, s.Message, s.LastSucceeded = v1.VerificationSucceeded, succeeded(*last), s.FinishedAt
	}
	return s
}

func failed(v agentapi.Verification) string {
	at := v.Ended.UTC().Format(time.RFC3339)
	if v.Label == "" {
		return fmt.Sprintf("No backup could be verified at %s: %s", at, v.Error)
	}
	return fmt.Sprintf("The backup %s did not pass its verification at %s: %s", cmp.Or(v.Name, v.Label), at, v.Error)
}

func succeeded(v agentapi.Verification) string {
	message := fmt.Sprintf("The backup %s was restored, and recovered to its end", cmp.Or(v.Name, v.Label))
	if len(v.Checked) > 0 {
		message += "; checked: " + strings.Join(v.Checked, ", ")
	}
	if len(v.Skipped) > 0 {
		message += "; not checked: " + strings.Join(v.Skipped, ", ")
	}
	return message
}

// verificationOverdue says whether there should have been a verification since the last one, or since they were asked for.
func verificationOverdue(known *facts.Verification, told *v1.VerificationStatus, now time.Time) bool {
	if known == nil {
		return false
	}
	since := known.Since
	if told != nil && told.FinishedAt != nil && told.FinishedAt.After(since) {
		since = told.FinishedAt.Time
	}
	return backup.VerificationOverdue(since, known.Interval, now)
}

// verificationEvents say what came of a verification.
func verificationEvents(previous, s *v1.BackupStatus) []Event {
	if s == nil || s.Verification == nil || s.Verification.FinishedAt == nil {
		return nil
	}
	v := s.Verification
	if previous != nil && previous.Verification != nil && v.FinishedAt.Equal(previous.Verification.FinishedAt) {
		return nil
	}
	if v.Phase == v1.VerificationFailed {
		return []Event{{Warning: true, Reason: v1.ReasonVerificationFailed, Action: "Verify", Message: v.Message}}
	}
	return []Event{{Reason: v1.ReasonBackupVerified, Action: "Verify", Message: v.Message}}
}
