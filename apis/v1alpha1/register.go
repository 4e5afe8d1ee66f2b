package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
)

// GroupVersion is the group and version of this package's types.
var GroupVersion = schema.GroupVersion{Group: v1.Group, Version: "v1alpha1"}

// AddToScheme registers this package's types.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &PostgresCluster{}, &PostgresClusterList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
