package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RecoveryPhase is how far a recovery in place has come.
//
// +kubebuilder:validation:Enum=SafetyBackup;Preparing;Announcing;Replacing;Rejoining;Completed;Refused;Failed
type RecoveryPhase string

// The phases of a recovery in place, in order. Until Replacing the cluster serves as before, and what fails changes nothing.
const (
	// RecoverySafetyBackup makes a backup of what is there.
	RecoverySafetyBackup RecoveryPhase = "SafetyBackup"
	// RecoveryPreparing makes the recovered data beside the present.
	RecoveryPreparing RecoveryPhase = "Preparing"
	// RecoveryAnnouncing has all instances know that what they have is not to take over any more.
	RecoveryAnnouncing RecoveryPhase = "Announcing"
	// RecoveryReplacing puts the recovered data in the place of the primary's.
	RecoveryReplacing RecoveryPhase = "Replacing"
	// RecoveryRejoining has the standbys follow.
	RecoveryRejoining RecoveryPhase = "Rejoining"
	// RecoveryCompleted is one that is done.
	RecoveryCompleted RecoveryPhase = "Completed"
	// RecoveryRefused is one that was not begun; message says why.
	RecoveryRefused RecoveryPhase = "Refused"
	// RecoveryFailed is one that was begun and has changed nothing; message says why.
	RecoveryFailed RecoveryPhase = "Failed"
)

// Final says whether nothing more will come of it.
func (p RecoveryPhase) Final() bool {
	return p == RecoveryCompleted || p == RecoveryRefused || p == RecoveryFailed
}

// Binding says whether data from before the recovery must not take over.
func (p RecoveryPhase) Binding() bool {
	return p == RecoveryAnnouncing || p == RecoveryReplacing || p == RecoveryRejoining || p == RecoveryCompleted
}

// RecoveryStatus is a recovery in place.
type RecoveryStatus struct {
	// name of the attempt, as the annotation pgsteward.io/recover-in-place has it.
	Name string `json:"name"`

	// attempt is what the instances and the backup before it know it by: no other one of that name, of this cluster or of one whose data
	// came here, is taken for it.
	// +optional
	Attempt string `json:"attempt,omitempty"`

	// target is up to where it goes.
	// +optional
	Target string `json:"target,omitempty"`

	// phase is how far it has come.
	Phase RecoveryPhase `json:"phase"`

	// message says in words what it waits for, or what came of it.
	// +optional
	Message string `json:"message,omitempty"`

	// safetyBackup is the PostgresBackup of what was there before.
	// +optional
	SafetyBackup string `json:"safetyBackup,omitempty"`

	// timeline is that of the recovered data.
	// +optional
	Timeline int64 `json:"timeline,omitempty"`

	// minimumTimeline is that of the last recovery in place that was completed: older data of this PostgreSQL system never takes over.
	// +optional
	MinimumTimeline int64 `json:"minimumTimeline,omitempty"`

	// systemIdentifier is that of the PostgreSQL system whose timelines these are.
	// +optional
	SystemIdentifier string `json:"systemIdentifier,omitempty"`

	// startedAt is when it was begun, or refused.
	StartedAt metav1.Time `json:"startedAt"`

	// changedAt is when its phase last changed.
	ChangedAt metav1.Time `json:"changedAt"`

	// finishedAt is when it ended.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
}
