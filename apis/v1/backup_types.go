package v1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Period is a number of days or weeks, such as 30d or 4w.
//
// +kubebuilder:validation:XValidation:rule="self.matches('^[1-9][0-9]{0,3}[dw]$')",messageExpression="'must be a number of days or weeks of at least 1, such as 30d or 4w, not ' + self"
// +kubebuilder:validation:MaxLength=8
type Period string

// BackupType is what a backup has: everything, or what has changed since another.
//
// +kubebuilder:validation:Enum=full;differential;incremental
type BackupType string

const (
	// BackupFull has everything.
	BackupFull BackupType = "full"
	// BackupDifferential has what has changed since the last full one.
	BackupDifferential BackupType = "differential"
	// BackupIncremental has what has changed since the last one of any type.
	BackupIncremental BackupType = "incremental"
)

// BackupSpec says when backups are made, where they go and for how long they are kept. WAL is archived continuously, so that every
// moment since the first backup can be recovered.
//
// +kubebuilder:validation:XValidation:rule="has(self.repository.s3) == has(oldSelf.repository.s3) && has(self.repository.gcs) == has(oldSelf.repository.gcs) && has(self.repository.azure) == has(oldSelf.repository.azure)",message="cannot be changed to one of another kind (s3, gcs, azure or volume), since the backups that there are stay where they are; remove spec.backup, and add it again with the new repository",fieldPath=".repository"
type BackupSpec struct {
	// schedule is when backups are made, as a CronJob has it: "0 2 * * *" is every day at two. Lists, ranges, steps and @daily are
	// accepted. Without it there are none but those that are asked for by a PostgresBackup.
	// +kubebuilder:validation:XValidation:rule="self.trim() != ''",message="must not be empty; give five fields such as \"0 2 * * *\" (every day at two), or leave it out for no schedule"
	// +kubebuilder:validation:XValidation:rule="self.trim() == '' || self.trim().matches('^(@(hourly|daily|midnight|weekly|monthly|yearly|annually)|[^ \\\\t]+([ \\\\t]+[^ \\\\t]+){4})$')",messageExpression="'must have five fields (minute, hour, day of month, month, day of week) such as \"0 2 * * *\", or be @hourly, @daily, @weekly, @monthly or @yearly, not \"' + self + '\"'"
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Schedule *string `json:"schedule,omitempty"`

	// timeZone of the schedule, such as Europe/Berlin. Default: UTC.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:default="Etc/UTC"
	// +optional
	TimeZone string `json:"timeZone,omitempty"`

	// retention is for how long every moment stays recoverable, such as 30d or 4w. What is older is removed, but never the last good
	// backup, nor what another needs: so the newest full backup that is older than this is kept too.
	// +kubebuilder:default="30d"
	// +optional
	Retention Period `json:"retention,omitempty"`

	// method of the scheduled backups: full (each has everything), differential (what changed since the last full one) or
	// incremental (what changed since the last one).
	// +kubebuilder:default=full
	// +optional
	Method BackupType `json:"method,omitempty"`

	// fullEvery is how often a full backup is made if the method is differential or incremental.
	// +kubebuilder:default="7d"
	// +optional
	FullEvery Period `json:"fullEvery,omitempty"`

	// repository is where backups and WAL go. Default: a volume of its own.
	// +kubebuilder:default={}
	// +optional
	Repository RepositorySpec `json:"repository,omitzero"`

	// verify restores the latest backup now and then, to see whether that can be done. Default: never.
	// +optional
	Verify *VerifySpec `json:"verify,omitempty"`
}

// VerifySpec says when the latest backup is restored into an instance that is checked and thrown away. Nobody can reach that instance, and
// it uses the repository only to read.
type VerifySpec struct {
	// schedule is when that is done, in the form and the timeZone of backup.schedule: "0 4 * * 0" is every Sunday at four.
	// +kubebuilder:validation:XValidation:rule="self.trim() != ''",message="must not be empty; give five fields such as \"0 4 * * 0\" (every Sunday at four), or leave verify out"
	// +kubebuilder:validation:XValidation:rule="self.trim() == '' || self.trim().matches('^(@(hourly|daily|midnight|weekly|monthly|yearly|annually)|[^ \\\\t]+([ \\\\t]+[^ \\\\t]+){4})$')",messageExpression="'must have five fields (minute, hour, day of month, month, day of week) such as \"0 4 * * 0\", or be @hourly, @daily, @weekly, @monthly or @yearly, not \"' + self + '\"'"
	// +kubebuilder:validation:MaxLength=128
	// +required
	Schedule string `json:"schedule"`

	// storage is the volume that the backup is restored to. It goes with its Pod, some hours after the verification has ended.
	// +optional
	Storage VerifyStorageSpec `json:"storage,omitzero"`

	// resources of the Pod. Default: requests of 100m CPU and 256Mi memory, limits of 1 CPU and 1Gi memory.
	// +kubebuilder:validation:XValidation:rule="!has(self.claims)",message="claims are not supported; remove them"
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.limits) || !('cpu' in self.requests) || !('cpu' in self.limits) || !isQuantity(string(self.requests['cpu'])) || !isQuantity(string(self.limits['cpu'])) || quantity(string(self.requests['cpu'])).compareTo(quantity(string(self.limits['cpu']))) <= 0",messageExpression="'the request of ' + string(self.requests['cpu']) + ' CPU exceeds the limit of ' + string(self.limits['cpu']) + '; lower the request or raise the limit'"
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.limits) || !('memory' in self.requests) || !('memory' in self.limits) || !isQuantity(string(self.requests['memory'])) || !isQuantity(string(self.limits['memory'])) || quantity(string(self.requests['memory'])).compareTo(quantity(string(self.limits['memory']))) <= 0",messageExpression="'the request of ' + string(self.requests['memory']) + ' memory exceeds the limit of ' + string(self.limits['memory']) + '; lower the request or raise the limit'"
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
}

// VerifyStorageSpec is the volume that a backup is restored to.
type VerifyStorageSpec struct {
	// size of the volume, such as 10Gi. Default: storage.size of the cluster.
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('128Mi')) >= 0",message="must be a quantity of at least 128Mi, such as 10Gi"
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`

	// storageClassName is the StorageClass of the volume. Default: storage.storageClassName of the cluster.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	StorageClassName *string `json:"storageClassName,omitempty"`
}

// RepositorySpec is where backups and WAL go: a bucket of a store that speaks S3, of Google Cloud Storage or of Azure Blob Storage, or a
// volume that a Pod of its own serves.
//
// +kubebuilder:validation:XValidation:rule="[has(self.s3), has(self.gcs), has(self.azure), has(self.volume)].filter(x, x).size() <= 1",message="must have at most one of s3, gcs, azure and volume; remove the others"
// +kubebuilder:validation:XValidation:rule="has(self.encryption) == has(oldSelf.encryption)",message="cannot be added or removed later, since what is in the repository is encrypted or not; leave it as it was, or remove spec.backup and add it again with another prefix",fieldPath=".encryption"
type RepositorySpec struct {
	// s3 is a bucket of any store that speaks S3.
	// +optional
	S3 *S3Repository `json:"s3,omitempty"`

	// gcs is a bucket of Google Cloud Storage.
	// +optional
	GCS *GCSRepository `json:"gcs,omitempty"`

	// azure is a container of Azure Blob Storage.
	// +optional
	Azure *AzureRepository `json:"azure,omitempty"`

	// volume is one of the repository's own, outside of all instances.
	// +optional
	Volume *VolumeRepository `json:"volume,omitempty"`

	// encryption encrypts everything before it leaves the instance.
	// +optional
	Encryption *EncryptionSpec `json:"encryption,omitempty"`
}

// OnVolume says whether the repository is a volume, which it is unless the spec has a bucket. It has a repository host then.
func (r *RepositorySpec) OnVolume() bool { return r.S3 == nil && r.GCS == nil && r.Azure == nil }

// VolumeRepository is a volume.
type VolumeRepository struct {
	// size of the volume, such as 100Gi. It can grow and never shrink. Default: four times storage.size.
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('128Mi')) >= 0",message="must be a quantity of at least 128Mi, such as 100Gi"
	// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self)) || !isQuantity(string(oldSelf)) || quantity(string(self)).compareTo(quantity(string(oldSelf))) >= 0",messageExpression="'a volume cannot shrink from ' + string(oldSelf) + '; keep the size or choose a larger one'"
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`

	// storageClassName is the StorageClass of the volume. Default: the cluster's default class.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	StorageClassName *string `json:"storageClassName,omitempty"`
}

// StoreURL is where a store of buckets is.
//
// +kubebuilder:validation:XValidation:rule="self.matches('^https://[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?(:[0-9]{1,5})?/?$')",messageExpression="'must be a URL such as https://minio.storage.svc:9000, with https:// and without a path, not ' + self"
// +kubebuilder:validation:MaxLength=253
type StoreURL string

// KeyPrefix begins the keys of everything in a bucket.
//
// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z0-9_.-]+(/[a-zA-Z0-9_.-]+)*$')",message="must be names with letters, digits, _, - and ., separated by /, without one at the beginning or the end"
// +kubebuilder:validation:MaxLength=256
type KeyPrefix string

// SecretKey is a key of a Secret in the cluster's namespace.
type SecretKey struct {
	// name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`

	// key in the Secret.
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Key string `json:"key,omitempty"`
}

// S3Repository is a bucket. Everything of a cluster is in it below PREFIX/NAMESPACE/NAME.
//
// +kubebuilder:validation:XValidation:rule="self.endpoint == oldSelf.endpoint && self.bucket == oldSelf.bucket && has(self.prefix) == has(oldSelf.prefix) && (!has(self.prefix) || self.prefix == oldSelf.prefix)",message="endpoint, bucket and prefix cannot be changed, since the backups that there are stay where they are; remove spec.backup, and add it again with the new ones"
type S3Repository struct {
	// endpoint is the store's URL, such as https://s3.eu-central-1.amazonaws.com or https://minio.storage.svc:9000; always https.
	// +required
	Endpoint StoreURL `json:"endpoint"`

	// bucket must exist.
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$')",messageExpression="'must be the name of a bucket: 3 to 63 lower-case letters, digits, - and ., not ' + self"
	// +kubebuilder:validation:MaxLength=63
	// +required
	Bucket string `json:"bucket"`

	// prefix of all keys, such as backups/production.
	// +optional
	Prefix KeyPrefix `json:"prefix,omitempty"`

	// region of the bucket. Stores that know no regions take any.
	// +kubebuilder:validation:Pattern=`^[a-z0-9-]+$`
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:default="us-east-1"
	// +optional
	Region string `json:"region,omitempty"`

	// pathStyle puts the bucket into the path of URLs, not before the host name, as most stores other than Amazon's want it.
	// +kubebuilder:default=true
	// +optional
	PathStyle *bool `json:"pathStyle,omitempty"`

	// credentialsSecret is the name of a Secret in the cluster's namespace with the keys access-key-id and secret-access-key, and
	// ca.crt if the store's certificate is signed by an authority of its own.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	CredentialsSecret string `json:"credentialsSecret"`
}

// GCSKeyType is how Google Cloud Storage knows who asks.
//
// +kubebuilder:validation:Enum=service;auto
type GCSKeyType string

const (
	// GCSService is by the key of a service account.
	GCSService GCSKeyType = "service"
	// GCSAuto is by the identity that the node, or GKE's Workload Identity, gives the instances' Pods.
	GCSAuto GCSKeyType = "auto"
)

// GCSRepository is a bucket of Google Cloud Storage. Everything of a cluster is in it below PREFIX/NAMESPACE/NAME.
//
// +kubebuilder:validation:XValidation:rule="self.endpoint == oldSelf.endpoint && self.bucket == oldSelf.bucket && has(self.prefix) == has(oldSelf.prefix) && (!has(self.prefix) || self.prefix == oldSelf.prefix)",message="endpoint, bucket and prefix cannot be changed, since the backups that there are stay where they are; remove spec.backup, and add it again with the new ones"
// +kubebuilder:validation:XValidation:rule="(self.keyType == 'auto') != has(self.keySecret)",message="must name the Secret with the service account's key, unless keyType is auto, which needs none",fieldPath=".keySecret"
type GCSRepository struct {
	// endpoint is the store's URL; always https.
	// +kubebuilder:default="https://storage.googleapis.com"
	// +optional
	Endpoint StoreURL `json:"endpoint,omitempty"`

	// bucket must exist.
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]$')",messageExpression="'must be the name of a bucket: 3 to 222 lower-case letters, digits, -, _ and ., not ' + self"
	// +kubebuilder:validation:MaxLength=222
	// +required
	Bucket string `json:"bucket"`

	// prefix of all keys, such as backups/production.
	// +optional
	Prefix KeyPrefix `json:"prefix,omitempty"`

	// keyType is how the store knows who asks: service (by the service account's key in keySecret) or auto (by the identity of
	// the instances' Pods, such as GKE's Workload Identity).
	// +kubebuilder:default=service
	// +optional
	KeyType GCSKeyType `json:"keyType,omitempty"`

	// keySecret has the service account's key in JSON, by default in service-account.json, and ca.crt if the certificates of the
	// store, and of the token_uri in the key, are signed by an authority of their own.
	// +optional
	KeySecret *SecretKey `json:"keySecret,omitempty"`
}

// AzureKeyType is how Azure Blob Storage knows who asks.
//
// +kubebuilder:validation:Enum=shared;sas;auto
type AzureKeyType string

const (
	// AzureShared is by a key of the storage account.
	AzureShared AzureKeyType = "shared"
	// AzureSAS is by a shared access signature.
	AzureSAS AzureKeyType = "sas"
	// AzureAuto is by the managed identity of the node.
	AzureAuto AzureKeyType = "auto"
)

// AzureRepository is a container of Azure Blob Storage. Everything of a cluster is in it below PREFIX/NAMESPACE/NAME.
//
// +kubebuilder:validation:XValidation:rule="self.endpoint == oldSelf.endpoint && self.account == oldSelf.account && self.container == oldSelf.container && has(self.prefix) == has(oldSelf.prefix) && (!has(self.prefix) || self.prefix == oldSelf.prefix)",message="endpoint, account, container and prefix cannot be changed, since the backups that there are stay where they are; remove spec.backup, and add it again with the new ones"
// +kubebuilder:validation:XValidation:rule="(self.keyType == 'auto') != has(self.keySecret)",message="must name the Secret with the account's key or the shared access signature, unless keyType is auto, which needs none",fieldPath=".keySecret"
type AzureRepository struct {
	// endpoint is the URL of the blob service, without the account; always https.
	// +kubebuilder:default="https://blob.core.windows.net"
	// +optional
	Endpoint StoreURL `json:"endpoint,omitempty"`

	// account is the storage account.
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]{3,24}$')",messageExpression="'must be the name of a storage account: 3 to 24 lower-case letters and digits, not ' + self"
	// +kubebuilder:validation:MaxLength=24
	// +required
	Account string `json:"account"`

	// container must exist.
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9](-?[a-z0-9])*$') && self.size() >= 3",messageExpression="'must be the name of a container: 3 to 63 lower-case letters, digits and single - between them, not ' + self"
	// +kubebuilder:validation:MaxLength=63
	// +required
	Container string `json:"container"`

	// prefix of all blobs' names, such as backups/production.
	// +optional
	Prefix KeyPrefix `json:"prefix,omitempty"`

	// pathStyle puts the account into the path of URLs, not before the host name, as stores other than Azure's want it.
	// +optional
	PathStyle bool `json:"pathStyle,omitempty"`

	// keyType is how the store knows who asks: shared (by the account's key in keySecret), sas (by the shared access signature
	// there) or auto (by the managed identity of the node, which needs pgBackRest 2.58 or newer in the image).
	// +kubebuilder:default=shared
	// +optional
	KeyType AzureKeyType `json:"keyType,omitempty"`

	// keySecret has the account's key, by default in account-key, or the shared access signature, by default in sas-token, and
	// ca.crt if the store's certificate is signed by an authority of its own.
	// +optional
	KeySecret *SecretKey `json:"keySecret,omitempty"`
}

// EncryptionSpec encrypts a repository (AES-256).
type EncryptionSpec struct {
	// secret is the name of a Secret in the cluster's namespace whose key passphrase has the passphrase. Without it nothing can be
	// restored: keep a copy elsewhere.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Secret string `json:"secret"`
}

// RecoverySpec makes the first instance's data from a backup.
//
// +kubebuilder:validation:XValidation:rule="[has(self.targetTime), has(self.targetLSN), has(self.targetName), has(self.targetImmediate) && self.targetImmediate].filter(x, x).size() <= 1",message="must have at most one of targetTime, targetLSN, targetName and targetImmediate; without one, all WAL is replayed"
// +kubebuilder:validation:XValidation:rule="!has(self.targetName) || has(self.backup)",message="must be given with targetName, since a named point does not tell when it was made: name a backup from before it",fieldPath=".backup"
type RecoverySpec struct {
	// from is what was backed up.
	// +required
	From RecoverySource `json:"from"`

	// backup to begin with: the name of a PostgresBackup, or its label in the repository. Default: the newest that ended before the
	// target.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Backup string `json:"backup,omitempty"`

	// targetTime is the time to recover to, with a time zone, such as 2026-03-01T12:00:00Z.
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?([Zz]|[+-][0-9]{2}:[0-9]{2})$')",messageExpression="'must be a time with a time zone, such as 2026-03-01T12:00:00Z, not ' + self"
	// +kubebuilder:validation:MaxLength=40
	// +optional
	TargetTime string `json:"targetTime,omitempty"`

	// targetLSN is the position in the WAL to recover to, such as 0/5000148.
	// +kubebuilder:validation:Pattern=`^[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}$`
	// +kubebuilder:validation:MaxLength=17
	// +optional
	TargetLSN string `json:"targetLSN,omitempty"`

	// targetName is a point that was made with pg_create_restore_point.
	// +kubebuilder:validation:Pattern=`^[^\n\r\x00']{1,63}$`
	// +kubebuilder:validation:MaxLength=63
	// +optional
	TargetName string `json:"targetName,omitempty"`

	// targetImmediate stops as soon as the data is consistent: at the end of the backup.
	// +optional
	TargetImmediate bool `json:"targetImmediate,omitempty"`

	// targetTimeline is the timeline to follow. Default: the latest; an earlier recovery within the same repository made one that
	// leaves out what came after its target.
	// +kubebuilder:validation:Minimum=1
	// +optional
	TargetTimeline *int64 `json:"targetTimeline,omitempty"`

	// exclusive stops just before targetTime or targetLSN, not just after.
	// +optional
	Exclusive bool `json:"exclusive,omitempty"`

	// database is the application's database in the backup, owner the role that owns it; its password becomes that of the new
	// cluster's Secret NAME-app. They are made if the backup has none of that name.
	// +kubebuilder:validation:Pattern=`^[a-z_][a-z0-9_-]{0,62}$`
	// +kubebuilder:validation:XValidation:rule="!(self in ['postgres','template0','template1'])",message="postgres, template0 and template1 exist already; choose another name"
	// +kubebuilder:default=app
	// +optional
	Database string `json:"database,omitempty"`

	// owner: see database.
	// +kubebuilder:validation:Pattern=`^[a-z_][a-z0-9_-]{0,62}$`
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('pg_') && !(self in ['postgres','pgsteward_replication','public','none'])",message="this role's name is reserved; choose another one"
	// +kubebuilder:default=app
	// +optional
	Owner string `json:"owner,omitempty"`
}

// RecoverySource is what was backed up, and where that is.
type RecoverySource struct {
	// cluster is the name of the PostgresCluster that was backed up; it need not exist any more.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=50
	// +required
	Cluster string `json:"cluster"`

	// namespace that it was in. Default: this cluster's own. Another one needs a repository in a bucket.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// repository has the backups. Default: the volume of the cluster of that name in this namespace. A volume is found by the
	// cluster's name and can be left out.
	// +optional
	Repository RepositorySpec `json:"repository,omitzero"`
}
