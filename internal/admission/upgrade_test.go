package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
)

// packaged is what a bundle has of the API.
type packaged struct {
	crds     []*apiextensionsv1.CustomResourceDefinition
	examples []*unstructured.Unstructured
}

func readBundle(t *testing.T, dir string) packaged {
	t.Helper()
	var p packaged
	files, err := filepath.Glob(filepath.Join(dir, "manifests", "*.yaml"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		manifest := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal(text, &manifest.Object), file)
		switch manifest.GetKind() {
		case "CustomResourceDefinition":
			crd := &apiextensionsv1.CustomResourceDefinition{}
			require.NoError(t, yaml.Unmarshal(text, crd), file)
			p.crds = append(p.crds, crd)
		case "ClusterServiceVersion":
			require.NoError(t, json.Unmarshal([]byte(manifest.GetAnnotations()["alm-examples"]), &p.examples), file)
		}
	}
	require.NotEmpty(t, p.crds, dir)
	require.NotEmpty(t, p.examples, dir)
	return p
}

// emptyServer is an API server that has none of our CRDs yet, with the webhook for conversion in this process.
func emptyServer(t *testing.T) *server {
	t.Helper()
	if _, err := os.Stat(filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kube-apiserver")); err != nil {
		t.Skip("no kube-apiserver in KUBEBUILDER_ASSETS (make cluster builds it, make test-unit sets it)")
	}
	s := &server{env: &envtest.Environment{Scheme: scheme(), ControlPlaneStartTimeout: startTimeout}}
	var err error
	s.config, err = s.env.Start()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.env.Stop()) })
	s.kube, err = client.New(s.config, client.Options{Scheme: scheme()})
	require.NoError(t, err)
	require.NoError(t, s.serve(t.Context()))
	return s
}

// install applies CRDs; those with several versions are converted by the webhook of this process.
func (s *server) install(t *testing.T, crds []*apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	_, err := envtest.InstallCRDs(s.config, envtest.CRDInstallOptions{Scheme: scheme(), CRDs: crds, WebhookOptions: s.env.WebhookInstallOptions})
	require.NoError(t, err)
}

// uninstall deletes CRDs, and with them what is of their kind, and waits until they are gone.
func (s *server) uninstall(t *testing.T, crds []*apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	for _, crd := range crds {
		gone := func() bool {
			return apierrors.IsNotFound(s.kube.Delete(context.Background(), &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: crd.Name}}))
		}
		require.Eventually(t, gone, time.Minute, 50*time.Millisecond, "%s is not gone", crd.Name)
	}
}

// served are the versions that a CRD serves, with their schemas.
func served(crd *apiextensionsv1.CustomResourceDefinition) map[string]*apiextensionsv1.CustomResourceValidation {
	versions := map[string]*apiextensionsv1.CustomResourceValidation{}
	for _, v := range crd.Spec.Versions {
		if v.Served {
			versions[v.Name] = v.Schema
		}
	}
	return versions
}

// list is every object of a CRD's kind in one of its versions, as the API server gives it.
func (s *server) list(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition, version string) []unstructured.Unstructured {
	t.Helper()
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(schema.GroupVersionKind{Group: crd.Spec.Group, Version: version, Kind: crd.Spec.Names.ListKind})
	require.NoError(t, s.kube.List(t.Context(), all), "listing %s as %s", crd.Name, version)
	return all.Items
}

// tooStrict says which objects a schema refuses, as OLM does before it applies a new CRD: by the schema alone, without its rules.
func tooStrict(schema *apiextensionsv1.CustomResourceValidation, objects []unstructured.Unstructured) error {
	internal := &apiextensions.CustomResourceValidation{}
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(schema, internal, nil); err != nil {
		return err
	}
	validator, _, err := validation.NewSchemaValidator(internal.OpenAPIV3Schema)
	if err != nil {
		return err
	}
	for _, o := range objects {
		if err := validation.ValidateCustomResource(field.NewPath(""), o.UnstructuredContent(), validator).ToAggregate(); err != nil {
			return fmt.Errorf("%s %s: %w", o.GroupVersionKind(), o.GetName(), err)
		}
	}
	return nil
}

// populate makes every example of a release, with a status as the operator writes it. It returns how many there are of each kind.
func (s *server) populate(t *testing.T, p packaged) map[string]int {
	t.Helper()
	namespace := s.namespace(t, "upgrade")
	count := map[string]int{}
	for _, example := range p.examples {
		example.SetNamespace(namespace)
		require.NoError(t, s.kube.Create(t.Context(), example), "%s %s", example.GroupVersionKind(), example.GetName())
		count[example.GetKind()]++
		if example.GetKind() != "PostgresCluster" {
			continue
		}
		c := &v1.PostgresCluster{}
		require.NoError(t, s.kube.Get(t.Context(), client.ObjectKeyFromObject(example), c))
		lag := int64(0)
		c.Status = v1.PostgresClusterStatus{
			ObservedGeneration: 1, Phase: v1.PhaseRunning, Version: "16.14", SystemIdentifier: "7123456789012345678",
			CurrentPrimary: "db-1", PrimaryHost: "db-rw", ReplicaHosts: []string{"db-2-0.db-instances"},
			Replicas: 2, ReadyReplicas: 1, Selector: "app=db",
			Instances: []v1.InstanceStatus{
				{Name: "db-1", Role: v1.RolePrimary, Ready: true, State: "Running", Version: "16.14", Timeline: 1, LSN: "0/3000060", Node: "node1"},
				{Name: "db-2", Role: v1.RoleStandby, State: "Seeding", LagBytes: &lag, PendingRestart: []string{"shared_buffers"}, Message: "wait"},
			},
			Conditions: []metav1.Condition{{Type: v1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1.ReasonReady, LastTransitionTime: metav1.Unix(1e9, 0)}},
		}
		require.NoError(t, s.kube.Status().Update(t.Context(), c))
	}
	return count
}

// TestUpgradeFromReleases: with the objects of a release in the cluster, OLM takes this tree's CRDs, and after that every object is
// there in every version, valid, and can be changed. Also from this tree to itself, as a reinstallation does.
func TestUpgradeFromReleases(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	tree := filepath.Join(root, "bundle")
	before, err := filepath.Glob(filepath.Join(root, "releases", "v*", "bundle"))
	require.NoError(t, err)
	s := emptyServer(t)
	for _, dir := range append(before, tree) {
		t.Run(filepath.ToSlash(dir), func(t *testing.T) {
			was, is := readBundle(t, dir), readBundle(t, tree)
			s.install(t, was.crds)
			defer s.uninstall(t, is.crds)
			count := s.populate(t, was)
			old := map[string]*apiextensionsv1.CustomResourceDefinition{}
			for _, crd := range was.crds {
				old[crd.Name] = crd
			}
			for _, crd := range is.crds {
				if old[crd.Name] == nil {
					continue
				}
				for version, schema := range served(crd) {
					if _, both := served(old[crd.Name])[version]; both {
						objects := s.list(t, old[crd.Name], version)
						require.Len(t, objects, count[crd.Spec.Names.Kind])
						require.NoError(t, tooStrict(schema, objects), "OLM would refuse the upgrade")
					}
				}
			}
			s.install(t, is.crds)
			for _, crd := range is.crds {
				for version, schema := range served(crd) {
					objects := s.list(t, crd, version)
					require.Len(t, objects, count[crd.Spec.Names.Kind], version)
					require.NoError(t, tooStrict(schema, objects), "after the upgrade")
					for _, o := range objects {
						patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"changed-as":"`+version+`"}}}`))
						require.NoError(t, s.kube.Patch(t.Context(), &o, patch), "%s %s cannot be changed", o.GroupVersionKind(), o.GetName())
					}
				}
			}
		})
	}
}

// TestTooStrict: the check above finds what OLM would.
func TestTooStrict(t *testing.T) {
	t.Parallel()
	p := readBundle(t, filepath.Join("..", "..", "bundle"))
	i := slices.IndexFunc(p.crds, func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		return crd.Spec.Names.Kind == "PostgresCluster"
	})
	require.GreaterOrEqual(t, i, 0)
	schema := served(p.crds[i])["v1"]
	objects := []unstructured.Unstructured{*object(t, `{apiVersion: pgsteward.io/v1, kind: PostgresCluster, metadata: {name: db}, spec: {version: "16"}}`)}
	require.NoError(t, tooStrict(schema, objects))
	spec := schema.OpenAPIV3Schema.Properties["spec"]
	spec.Required = append(spec.Required, "resources")
	schema.OpenAPIV3Schema.Properties["spec"] = spec
	require.ErrorContains(t, tooStrict(schema, objects), "PostgresCluster db: [].spec.resources: Required value")
}
