package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of everything that pgsteward defines.
const Group = "pgsteward.io"

// GroupVersion is the group and version of this package's types.
var GroupVersion = schema.GroupVersion{Group: Group, Version: "v1"}

// AddToScheme registers this package's types.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &PostgresCluster{}, &PostgresClusterList{}, &PostgresBackup{}, &PostgresBackupList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
