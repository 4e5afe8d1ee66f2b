package v1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PostgresBackup is one backup of a PostgresCluster. Whoever creates one asks for a backup; the schedule does so too.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=postgresbackups,singular=postgresbackup,shortName=pgb,scope=Namespaced,categories=all
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.cluster`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.status.type`
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.status.size`,description="Size of the data"
// +kubebuilder:printcolumn:name="Stored",type=string,JSONPath=`.status.repositorySize`,description="What it takes in the repository"
// +kubebuilder:printcolumn:name="Finished",type=date,JSONPath=`.status.finishedAt`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Label",type=string,priority=1,JSONPath=`.status.label`,description="Its name in the repository"
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
type PostgresBackup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the backup that is wanted.
	// +required
	Spec PostgresBackupSpec `json:"spec"`

	// status is what came of it.
	// +optional
	Status PostgresBackupStatus `json:"status,omitempty"`
}

// PostgresBackupList is a list of PostgresBackups.
//
// +kubebuilder:object:root=true
type PostgresBackupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PostgresBackup `json:"items"`
}

// PostgresBackupSpec is the backup that is wanted. It cannot be changed.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed; create another PostgresBackup"
type PostgresBackupSpec struct {
	// cluster is the name of the PostgresCluster, in the same namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=50
	// +required
	Cluster string `json:"cluster"`

	// type of the backup. Default: as the cluster's spec.backup.method has it for the schedule.
	// +optional
	Type BackupType `json:"type,omitempty"`
}

// BackupPhase is how far a backup has come.
//
// +kubebuilder:validation:Enum=Pending;Running;Completed;Failed
type BackupPhase string

const (
	// BackupPending is one that waits: for another backup, or for a cluster that can be backed up.
	BackupPending BackupPhase = "Pending"
	// BackupRunning is one that is being made.
	BackupRunning BackupPhase = "Running"
	// BackupCompleted is one that is in the repository.
	BackupCompleted BackupPhase = "Completed"
	// BackupFailed is one that was given up; message says why.
	BackupFailed BackupPhase = "Failed"
)

// PostgresBackupStatus is what came of a backup.
type PostgresBackupStatus struct {
	// phase is how far it has come.
	// +optional
	Phase BackupPhase `json:"phase,omitempty"`

	// reason is why it waits, failed, or does not go, in one word.
	// +optional
	Reason string `json:"reason,omitempty"`

	// message says the same in words.
	// +optional
	Message string `json:"message,omitempty"`

	// type that it is.
	// +optional
	Type BackupType `json:"type,omitempty"`

	// label is its name in the repository.
	// +optional
	Label string `json:"label,omitempty"`

	// location is where it is, in words: the bucket or the volume claim, and the folder there. It stays true when the cluster is gone,
	// and is where a recovery finds it.
	// +optional
	Location string `json:"location,omitempty"`

	// instance whose data was read.
	// +optional
	Instance string `json:"instance,omitempty"`

	// runner is the Pod that makes it, and the attempt's name there.
	// +optional
	Runner string `json:"runner,omitempty"`

	// attempts is how often it was begun.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`

	// startedAt is when the last attempt began.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`

	// finishedAt is when it ended, well or not.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`

	// startLSN and stopLSN are the positions of its beginning and end.
	// +optional
	StartLSN string `json:"startLSN,omitempty"`

	// stopLSN: see startLSN.
	// +optional
	StopLSN string `json:"stopLSN,omitempty"`

	// timeline on which it ended.
	// +optional
	Timeline int64 `json:"timeline,omitempty"`

	// size of the data.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`

	// repositorySize is what it takes in the repository, without what earlier ones have.
	// +optional
	RepositorySize *resource.Quantity `json:"repositorySize,omitempty"`

	// removal is how far the removal of its backup from the repository has come, once it is deleted; reason and message say it in words.
	// +optional
	Removal *BackupRemoval `json:"removal,omitempty"`

	// version is the PostgreSQL version that was backed up, such as 16.14.
	// +optional
	Version string `json:"version,omitempty"`

	// systemIdentifier is that of the PostgreSQL system.
	// +optional
	SystemIdentifier string `json:"systemIdentifier,omitempty"`
}

// BackupRemoval is how far the removal of a backup has come.
type BackupRemoval struct {
	// runner is the Pod that is to remove it.
	// +optional
	Runner string `json:"runner,omitempty"`

	// attempts is how often that was begun.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`

	// startedAt is when the last attempt began.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`

	// failingSince is since when it cannot be removed. After half an hour it is left in the repository.
	// +optional
	FailingSince *metav1.Time `json:"failingSince,omitempty"`
}

// BackupStatus is what there is to say of a cluster's backups beside their times.
type BackupStatus struct {
	// count of backups in the repository.
	Count int32 `json:"count"`

	// label is the last one's name in the repository.
	// +optional
	Label string `json:"label,omitempty"`

	// name is that of the last one's PostgresBackup.
	// +optional
	Name string `json:"name,omitempty"`

	// type of the last one.
	// +optional
	Type BackupType `json:"type,omitempty"`

	// size of the data in the last one.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`

	// lastArchivedWAL is the file of WAL that was archived last.
	// +optional
	LastArchivedWAL string `json:"lastArchivedWAL,omitempty"`

	// nextScheduled is when the next backup is due.
	// +optional
	NextScheduled *metav1.Time `json:"nextScheduled,omitempty"`

	// waitingSince is the time of the schedule for which no backup has begun, and may still begin.
	// +optional
	WaitingSince *metav1.Time `json:"waitingSince,omitempty"`

	// missed is how many times of the schedule have passed without a backup.
	// +optional
	Missed int32 `json:"missed,omitempty"`

	// lastMissed is the last of those times.
	// +optional
	LastMissed *metav1.Time `json:"lastMissed,omitempty"`

	// stanza is the name of this PostgreSQL system in the repository.
	// +optional
	Stanza string `json:"stanza,omitempty"`

	// verification is what came of the last verification, if spec.backup.verify asks for any.
	// +optional
	Verification *VerificationStatus `json:"verification,omitempty"`
}

// VerificationPhase is what came of a verification.
//
// +kubebuilder:validation:Enum=Succeeded;Failed
type VerificationPhase string

const (
	// VerificationSucceeded is one whose backup was restored and found to be good.
	VerificationSucceeded VerificationPhase = "Succeeded"
	// VerificationFailed is one whose backup was not; message says why.
	VerificationFailed VerificationPhase = "Failed"
)

// VerificationStatus is what came of the last verification of a backup.
type VerificationStatus struct {
	// phase is what came of it; empty: none has ended yet.
	// +optional
	Phase VerificationPhase `json:"phase,omitempty"`

	// message says what was checked, and what was wrong.
	// +optional
	Message string `json:"message,omitempty"`

	// label is the backup's name in the repository.
	// +optional
	Label string `json:"label,omitempty"`

	// name is that of the backup's PostgresBackup.
	// +optional
	Name string `json:"name,omitempty"`

	// startedAt is when it began.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`

	// finishedAt is when it ended, well or not.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`

	// lastSucceeded is when the last one ended that succeeded.
	// +optional
	LastSucceeded *metav1.Time `json:"lastSucceeded,omitempty"`

	// nextScheduled is when the next one is due.
	// +optional
	NextScheduled *metav1.Time `json:"nextScheduled,omitempty"`
}
