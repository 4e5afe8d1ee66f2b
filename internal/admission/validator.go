package admission

import (
	"context"
	"encoding/json"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/observe"
	"github.com/pgsteward/pgsteward/internal/validate"
)

// patience is how long the surroundings may take to be read. The API server waits five seconds for the whole answer.
const patience = 2 * time.Second

// +kubebuilder:webhookconfiguration:mutating=false,name=pgsteward-validating
// +kubebuilder:webhook:path=/validate-pgsteward-io-v1-postgrescluster,mutating=false,failurePolicy=ignore,matchPolicy=equivalent,sideEffects=None,timeoutSeconds=5,groups=pgsteward.io,resources=postgresclusters,verbs=create;update;delete,versions=v1,name=vpostgrescluster.pgsteward.io,admissionReviewVersions=v1,serviceName=pgsteward-webhook,serviceNamespace=pgsteward-system

// validator judges PostgresClusters.
type validator struct{ reader *observe.Reader }

var _ admission.Validator[*v1.PostgresCluster] = &validator{}

// ValidateCreate judges a new cluster.
func (v *validator) ValidateCreate(ctx context.Context, c *v1.PostgresCluster) (admission.Warnings, error) {
	f := v.facts(ctx, c)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var err error
	if f.Taken, err = v.reader.Foreign(ctx, c.Namespace, validate.Names(c)); err != nil {
		log.FromContext(ctx).Error(err, "Looking for names that are taken")
	}
	return answer(c, validate.Create(c, f))
}

// ValidateUpdate judges a changed cluster.
func (v *validator) ValidateUpdate(ctx context.Context, before, after *v1.PostgresCluster) (admission.Warnings, error) {
	return answer(after, validate.Update(before, after, v.facts(ctx, after)))
}

// ValidateDelete judges how a cluster is deleted.
func (v *validator) ValidateDelete(ctx context.Context, c *v1.PostgresCluster) (admission.Warnings, error) {
	request, err := admission.RequestFromContext(ctx)
	if err != nil {
		return nil, nil //nolint:nilerr // how it is deleted is not known
	}
	var options metav1.DeleteOptions
	if err := json.Unmarshal(request.Options.Raw, &options); err != nil {
		log.FromContext(ctx).Error(err, "Reading the options of a deletion")
		return nil, nil
	}
	foreground := options.PropagationPolicy != nil && *options.PropagationPolicy == metav1.DeletePropagationForeground
	return answer(c, validate.Delete(c, foreground))
}

// facts are what the caches have.
func (v *validator) facts(ctx context.Context, c *v1.PostgresCluster) validate.Facts {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var f validate.Facts
	if classes, err := v.reader.StorageClasses(ctx); err != nil {
		log.FromContext(ctx).Error(err, "Reading the StorageClasses")
	} else {
		f.Classes = facts.Know(classes)
	}
	var err error
	if f.Volumes, err = v.reader.Volumes(ctx, c); err != nil {
		log.FromContext(ctx).Error(err, "Reading the volumes")
	}
	return f
}

// answer is the verdict as the API server gives it to the user: all errors at once.
func answer(c *v1.PostgresCluster, v validate.Verdict) (admission.Warnings, error) {
	if len(v.Errors) == 0 {
		return v.Warnings, nil
	}
	return v.Warnings, apierrors.NewInvalid(schema.GroupKind{Group: v1.Group, Kind: "PostgresCluster"}, c.Name, v.Errors)
}
