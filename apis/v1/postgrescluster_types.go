package v1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PostgresCluster is a PostgreSQL primary and its streaming standbys.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=postgresclusters,singular=postgrescluster,shortName=pgc,scope=Namespaced,categories=all
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.version`,description="PostgreSQL major version"
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.spec.replicas`,description="Instances wanted, primary included"
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyReplicas`,description="Instances that are ready"
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Upgrade",type=string,JSONPath=`.status.upgrade.phase`,description="How far the major upgrade is, or how the last one ended"
// +kubebuilder:printcolumn:name="Primary",type=string,JSONPath=`.status.currentPrimary`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Degraded",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Degraded")].status`,description="Whether something is wrong that somebody should mend"
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 50",message="metadata.name: must have at most 50 characters, since the names of Pods and Services are made from it; choose a shorter name"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name: must begin with a lower-case letter and have only lower-case letters, digits and '-', since Services are named after it"
// +kubebuilder:validation:XValidation:rule="self.spec.version == oldSelf.spec.version || int(self.spec.version) > int(oldSelf.spec.version) || (has(oldSelf.status) && has(oldSelf.status.version) && (oldSelf.status.version < self.spec.version || oldSelf.status.version.startsWith(self.spec.version + '.'))) || (has(oldSelf.status) && has(oldSelf.status.upgrade) && oldSelf.status.upgrade.from == self.spec.version && !(oldSelf.status.upgrade.phase in ['Retire', 'Done']))",messageExpression="'cannot go down from ' + oldSelf.spec.version + ' to ' + self.spec.version + ': the way back is open only until status.upgrade.rollbackUntil; restore a backup into a new cluster instead'",fieldPath=".spec.version"
// +kubebuilder:validation:XValidation:rule="self.spec.version == oldSelf.spec.version || !has(oldSelf.status) || !has(oldSelf.status.upgrade) || oldSelf.status.upgrade.phase in ['Preflight', 'Done', 'RolledBack', 'Failed'] || self.spec.version in [oldSelf.status.upgrade.from, oldSelf.status.upgrade.to]",messageExpression="'the upgrade from ' + oldSelf.status.upgrade.from + ' to ' + oldSelf.status.upgrade.to + ' is under way; wait until it is Done, or set version back to ' + oldSelf.status.upgrade.from",fieldPath=".spec.version"
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
// +kubebuilder:validation:XValidation:rule="has(self.bootstrap) == has(oldSelf.bootstrap)",message="is used once, when the cluster is created, and cannot be added or removed later; leave it as it was",fieldPath=".bootstrap"
// +kubebuilder:validation:XValidation:rule="!has(self.availability) || !has(self.availability.synchronous) || self.availability.synchronous.mode == 'none' || self.availability.synchronous.number < self.replicas",message="must be less than replicas, since commits wait for standbys and the primary is none; lower it, raise replicas, or set mode to none",fieldPath=".availability.synchronous.number"
type PostgresClusterSpec struct {
	// replicas is the number of instances, the primary included: 1 to 9. Scaling out clones new standbys; scaling in removes
	// the standby with the highest number, never the primary.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=9
	// +kubebuilder:default=3
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// version is the PostgreSQL major version, a string: "15", "16", "17" or "18". A higher one begins a major upgrade, see upgrade;
	// the one before can be set back until status.upgrade.rollbackUntil.
	// +kubebuilder:validation:Enum="15";"16";"17";"18"
	// +required
	Version string `json:"version"`

	// image is the container image of the instances; its PostgreSQL must be of the major in version. Default: the operator's
	// own image of that major. A change is rolled out: standbys first, one at a time, then a switchover, the old primary last.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z0-9]([a-zA-Z0-9._:/-]*[a-zA-Z0-9])?(@[a-z0-9]+:[a-f0-9]+)?$')",message="is not the name of an image; use one such as registry.example.com/postgres:16"
	// +optional
	Image string `json:"image,omitempty"`

	// imagePullSecrets are the Secrets for pulling image, in the cluster's namespace.
	// +kubebuilder:validation:MaxItems=10
	// +listType=map
	// +listMapKey=name
	// +optional
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// storage is the volume that each instance gets.
	// +kubebuilder:default={}
	// +optional
	Storage StorageSpec `json:"storage,omitzero"`

	// resources of the postgres container. Default: requests of 100m CPU and 256Mi memory, no limits. A change is rolled
	// out as one of image is.
	// +kubebuilder:validation:XValidation:rule="!has(self.claims)",message="claims are not supported; remove them"
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.limits) || !('cpu' in self.requests) || !('cpu' in self.limits) || !isQuantity(string(self.requests['cpu'])) || !isQuantity(string(self.limits['cpu'])) || quantity(string(self.requests['cpu'])).compareTo(quantity(string(self.limits['cpu']))) <= 0",messageExpression="'the request of ' + string(self.requests['cpu']) + ' CPU exceeds the limit of ' + string(self.limits['cpu']) + '; lower the request or raise the limit'"
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.limits) || !('memory' in self.requests) || !('memory' in self.limits) || !isQuantity(string(self.requests['memory'])) || !isQuantity(string(self.limits['memory'])) || quantity(string(self.requests['memory'])).compareTo(quantity(string(self.limits['memory']))) <= 0",messageExpression="'the request of ' + string(self.requests['memory']) + ' memory exceeds the limit of ' + string(self.limits['memory']) + '; lower the request or raise the limit'"
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// postgresql configures the server.
	// +optional
	PostgreSQL PostgreSQLSpec `json:"postgresql,omitzero"`

	// availability says how the instances elect the primary, and whether commits wait for standbys.
	// +kubebuilder:default={}
	// +optional
	Availability AvailabilitySpec `json:"availability,omitzero"`

	// scheduling says on which nodes the instances may run.
	// +optional
	Scheduling SchedulingSpec `json:"scheduling,omitzero"`

	// bootstrap says how the first instance gets its data. It is used once and cannot be changed.
	// +optional
	Bootstrap *BootstrapSpec `json:"bootstrap,omitempty"`

	// upgrade says how the cluster goes to another major version when version changes.
	// +kubebuilder:default={}
	// +optional
	Upgrade UpgradeSpec `json:"upgrade,omitzero"`

	// backup says when backups are made, where they go and for how long they are kept. {schedule, retention} will do.
	// +optional
	Backup *BackupSpec `json:"backup,omitempty"`

	// suspend stops all instances and keeps their volumes; false starts them again with the same data.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// deletion says what is kept when the cluster is deleted.
	// +kubebuilder:default={}
	// +optional
	Deletion DeletionSpec `json:"deletion,omitzero"`
}

// StorageSpec is the volume of each instance.
type StorageSpec struct {
	// size of the volume, such as 10Gi; at least 128Mi. It can grow (where the storage class allows it, in place) and never
	// shrink.
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('128Mi')) >= 0",message="must be a quantity of at least 128Mi, such as 10Gi"
	// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self)) || !isQuantity(string(oldSelf)) || quantity(string(self)).compareTo(quantity(string(oldSelf))) >= 0",messageExpression="'a volume cannot shrink from ' + string(oldSelf) + '; keep the size or choose a larger one'"
	// +kubebuilder:default="1Gi"
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`

	// storageClassName is the StorageClass of new volumes. Default: the cluster's default class. Volumes that are bound keep
	// theirs.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	StorageClassName *string `json:"storageClassName,omitempty"`
}

// PostgreSQLSpec configures the server.
type PostgreSQLSpec struct {
	// parameters of postgresql.conf, such as {"work_mem": "16MB"}. A change is reloaded; for a parameter that only a restart
	// can change the instances are restarted, standbys first, one at a time, the primary last, after a switchover. What pgsteward sets itself (paths, ports, TLS,
	// replication, logging destination) cannot be set here. A value that PostgreSQL refuses changes nothing and is reported.
	// +kubebuilder:validation:MaxProperties=200
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^[a-z_][a-z0-9_]*([.][a-z_][a-z0-9_]*)?$'))",messageExpression="self.filter(k, !k.matches('^[a-z_][a-z0-9_]*([.][a-z_][a-z0-9_]*)?$'))[0] + ': a name has lower-case letters, digits and _, with one dot for a parameter of an extension'"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !(k in ['listen_addresses','port','data_directory','config_file','hba_file','ident_file','external_pid_file','unix_socket_directories','unix_socket_group','unix_socket_permissions','cluster_name','hot_standby','wal_level','logging_collector','log_destination','log_directory','log_filename','log_file_mode','log_rotation_age','log_rotation_size','log_truncate_on_rotation','primary_conninfo','primary_slot_name','restore_command','archive_command','archive_library','archive_mode','synchronous_standby_names','password_encryption','allow_alter_system','restart_after_crash','sync_replication_slots','standby_slot_names','synchronized_standby_slots','shared_preload_libraries','include','include_dir','include_if_exists'] || k.startsWith('ssl') || k.startsWith('recovery_target')))",messageExpression="self.filter(k, k in ['listen_addresses','port','data_directory','config_file','hba_file','ident_file','external_pid_file','unix_socket_directories','unix_socket_group','unix_socket_permissions','cluster_name','hot_standby','wal_level','logging_collector','log_destination','log_directory','log_filename','log_file_mode','log_rotation_age','log_rotation_size','log_truncate_on_rotation','primary_conninfo','primary_slot_name','restore_command','archive_command','archive_library','archive_mode','synchronous_standby_names','password_encryption','allow_alter_system','restart_after_crash','sync_replication_slots','standby_slot_names','synchronized_standby_slots','shared_preload_libraries','include','include_dir','include_if_exists'] || k.startsWith('ssl') || k.startsWith('recovery_target'))[0] + ': pgsteward sets this itself (paths, port, TLS, replication, logging destination, archiving, recovery); remove it'"
	// +optional
	Parameters map[string]ParameterValue `json:"parameters,omitempty"`

	// pgHBA are lines of pg_hba.conf that come before the default one (hostssl all all all scram-sha-256). A change is
	// reloaded. A line that PostgreSQL refuses changes nothing and is reported.
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^(local|host|hostssl|hostnossl|hostgssenc|hostnogssenc)[ \\t]+[^\\n\\r]+$')",message="must be one line that begins with local, host, hostssl, hostnossl, hostgssenc or hostnogssenc"
	// +kubebuilder:validation:items:MaxLength=1024
	// +listType=atomic
	// +optional
	PgHBA []string `json:"pgHBA,omitempty"`
}

// ParameterValue is a value of a PostgreSQL parameter as it stands in postgresql.conf, without quotes.
//
// +kubebuilder:validation:MaxLength=2048
// +kubebuilder:validation:Pattern=`^[^\n\r\x00]*$`
type ParameterValue string

// BootstrapSpec says how the first instance gets its data.
//
// +kubebuilder:validation:XValidation:rule="has(self.initdb) == has(oldSelf.initdb)",message="is used once, when the cluster is created, and cannot be added or removed later; leave it as it was",fieldPath=".initdb"
// +kubebuilder:validation:XValidation:rule="has(self.recovery) == has(oldSelf.recovery)",message="is used once, when the cluster is created, and cannot be added or removed later; leave it as it was",fieldPath=".recovery"
// +kubebuilder:validation:XValidation:rule="!(has(self.initdb) && has(self.recovery))",message="must have one of initdb and recovery, not both; remove one"
type BootstrapSpec struct {
	// initdb makes a new, empty PostgreSQL system.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is used once, when the cluster is created, and cannot be changed; leave it as it was"
	// +optional
	InitDB *InitDBSpec `json:"initdb,omitempty"`

	// recovery makes the data from a backup of this or another cluster.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is used once, when the cluster is created, and cannot be changed; leave it as it was"
	// +optional
	Recovery *RecoverySpec `json:"recovery,omitempty"`
}

// InitDBSpec makes a new, empty PostgreSQL system with one database for the application.
type InitDBSpec struct {
	// database is the application's database.
	// +kubebuilder:validation:Pattern=`^[a-z_][a-z0-9_-]{0,62}$`
	// +kubebuilder:validation:XValidation:rule="!(self in ['postgres','template0','template1'])",message="postgres, template0 and template1 exist already; choose another name"
	// +kubebuilder:default=app
	// +optional
	Database string `json:"database,omitempty"`

	// owner is the role that owns the database; its password is in the Secret NAME-app.
	// +kubebuilder:validation:Pattern=`^[a-z_][a-z0-9_-]{0,62}$`
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('pg_') && !(self in ['postgres','pgsteward_replication','public','none'])",message="this role's name is reserved; choose another one"
	// +kubebuilder:default=app
	// +optional
	Owner string `json:"owner,omitempty"`
}

// RetentionPolicy says whether something outlives the cluster.
//
// +kubebuilder:validation:Enum=Retain;Delete
type RetentionPolicy string

const (
	// Retain keeps it.
	Retain RetentionPolicy = "Retain"
	// Delete removes it.
	Delete RetentionPolicy = "Delete"
)

// DeletionSpec says what is kept when the cluster, or an instance of it, is deleted.
type DeletionSpec struct {
	// volumes: Retain keeps the volumes of a deleted cluster and of an instance that was scaled in; a cluster or instance
	// created anew under the same name takes them over with their data. Delete removes them.
	// +kubebuilder:default=Retain
	// +optional
	Volumes RetentionPolicy `json:"volumes,omitempty"`

	// backups: Retain keeps the backups of a deleted cluster: the repository's volume, or what is in the bucket, and the
	// PostgresBackups, which say where they are. Delete removes the volume and the PostgresBackups; what is in a bucket stays in any
	// case.
	// +kubebuilder:default=Retain
	// +optional
	Backups RetentionPolicy `json:"backups,omitempty"`

	// finalBackup: true makes a last full backup before anything of a deleted cluster is removed. While it cannot be made the cluster
	// stays, and says why; the annotation pgsteward.io/skip-final-backup=true deletes it without. Needs spec.backup.
	// +optional
	FinalBackup bool `json:"finalBackup,omitempty"`
}
