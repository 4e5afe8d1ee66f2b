package apply

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
)

var pods = schema.GroupResource{Resource: "pods"}

// TestClassify: what only a person can mend is Refused; everything else is tried again.
func TestClassify(t *testing.T) {
	t.Parallel()
	terminating := apierrors.NewForbidden(pods, "p", errors.New("namespace demo is being terminated"))
	terminating.ErrStatus.Details.Causes = append(terminating.ErrStatus.Details.Causes, metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})
	for name, test := range map[string]struct {
		err    error
		reason string // empty: not refused
	}{
		"quota":                 {apierrors.NewForbidden(pods, "p", errors.New("exceeded quota: small, requested: pods=1, used: pods=3, limited: pods=3")), v1.ReasonQuotaExceeded},
		"namespace terminating": {terminating, v1.ReasonNamespaceTerminating},
		"not allowed":           {apierrors.NewForbidden(pods, "p", errors.New("no")), v1.ReasonApplyFailed},
		"invalid":               {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", field.ErrorList{field.Required(field.NewPath("spec"), "")}), v1.ReasonApplyFailed},
		"bad request":           {apierrors.NewBadRequest("unknown field"), v1.ReasonApplyFailed},
		"wrapped":               {fmt.Errorf("asking: %w", apierrors.NewBadRequest("unknown field")), v1.ReasonApplyFailed},
		"conflict":              {apierrors.NewConflict(pods, "p", errors.New("changed")), ""},
		"not found":             {apierrors.NewNotFound(pods, "p"), ""},
		"timeout":               {apierrors.NewTimeoutError("slow", 1), ""},
		"too many requests":     {apierrors.NewTooManyRequests("later", 1), ""},
		"server broken":         {apierrors.NewInternalError(errors.New("etcd")), ""},
		"webhook down":          {apierrors.NewGenericServerResponse(http.StatusServiceUnavailable, "post", pods, "p", "", 0, true), ""},
		"connection refused":    {errors.New("connection refused"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := classify(test.err, "Pod demo/p")
			require.ErrorContains(t, err, "Pod demo/p")
			require.ErrorContains(t, err, test.err.Error())
			refusals, rest := Refusals(err)
			if test.reason == "" {
				assert.Empty(t, refusals)
				require.ErrorIs(t, rest, test.err)
				return
			}
			require.NoError(t, rest)
			require.Len(t, refusals, 1)
			assert.Equal(t, test.reason, refusals[0].Reason)
		})
	}
	require.NoError(t, classify(nil, "Pod demo/p"))
}

// TestRefusals: refusals are found wherever they are, and nothing of the rest is lost.
func TestRefusals(t *testing.T) {
	t.Parallel()
	first, second := &Refused{Reason: "A", Message: "a"}, &Refused{Reason: "B", Message: "b"}
	one, two := errors.New("one"), errors.New("two")

	refusals, rest := Refusals(errors.Join(nil, first, one, errors.Join(fmt.Errorf("x: %w", second), two)))
	assert.Equal(t, []*Refused{first, second}, refusals)
	require.ErrorIs(t, rest, one)
	require.ErrorIs(t, rest, two)

	refusals, rest = Refusals(errors.Join(first, nil))
	assert.Equal(t, []*Refused{first}, refusals)
	require.NoError(t, rest)

	refusals, rest = Refusals(nil)
	assert.Empty(t, refusals)
	require.NoError(t, rest)
}
