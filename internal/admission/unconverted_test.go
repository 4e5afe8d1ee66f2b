package admission

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// TestUnconverted: when an operator is uninstalled OLM leaves the CRD without a conversion, and before it installs one again it
// validates what it reads through every version against the schema of that version. So such an object fits; and as v1alpha1 nobody
// can write it, which would lose what only v1 has. It does not run with others, which need the conversion.
func TestUnconverted(t *testing.T) {
	s := needServer(t)
	namespace := s.namespace(t, "unconverted")
	c := &v1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "db"}}
	c.Annotations = map[string]string{naming.AnnotationValidation: naming.ValidationWarn} // there may be no default StorageClass
	c.Spec = v1.PostgresClusterSpec{Version: "17", PostgreSQL: v1.PostgreSQLSpec{Parameters: map[string]v1.ParameterValue{"work_mem": "16MB"}}}
	require.NoError(t, s.kube.Create(t.Context(), c))
	c.Status = v1.PostgresClusterStatus{Phase: v1.PhaseRunning, PrimaryHost: "db-rw", Conditions: []metav1.Condition{
		{Type: "Ready", Status: "True", Reason: "ClusterReady", LastTransitionTime: metav1.Unix(1e9, 0)},
	}}
	require.NoError(t, s.kube.Status().Update(t.Context(), c))

	crd := s.withoutConversion(t)
	shown := &unstructured.Unstructured{}
	shown.SetGroupVersionKind(schema.GroupVersionKind{Group: v1.Group, Version: "v1alpha1", Kind: "PostgresCluster"})
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		require.NoError(collect, s.kube.Get(t.Context(), client.ObjectKeyFromObject(c), shown))
		require.NotContains(collect, shown.Object["spec"], "postgresVersion")
	}, 10*time.Second, 50*time.Millisecond, "nothing converts any more")

	for _, version := range crd.Spec.Versions {
		if version.Name != "v1alpha1" {
			continue
		}
		internal := &apiextensions.CustomResourceValidation{}
		require.NoError(t, apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(version.Schema, internal, nil))
		validator, _, err := validation.NewSchemaValidator(internal.OpenAPIV3Schema)
		require.NoError(t, err)
		require.Empty(t, validation.ValidateCustomResource(nil, shown.UnstructuredContent(), validator))
	}
	err := s.kube.Patch(t.Context(), shown, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"postgresVersion":"17","storage":{"storageClassName":""}}}`)))
	require.ErrorContains(t, err, "nothing converts between v1alpha1 and v1 at the moment")
	err = s.kube.Create(t.Context(), cluster(t, "v1alpha1", namespace, "new", `{replicas: 1, postgresVersion: "16", storage: {size: 1Gi, storageClassName: ""}}`))
	require.ErrorContains(t, err, "spec.version: Required value: nothing converts between v1alpha1 and v1 at the moment")
}

// withoutConversion takes the conversion off the CRD until the test ends, and returns the CRD.
func (s *server) withoutConversion(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	name := types.NamespacedName{Name: "postgresclusters." + v1.Group}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, s.kube.Get(t.Context(), name, crd))
	before := crd.Spec.Conversion.DeepCopy()
	require.NotNil(t, before.Webhook)
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	require.NoError(t, s.kube.Update(t.Context(), crd))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		require.NoError(t, s.kube.Get(ctx, name, crd))
		crd.Spec.Conversion = before
		require.NoError(t, s.kube.Update(ctx, crd))
	})
	return crd
}
