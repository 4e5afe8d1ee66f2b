//go:build e2e

package e2e

import (
	"context"
	"sort"
	"strings"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pgsteward/pgsteward/internal/naming"
)

// childKinds are the kinds that a PostgresCluster is made of.
var childKinds = []schema.GroupVersionKind{
	{Group: "apps", Version: "v1", Kind: "StatefulSet"},
	{Version: "v1", Kind: "Pod"},
	{Version: "v1", Kind: "PersistentVolumeClaim"},
	{Version: "v1", Kind: "Service"},
	{Version: "v1", Kind: "Secret"},
	{Version: "v1", Kind: "ConfigMap"},
	{Version: "v1", Kind: "ServiceAccount"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
	{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
	{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"},
}

// children are the metadata of the PostgresCluster's objects, by Kind/name.
func (c cluster) children(t require.TestingT) map[string]metav1.PartialObjectMetadata {
	found := map[string]metav1.PartialObjectMetadata{}
	for _, kind := range childKinds {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		require.NoError(t, kube.List(context.Background(), list, client.InNamespace(c.namespace), client.MatchingLabels{naming.LabelCluster: c.name}))
		for _, item := range list.Items {
			found[kind.Kind+"/"+item.Name] = item
		}
	}
	return found
}

// everything are all objects in the namespace with the PostgresCluster's label, of whatever kind the API server knows, as
// resource/name.
func (c cluster) everything(t require.TestingT) []string {
	disco, err := discovery.NewDiscoveryClientForConfig(kubeConfig)
	require.NoError(t, err)
	lists, err := disco.ServerPreferredNamespacedResources()
	require.NoError(t, err)
	api, err := metadata.NewForConfig(kubeConfig)
	require.NoError(t, err)
	var found []string
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		require.NoError(t, err)
		for _, resource := range list.APIResources {
			if !contains(resource.Verbs, "list") {
				continue
			}
			items, err := api.Resource(version.WithResource(resource.Name)).Namespace(c.namespace).
				List(context.Background(), metav1.ListOptions{LabelSelector: naming.LabelCluster + "=" + c.name})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				continue
			}
			require.NoError(t, err, "listing %s", resource.Name)
			for _, item := range items.Items {
				found = append(found, resource.Name+"/"+item.Name)
			}
		}
	}
	sort.Strings(found)
	return found
}

func contains(list []string, want string) bool {
	return strings.Contains(" "+strings.Join(list, " ")+" ", " "+want+" ")
}
