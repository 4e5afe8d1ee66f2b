package apply

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
)

// Refused is a write that the API server refuses, or that we refuse, until somebody changes something: trying again soon is
// of no use.
type Refused struct {
	// Reason is one of the Reason constants of apis/v1.
	Reason string
	// Message names the object and what would be right.
	Message string
}

// Error implements error.
func (r *Refused) Error() string { return r.Message }

// Refusals are the Refused among the errors joined in err, and the rest: errors that may go by themselves.
func Refusals(err error) ([]*Refused, error) {
	if err == nil {
		return nil, nil
	}
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		var refusals []*Refused
		var rest []error
		for _, e := range joined.Unwrap() {
			r, other := Refusals(e)
			refusals = append(refusals, r...)
			if other != nil {
				rest = append(rest, other)
			}
		}
		return refusals, errors.Join(rest...)
	}
	var refused *Refused
	if errors.As(err, &refused) {
		return []*Refused{refused}, nil
	}
	return nil, err
}

// classify turns what the API server says about an object into a Refused if only a person can help.
func classify(err error, object string) error {
	reason := ""
	switch {
	case err == nil:
		return nil
	case wasReplaced(err):
		return fmt.Errorf("writing %s, which was replaced since it was observed: %w", object, err)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		reason = v1.ReasonNamespaceTerminating
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"):
		reason = v1.ReasonQuotaExceeded
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.ReasonForError(err) == metav1.StatusReasonBadRequest:
		reason = v1.ReasonApplyFailed
	default:
		return fmt.Errorf("writing %s: %w", object, err)
	}
	return &Refused{Reason: reason, Message: fmt.Sprintf("The API server refuses %s: %v", object, err)}
}

// wasReplaced says whether the write was refused because the object of that name has another UID than the one it was meant for.
func wasReplaced(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
}
