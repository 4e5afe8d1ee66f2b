package apply

import (
	"context"
	"fmt"

	olmv2 "github.com/operator-framework/api/pkg/operators/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// OperatorConditions writes the conditions of an OperatorCondition, unless it is not any more what was observed.
func (w *Writer) OperatorConditions(ctx context.Context, observed *olmv2.OperatorCondition, conditions []metav1.Condition) error {
	after := observed.DeepCopy()
	after.Spec.Conditions = conditions
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	// a merge patch replaces the whole list: with the lock it cannot undo what somebody else wrote meanwhile
	err := w.Client.Patch(ctx, after, client.MergeFromWithOptions(observed, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf("writing OperatorCondition %s/%s: %w", observed.Namespace, observed.Name, err)
	}
	return nil
}
