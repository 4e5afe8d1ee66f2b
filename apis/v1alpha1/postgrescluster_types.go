package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PostgresCluster is a PostgreSQL primary and its streaming standbys. Version v1 has more fields; use it for new clusters.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=postgresclusters,singular=postgrescluster,shortName=pgc,scope=Namespaced,categories=all
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.postgresVersion`,description="PostgreSQL version"
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.spec.replicas`,description="Instances wanted, primary included"
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Host",type=string,JSONPath=`.status.primaryHost`,description="Host that takes writes"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 50",message="metadata.name: must have at most 50 characters, since the names of Pods and Services are made from it; choose a shorter name"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name: must begin with a lower-case letter and have only lower-case letters, digits and '-', since Services are named after it"
type PostgresCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the cluster that is wanted.
	// +required
	Spec PostgresClusterSpec `json:"spec"`

	// status is the cluster that was last observed.
	// +optional
	Status PostgresClusterStatus `json:"status,omitempty"`
}

// PostgresClusterList is a list of PostgresClusters.
//
// +kubebuilder:object:root=true
type PostgresClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PostgresCluster `json:"items"`
}

// PostgresClusterSpec is the cluster that is wanted.
//
// What v1 has under another name is required by a rule of its own, not by the schema: OLM validates every existing object against the
// schema, and after an uninstallation, when nothing converts, a v1 object shown as v1alpha1 has none of it. In that time an update
// through this version would lose what only v1 has; the second rule refuses it.
//
// +kubebuilder:validation:XValidation:rule="has(self.postgresVersion)",message="a PostgreSQL version such as \"16\" is needed",reason=FieldValueRequired,fieldPath=".postgresVersion"
// +kubebuilder:validation:XValidation:rule="has(oldSelf.postgresVersion)",message="nothing converts between v1alpha1 and v1 at the moment, since the operator is not installed or is being replaced; use pgsteward.io/v1, or try again when the operator runs"
type PostgresClusterSpec struct {
	// replicas is the number of instances, the primary included: 1 to 9.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=9
	// +required
	Replicas int32 `json:"replicas"`

	// postgresVersion is the PostgreSQL version, with or without its minor: "16" or "16.14". The major is one of 15 to 18 and
	// can be changed in v1 only. A minor selects the operator's image of exactly that version; where there is none, its default image
	// of the major runs, which the Ready condition says. A change is rolled out: standbys first, one at a time, then the primary.
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^1[3-8](\.[0-9]+)?$`
	// +kubebuilder:validation:XValidation:rule="!self.matches('^1[34]')",messageExpression="'PostgreSQL ' + self + ' is not supported any more; use a version of 15 to 18, and move the data with pg_dump'"
	// +kubebuilder:validation:XValidation:rule="self.substring(0, 2) == oldSelf.substring(0, 2)",messageExpression="'the major cannot be changed in v1alpha1, from ' + oldSelf + ' to ' + self + '; keep ' + oldSelf.substring(0, 2) + ', or set spec.version in pgsteward.io/v1, which begins a major upgrade'"
	// +optional
	PostgresVersion string `json:"postgresVersion"`

	// storage is the volume that each instance gets.
	// +required
	Storage StorageSpec `json:"storage"`
}

// StorageSpec is the volume of each instance.
//
// +kubebuilder:validation:XValidation:rule="has(self.storageClassName)",message="a StorageClass is needed; \"\" means the default one",reason=FieldValueRequired,fieldPath=".storageClassName"
type StorageSpec struct {
	// size of the volume, such as 10Gi; at least 128Mi. It can grow, where the storage class allows it, and never shrink.
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('128Mi')) >= 0",message="must be a quantity of at least 128Mi, such as 10Gi"
	// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self)) || !isQuantity(string(oldSelf)) || quantity(string(self)).compareTo(quantity(string(oldSelf))) >= 0",messageExpression="'a volume cannot shrink from ' + string(oldSelf) + '; keep the size or choose a larger one'"
	// +required
	Size resource.Quantity `json:"size"`

	// storageClassName is the StorageClass of new volumes; "" means the cluster's default class.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	StorageClassName string `json:"storageClassName"`
}

// Phase is a one-word summary of the conditions, for people: Creating, Ready or Failed.
//
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule="self in ['Creating', 'Ready', 'Failed']",message="must be Creating, Ready or Failed"
type Phase string

const (
	// PhaseCreating is the phase until the cluster has been ready for the first time.
	PhaseCreating Phase = "Creating"
	// PhaseReady is the phase of a cluster whose primary serves.
	PhaseReady Phase = "Ready"
	// PhaseFailed is the phase of a cluster that does not serve: something is wrong with it, or it is suspended or being
	// deleted. The Ready condition says which.
	PhaseFailed Phase = "Failed"
)

// PostgresClusterStatus is the cluster that was last observed.
type PostgresClusterStatus struct {
	// phase is a one-word summary of the conditions.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// primaryHost is the host that takes writes.
	// +optional
	PrimaryHost string `json:"primaryHost,omitempty"`

	// replicaHosts are the hosts of the standbys, for reads.
	// +listType=atomic
	// +optional
	ReplicaHosts []string `json:"replicaHosts,omitempty"`

	// conditions are Ready, Progressing and Degraded.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
