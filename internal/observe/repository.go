package observe

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/facts"
)

// Repository is the newest word on the cluster's repository.
func (r *Reader) Repository(c *v1.PostgresCluster) facts.Known[agentapi.RepositoryReport] {
	reports := r.Agents.Reports(client.ObjectKeyFromObject(c))
	holder := ""
	for name, heard := range reports {
		if s, known := heard.Status.Get(); known && s.Role == agentapi.RolePrimary {
			holder = name
		}
	}
	_, repository := words(reports, holder, c)
	return repository
}

// NewerThan says whether the repository was read so long after that time that what is not in the report is not in the repository.
func NewerThan(report agentapi.RepositoryReport, ended time.Time) bool {
	return report.At.After(ended.Add(expiryGrace))
}

// NamespaceEnds says whether the namespace is being deleted, or gone.
func (r *Reader) NamespaceEnds(ctx context.Context, name string) (bool, error) {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := r.API.Get(ctx, client.ObjectKey{Name: name}, namespace)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading namespace %s: %w", name, err)
	}
	return !namespace.DeletionTimestamp.IsZero(), nil
}
