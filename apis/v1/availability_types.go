package v1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Duration is a time in whole seconds, such as 8s, 90s, 5m or 1h30m.
//
// +kubebuilder:validation:MinLength=2
// +kubebuilder:validation:MaxLength=16
// +kubebuilder:validation:Pattern=`^([0-9]{1,4}h)?([0-9]{1,4}m)?([0-9]{1,5}s)?$`
type Duration string

// AvailabilitySpec says how the instances elect the primary among themselves, and what a commit waits for.
//
// +kubebuilder:validation:XValidation:rule="!has(self.renewInterval) || !has(self.renewDeadline) || duration(self.renewInterval) + duration(self.renewInterval) <= duration(self.renewDeadline)",messageExpression="'must be at most half of renewDeadline (' + self.renewDeadline + '), so that one lost renewal does no harm; lower it from ' + self.renewInterval + ' or raise renewDeadline'",fieldPath=".renewInterval"
// +kubebuilder:validation:XValidation:rule="!has(self.renewDeadline) || !has(self.leaseDuration) || duration(self.renewDeadline) + duration('1s') < duration(self.leaseDuration)",messageExpression="'must be more than 1s shorter than leaseDuration (' + self.leaseDuration + '), the time in which a primary that cannot renew is stopped; lower it from ' + self.renewDeadline + ' or raise leaseDuration'",fieldPath=".renewDeadline"
type AvailabilitySpec struct {
	// leaseDuration is how long the primary's lease is good after its last renewal: 5s to 60s. A standby takes over when it has run
	// out. Shorter means a faster failover, and less patience with an API server or a network that hesitates.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('5s') && duration(self) <= duration('60s')",messageExpression="'must be from 5s to 60s, not ' + self"
	// +kubebuilder:default="8s"
	// +optional
	LeaseDuration Duration `json:"leaseDuration,omitempty"`

	// renewDeadline is how long the primary may go on without having renewed its lease; then it stops accepting writes. It must
	// be more than 1s shorter than leaseDuration.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('2s')",messageExpression="'must be at least 2s, not ' + self"
	// +kubebuilder:default="5s"
	// +optional
	RenewDeadline Duration `json:"renewDeadline,omitempty"`

	// renewInterval is how often the primary renews its lease; at most half of renewDeadline.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",messageExpression="'must be at least 1s, not ' + self"
	// +kubebuilder:default="2s"
	// +optional
	RenewInterval Duration `json:"renewInterval,omitempty"`

	// failsafe: while the API server is out of reach the primary goes on as long as all other instances answer it and promise
	// not to take over. False: it stops when it cannot renew its lease.
	// +kubebuilder:default=true
	// +optional
	Failsafe *bool `json:"failsafe,omitempty"`

	// maximumLag is how far a standby may be behind the primary's last known position and still take over by itself, as a
	// quantity of bytes such as 16Mi. It bounds what asynchronous replication can lose. With no standby within it the cluster waits
	// and says so; the annotation pgsteward.io/force-failover lets one take over.
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('0')) >= 0",message="must be a quantity of bytes of at least 0, such as 16Mi"
	// +kubebuilder:default="16Mi"
	// +optional
	MaximumLag *resource.Quantity `json:"maximumLag,omitempty"`

	// synchronous says whether a commit waits for standbys.
	// +kubebuilder:default={}
	// +optional
	Synchronous SynchronousSpec `json:"synchronous,omitzero"`

	// nodeLostAfter is how long a standby may be bound, by its volume, to a node that is not ready before it is made anew
	// elsewhere with a new volume and copied from the primary: 1m or more. A node that was deleted is not waited for. The primary's
	// volume is never replaced.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m')",messageExpression="'must be at least 1m, not ' + self"
	// +kubebuilder:default="5m"
	// +optional
	NodeLostAfter Duration `json:"nodeLostAfter,omitempty"`
}

// SynchronousMode says whether commits wait for standbys.
//
// +kubebuilder:validation:Enum=none;preferred;required
type SynchronousMode string

const (
	// SynchronousNone is asynchronous replication: a failover can lose the last commits, bounded by maximumLag.
	SynchronousNone SynchronousMode = "none"
	// SynchronousPreferred makes commits wait for standbys while enough are there; with fewer, commits go on and the status says so.
	SynchronousPreferred SynchronousMode = "preferred"
	// SynchronousRequired makes commits wait until enough standbys have them, however long that takes: nothing acknowledged is
	// lost by a failover.
	SynchronousRequired SynchronousMode = "required"
)

// SynchronousSpec says how many standbys a commit waits for. Which ones does not matter: any that many (quorum commit).
type SynchronousSpec struct {
	// mode: none, preferred (waits while enough standbys are there) or required (waits in any case).
	// +kubebuilder:default=none
	// +optional
	Mode SynchronousMode `json:"mode,omitempty"`

	// number of standbys that must have a commit before it is acknowledged; less than replicas.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=8
	// +kubebuilder:default=1
	// +optional
	Number int32 `json:"number,omitempty"`
}

// SchedulingSpec says on which nodes the instances may run. By default they are spread over nodes and zones where there are enough.
// A change is rolled out one instance at a time.
type SchedulingSpec struct {
	// nodeSelector are labels that a node must have.
	// +kubebuilder:validation:MaxProperties=20
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// tolerations let the instances run on nodes with these taints.
	// +kubebuilder:validation:MaxItems=20
	// +listType=atomic
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// affinity replaces pgsteward's own, which prefers a node for each instance.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`
}
