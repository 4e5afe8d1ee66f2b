package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Phase is a one-word summary of the conditions, for people.
//
// +kubebuilder:validation:Enum=Creating;Running;Upgrading;Failed;Suspended;Deleting
type Phase string

const (
	// PhaseCreating is the phase until the cluster has been ready for the first time.
	PhaseCreating Phase = "Creating"
	// PhaseRunning is the phase of a cluster that was ready once and is not known to have failed. Whether it serves just now is
	// what the condition Ready says.
	PhaseRunning Phase = "Running"
	// PhaseUpgrading is the phase while the cluster gets another major version of PostgreSQL.
	PhaseUpgrading Phase = "Upgrading"
	// PhaseFailed is the phase of a cluster that does not serve and will not without somebody's help.
	PhaseFailed Phase = "Failed"
	// PhaseSuspended is the phase of a cluster whose instances are stopped because the spec says so.
	PhaseSuspended Phase = "Suspended"
	// PhaseDeleting is the phase of a cluster that is being deleted.
	PhaseDeleting Phase = "Deleting"
)

// Condition types of a PostgresCluster.
const (
	// ConditionReady is true when every instance that the spec asks for is ready, and the primary serves.
	ConditionReady = "Ready"
	// ConditionProgressing is true while pgsteward is changing the cluster towards the spec.
	ConditionProgressing = "Progressing"
	// ConditionDegraded is true when something is wrong that does not mend itself in the course of the current operation.
	ConditionDegraded = "Degraded"
	// ConditionContinuousArchiving is true while WAL reaches the repository. Only with spec.backup.
	ConditionContinuousArchiving = "ContinuousArchiving"
	// ConditionBackupHealthy is true while there is a good backup that is not older than the schedule says. Only with spec.backup.
	ConditionBackupHealthy = "BackupHealthy"
	// ConditionPaused is true while pgsteward leaves the cluster alone because an annotation says so. The databases go on.
	ConditionPaused = "Paused"
)

// Reasons of conditions, also used as the reasons of events.
const (
	// ReasonReady: all is as the spec says.
	ReasonReady = "ClusterReady"
	// ReasonCreatingInstances: instances are missing and being created.
	ReasonCreatingInstances = "CreatingInstances"
	// ReasonRemovingInstance: a standby is being removed.
	ReasonRemovingInstance = "RemovingInstance"
	// ReasonRestartingInstance: an instance that does not work is started anew with a changed specification.
	ReasonRestartingInstance = "RestartingInstance"
	// ReasonReplacingVolume: a volume that was never bound is made anew with a changed specification.
	ReasonReplacingVolume = "ReplacingVolume"
	// ReasonWaitingForPrimary: no instance is primary yet.
	ReasonWaitingForPrimary = "WaitingForPrimary"
	// ReasonPrimaryNotReady: the primary is not ready.
	ReasonPrimaryNotReady = "PrimaryNotReady"
	// ReasonInstancesNotReady: standbys are not ready.
	ReasonInstancesNotReady = "InstancesNotReady"
	// ReasonAgentUnreachable: an instance's agent does not answer the operator.
	ReasonAgentUnreachable = "AgentUnreachable"
	// ReasonConfiguringInstances: instances have yet to put the newest configuration in force.
	ReasonConfiguringInstances = "ConfiguringInstances"
	// ReasonSuspended: the instances are stopped, or being stopped, because the spec says so.
	ReasonSuspended = "Suspended"
	// ReasonPaused: an annotation says that the cluster is to be left alone.
	ReasonPaused = "Paused"
	// ReasonNotPaused: no annotation says that the cluster is to be left alone.
	ReasonNotPaused = "NotPaused"
	// ReasonReconciled: nothing is left to do.
	ReasonReconciled = "Reconciled"
	// ReasonHealthy: nothing is wrong.
	ReasonHealthy = "Healthy"
	// ReasonDeleting: the cluster is being deleted.
	ReasonDeleting = "Deleting"
	// ReasonFinalBackup: the cluster is being deleted, and its last backup is made before.
	ReasonFinalBackup = "FinalBackup"
	// ReasonFinalBackupFailed: the last backup of a cluster that is being deleted cannot be made, and the cluster stays.
	ReasonFinalBackupFailed = "FinalBackupFailed"
	// ReasonDeletionBlocked: the cluster is being deleted and something does not go.
	ReasonDeletionBlocked = "DeletionBlocked"

	// ReasonRestoring: the data is made from a backup.
	ReasonRestoring = "Restoring"

	// ReasonArchiving: WAL reaches the repository.
	ReasonArchiving = "Archiving"
	// ReasonArchivingStarting: nothing has been archived yet.
	ReasonArchivingStarting = "ArchivingStarting"
	// ReasonArchivingFailed: WAL cannot be archived; it is kept by the primary.
	ReasonArchivingFailed = "ArchivingFailed"
	// ReasonWALFillsVolume: WAL cannot be archived, and what is kept of it takes as much of the volume as is left.
	ReasonWALFillsVolume = "WALFillsVolume"
	// ReasonRepositoryUnavailable: the repository cannot be used.
	ReasonRepositoryUnavailable = "RepositoryUnavailable"
	// ReasonBackupsUnsupported: the image has no pgBackRest.
	ReasonBackupsUnsupported = "BackupsUnsupported"
	// ReasonBackupUpToDate: there is a good backup that is as new as the schedule says.
	ReasonBackupUpToDate = "BackupUpToDate"
	// ReasonNoBackup: there is no backup yet.
	ReasonNoBackup = "NoBackup"
	// ReasonArchiveIncomplete: WAL is missing in the repository after the last backup, and newer is there.
	ReasonArchiveIncomplete = "ArchiveIncomplete"
	// ReasonBackupOverdue: the last good backup is older than the schedule says.
	ReasonBackupOverdue = "BackupOverdue"
	// ReasonRecoveringInPlace: the data is being replaced by that of an earlier moment. ReasonRecoveredInPlace: it was (event only).
	ReasonRecoveringInPlace = "RecoveringInPlace"
	ReasonRecoveredInPlace  = "RecoveredInPlace"
	// ReasonRecoveryRefused: a recovery in place was refused, or failed and changed nothing.
	ReasonRecoveryRefused = "RecoveryRefused"
	// ReasonScheduleMissed: a backup was due, was not begun, and will not be; there is none since.
	ReasonScheduleMissed = "ScheduleMissed"
	// ReasonVerificationFailed: the backup that was verified last is no good, or could not be verified.
	ReasonVerificationFailed = "VerificationFailed"
	// ReasonVerificationOverdue: no backup has been verified for longer than spec.backup.verify says.
	ReasonVerificationOverdue = "VerificationOverdue"
	// ReasonBackupVerified: a backup was restored and found to be good (event only).
	ReasonBackupVerified = "BackupVerified"
	// ReasonBackupFailed: the last backup failed.
	ReasonBackupFailed = "BackupFailed"
	// ReasonInvalidSchedule: the schedule cannot be carried out.
	ReasonInvalidSchedule = "InvalidSchedule"
	// ReasonBackupStarted and ReasonBackupCompleted: a backup begins, and is there.
	ReasonBackupStarted   = "BackupStarted"
	ReasonBackupCompleted = "BackupCompleted"
	// ReasonWaitingForCluster: a backup waits until there is a cluster that can be backed up.
	ReasonWaitingForCluster = "WaitingForCluster"
	// ReasonWaitingForBackup: a backup waits for another one to end.
	ReasonWaitingForBackup = "WaitingForBackup"
	// ReasonBackupNeeded: a PostgresBackup is deleted and stays, since others need its backup, or nothing else could be recovered from.
	ReasonBackupNeeded = "BackupNeeded"
	// ReasonRemovingBackup and ReasonBackupRemoved: the backup of a deleted PostgresBackup is being removed, and is gone.
	ReasonRemovingBackup = "RemovingBackup"
	ReasonBackupRemoved  = "BackupRemoved"
	// ReasonBackupRemovalFailed: the backup of a deleted PostgresBackup cannot be removed now.
	ReasonBackupRemovalFailed = "BackupRemovalFailed"
	// ReasonBackupLeft: a PostgresBackup is gone, and its backup stays in the repository.
	ReasonBackupLeft = "BackupLeft"
	// ReasonBackupNotConfigured: the cluster has no spec.backup.
	ReasonBackupNotConfigured = "BackupNotConfigured"

	// ReasonRecoveryFailed: the data cannot be made from a backup.
	ReasonRecoveryFailed = "RecoveryFailed"

	// ReasonImagePullFailed: an image cannot be pulled.
	ReasonImagePullFailed = "ImagePullFailed"
	// ReasonImageUnknown: the operator has no default image of the version.
	ReasonImageUnknown = "ImageUnknown"
	// ReasonImageMajorMismatch: the image's PostgreSQL is not of the major in the spec.
	ReasonImageMajorMismatch = "ImageMajorMismatch"
	// ReasonContainerFailed: a container does not start or keeps ending.
	ReasonContainerFailed = "ContainerFailed"
	// ReasonStorageClassNotFound: the storage class does not exist.
	ReasonStorageClassNotFound = "StorageClassNotFound"
	// ReasonVolumeNotExpandable: volumes should grow and their storage class does not let them.
	ReasonVolumeNotExpandable = "VolumeNotExpandable"
	// ReasonVolumePending: a volume is not bound.
	ReasonVolumePending = "VolumePending"
	// ReasonVolumeLost: a volume's data is gone.
	ReasonVolumeLost = "VolumeLost"
	// ReasonUnschedulable: a Pod finds no place.
	ReasonUnschedulable = "Unschedulable"
	// ReasonQuotaExceeded: a quota refuses an object.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonPodRefused: a Pod is refused by the API server, for a reason other than a quota.
	ReasonPodRefused = "PodRefused"
	// ReasonNamespaceTerminating: the namespace is being deleted.
	ReasonNamespaceTerminating = "NamespaceTerminating"
	// ReasonNameTaken: an object of a name that the cluster needs belongs to somebody else.
	ReasonNameTaken = "NameTaken"
	// ReasonNoSecretAccess: the operator cannot read the cluster's Secrets.
	ReasonNoSecretAccess = "NoSecretAccess"
	// ReasonApplyFailed: the API server refused an object.
	ReasonApplyFailed = "ApplyFailed"
	// ReasonInvalidSpec: the spec cannot be carried out.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonInvalidAnnotation: an annotation names what there is not.
	ReasonInvalidAnnotation = "InvalidAnnotation"
	// ReasonConfigurationRejected: PostgreSQL refused parameters or pg_hba lines; the previous ones stay in force.
	ReasonConfigurationRejected = "ConfigurationRejected"
	// ReasonDataLost: an instance that must have data has none.
	ReasonDataLost = "DataLost"
	// ReasonSystemMismatch: an instance's data belongs to another PostgreSQL system.
	ReasonSystemMismatch = "SystemMismatch"
	// ReasonDataVersionMismatch: an instance's data is of another major.
	ReasonDataVersionMismatch = "DataVersionMismatch"
	// ReasonServerFailed: PostgreSQL does not start, or keeps ending.
	ReasonServerFailed = "ServerFailed"
	// ReasonSetupFailed: roles, passwords, the database or replication slots cannot be made as they should be.
	ReasonSetupFailed = "SetupFailed"
	// ReasonSeedFailed: an instance's data cannot be made.
	ReasonSeedFailed = "SeedFailed"
	// ReasonNotStreaming: a standby does not stream from the primary.
	ReasonNotStreaming = "NotStreaming"
	// ReasonLeaseLost: an instance does not hold the lease that it needs.
	ReasonLeaseLost = "LeaseLost"
	// ReasonAccessRevoked: the API server rejects an instance's token, since its ServiceAccount was deleted.
	ReasonAccessRevoked = "AccessRevoked"
	// ReasonFailingOver: the primary is lost, and a standby is taking over.
	ReasonFailingOver = "FailingOver"
	// ReasonSwitchingOver: the primary's part is being handed over to a standby.
	ReasonSwitchingOver = "SwitchingOver"
	// ReasonSwitchedOver: a switchover is complete.
	ReasonSwitchedOver = "SwitchedOver"
	// ReasonSwitchoverRefused: a switchover was asked for and not carried out.
	ReasonSwitchoverRefused = "SwitchoverRefused"
	// ReasonSwitchoverUndone: PostgreSQL was stopped for a switchover that came to nothing, and was started again.
	ReasonSwitchoverUndone = "SwitchoverUndone"
	// ReasonAgentOlder: an instance's agent is of an earlier version, which cannot do what it was asked for.
	ReasonAgentOlder = "AgentOlder"
	// ReasonUpdatingInstances: instances are restarted one after the other, since image, resources or parameters changed.
	ReasonUpdatingInstances = "UpdatingInstances"
	// ReasonFenced: an annotation says that an instance's PostgreSQL is to be stopped.
	ReasonFenced = "Fenced"
	// ReasonNodeLost: an instance's node is gone or does not answer.
	ReasonNodeLost = "NodeLost"
	// ReasonReplacingInstance: a standby whose volume was lost with its node is made anew.
	ReasonReplacingInstance = "ReplacingInstance"
	// ReasonLagTooGreat: no standby is near enough to the lost primary's last position to take over.
	ReasonLagTooGreat = "LagTooGreat"
	// ReasonQuorumMissing: the primary is lost, and too few of its synchronous standbys answer to be sure of every acknowledged commit.
	ReasonQuorumMissing = "QuorumMissing"
	// ReasonSynchronousDegraded: fewer standbys than asked for confirm commits, and commits go on.
	ReasonSynchronousDegraded = "SynchronousDegraded"
	// ReasonSynchronousBlocked: fewer standbys than required confirm commits, so commits wait.
	ReasonSynchronousBlocked = "SynchronousBlocked"
	// ReasonDiskFull: an instance's volume is full.
	ReasonDiskFull = "DiskFull"
	// ReasonVolumeRetained: volumes were kept (event only).
	ReasonVolumeRetained = "VolumeRetained"
	// ReasonPrimaryChanged: another instance is primary (event only).
	ReasonPrimaryChanged = "PrimaryChanged"
	// ReasonInstanceReady: an instance became ready (event only).
	ReasonInstanceReady = "InstanceReady"
)

// Role is what an instance is in its cluster.
//
// +kubebuilder:validation:Enum=primary;standby
type Role string

const (
	// RolePrimary takes writes.
	RolePrimary Role = "primary"
	// RoleStandby follows the primary.
	RoleStandby Role = "standby"
)

// PostgresClusterStatus is the cluster that was last observed.
type PostgresClusterStatus struct {
	// observedGeneration is the generation of the spec that this status answers.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase is a one-word summary of the conditions.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// version is the primary's PostgreSQL version, such as 16.14.
	// +optional
	Version string `json:"version,omitempty"`

	// systemIdentifier is the identifier that initdb gave the PostgreSQL system.
	// +optional
	SystemIdentifier string `json:"systemIdentifier,omitempty"`

	// currentPrimary is the instance that is primary.
	// +optional
	CurrentPrimary string `json:"currentPrimary,omitempty"`

	// primaryHost is the host that takes writes.
	// +optional
	PrimaryHost string `json:"primaryHost,omitempty"`

	// replicaHosts are the hosts of the standbys, for reads.
	// +listType=atomic
	// +optional
	ReplicaHosts []string `json:"replicaHosts,omitempty"`

	// replicas is the number of instances that exist.
	// +optional
	Replicas int32 `json:"replicas"`

	// readyReplicas is the number of instances that are ready.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`

	// selector selects the instances' Pods.
	// +optional
	Selector string `json:"selector,omitempty"`

	// instances are the cluster's instances, by number.
	// +listType=map
	// +listMapKey=name
	// +optional
	Instances []InstanceStatus `json:"instances,omitempty"`

	// timeline is the primary's; each failover and switchover begins a new one.
	// +optional
	Timeline int64 `json:"timeline,omitempty"`

	// switchover is the last one that was asked for, by a user or by a rolling update.
	// +optional
	Switchover *SwitchoverStatus `json:"switchover,omitempty"`

	// upgrade is the major upgrade that is under way, or the last one.
	// +optional
	Upgrade *UpgradeStatus `json:"upgrade,omitempty"`

	// recovery is the recovery in place that is under way, or the last one.
	// +optional
	Recovery *RecoveryStatus `json:"recovery,omitempty"`

	// lastBackup is when the last good backup ended.
	// +optional
	LastBackup *metav1.Time `json:"lastBackup,omitempty"`

	// firstRecoverable is the earliest time that can be recovered to.
	// +optional
	FirstRecoverable *metav1.Time `json:"firstRecoverable,omitempty"`

	// lastArchived is when WAL was last archived. Refreshed about once a minute.
	// +optional
	LastArchived *metav1.Time `json:"lastArchived,omitempty"`

	// backup says more of the backups.
	// +optional
	Backup *BackupStatus `json:"backup,omitempty"`

	// conditions are Ready, Progressing, Degraded, Paused and, where one was asked for, UpgradePreflight; with spec.backup also
	// ContinuousArchiving and BackupHealthy.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// InstanceStatus is one PostgreSQL server as it was last observed.
type InstanceStatus struct {
	// name of the instance; its Pod is NAME-0.
	Name string `json:"name"`

	// role of the instance; empty while it is not known.
	// +optional
	Role Role `json:"role,omitempty"`

	// ready says whether it serves.
	Ready bool `json:"ready"`

	// state is what it is doing: Pending, Seeding, Starting, Running, Stopping, Failed or Unknown.
	// +optional
	State string `json:"state,omitempty"`

	// version is its PostgreSQL version, such as 16.14.
	// +optional
	Version string `json:"version,omitempty"`

	// timeline it is on.
	// +optional
	Timeline int64 `json:"timeline,omitempty"`

	// lsn is the position up to which it has written (primary) or received (standby) WAL. Refreshed about once a minute.
	// +optional
	LSN string `json:"lsn,omitempty"`

	// lagBytes is how far a standby's replay is behind what the primary has sent. Refreshed about once a minute.
	// +optional
	LagBytes *int64 `json:"lagBytes,omitempty"`

	// synchronous says whether it is a standby that can confirm commits, as spec.availability.synchronous asks for.
	// +optional
	Synchronous bool `json:"synchronous,omitempty"`

	// pendingRestart are parameters that take effect when the instance restarts.
	// +listType=atomic
	// +optional
	PendingRestart []string `json:"pendingRestart,omitempty"`

	// node it runs on.
	// +optional
	Node string `json:"node,omitempty"`

	// message says what is wrong with it, if something is.
	// +optional
	Message string `json:"message,omitempty"`
}

// SwitchoverPhase is how far a switchover has come.
//
// +kubebuilder:validation:Enum=InProgress;Completed;Refused;Failed
type SwitchoverPhase string

const (
	// SwitchoverInProgress is one that the primary has agreed to.
	SwitchoverInProgress SwitchoverPhase = "InProgress"
	// SwitchoverCompleted is one after which another instance is primary.
	SwitchoverCompleted SwitchoverPhase = "Completed"
	// SwitchoverRefused is one that was not begun; message says why.
	SwitchoverRefused SwitchoverPhase = "Refused"
	// SwitchoverFailed is one that was begun and did not end in another primary.
	SwitchoverFailed SwitchoverPhase = "Failed"
)

// SwitchoverStatus is a planned change of the primary.
type SwitchoverStatus struct {
	// target is the instance that was to become primary, or "best".
	Target string `json:"target"`

	// from is the instance that was primary.
	// +optional
	From string `json:"from,omitempty"`

	// phase is how far it has come.
	Phase SwitchoverPhase `json:"phase"`

	// reason of a switchover that was refused or failed, in one word.
	// +optional
	Reason string `json:"reason,omitempty"`

	// message says in words what came of it.
	// +optional
	Message string `json:"message,omitempty"`

	// requestedAt is when the operator asked the primary for it, or refused it.
	RequestedAt metav1.Time `json:"requestedAt"`

	// completedAt is when it ended.
	// +optional
	CompletedAt *metav1.Time `json:"completedAt,omitempty"`
}
