package naming

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Labels and annotations.
const (
	// LabelCluster has the cluster's name.
	LabelCluster = "pgsteward.io/cluster"
	// LabelInstance has the instance's name.
	LabelInstance = "pgsteward.io/instance"
	// LabelRole is RolePrimary or RoleStandby, on Pods.
	LabelRole = "pgsteward.io/role"
	// LabelManagedBy has ManagedBy on every object of ours.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// LabelName, LabelComponent and LabelAppInstance are the recommended labels of Kubernetes.
	LabelName        = "app.kubernetes.io/name"
	LabelComponent   = "app.kubernetes.io/component"
	LabelAppInstance = "app.kubernetes.io/instance"

	// ManagedBy is the value of LabelManagedBy.
	ManagedBy = "pgsteward"
	// AppPostgres is the value of LabelName on a cluster's objects.
	AppPostgres = "postgresql"

	// RolePrimary and RoleStandby are the values of LabelRole.
	RolePrimary = "primary"
	RoleStandby = "standby"

	// AnnotationAppliedHash has the hash of the desired state that was last applied.
	AnnotationAppliedHash = "pgsteward.io/applied-hash"
	// AnnotationConfigHash has, on a Pod, the hash of the configuration and Secrets that it mounts. Changing an annotation makes
	// the kubelet refresh the mounted files at once.
	AnnotationConfigHash = "pgsteward.io/config-hash"
	// AnnotationRefreshedAt has, on a Pod, when AnnotationConfigHash was last set (RFC 3339).
	AnnotationRefreshedAt = "pgsteward.io/config-refreshed-at"
	// AnnotationSystemIdentifier has, on a volume claim and on the Lease, the identifier of the PostgreSQL system.
	AnnotationSystemIdentifier = "pgsteward.io/system-identifier"
	// AnnotationHolderPod has, on the Lease, the UID of the Pod in which the holder's PostgreSQL may be writing; it is removed
	// when PostgreSQL has stopped in an orderly way, so that the holder's next Pod need not wait for the lease to run out.
	AnnotationHolderPod = "pgsteward.io/holder-pod"
	// AnnotationMembers has, on the Lease, the names of all members that its holder knows, separated by commas: others may not
	// become primary when the Lease has run out.
	AnnotationMembers = "pgsteward.io/members"
	// AnnotationPosition has, on the Lease, the holder's "timeline/LSN" at the last renewal, such as "3/0/5000148".
	AnnotationPosition = "pgsteward.io/position"
	// AnnotationTimelineStart has, on the Lease, the LSN at which the holder's timeline began; AnnotationTimeline the highest timeline
	// that was ever given to a promotion.
	AnnotationTimelineStart = "pgsteward.io/timeline-start"
	AnnotationTimeline      = "pgsteward.io/timeline"
	// AnnotationEnd has, on the Lease, where the last holder ended that handed over properly: its name, "timeline/LSN", and the time
	// of that update. It is void when somebody has renewed the Lease since.
	AnnotationEnd = "pgsteward.io/end"
	// AnnotationSync has, on the Lease, the set of standbys of which commits wait for some, such as "ANY 1 (prod-db-2,prod-db-3)";
	// without it they wait for none. AnnotationSyncMode has the mode: none, preferred or required.
	AnnotationSync     = "pgsteward.io/sync"
	AnnotationSyncMode = "pgsteward.io/sync-mode"
	// AnnotationVersion has, on a volume claim, the major version of its data; on a Pod, the one that it was made to run; on the Lease,
	// that of the live generation, once there has been a major upgrade.
	AnnotationVersion = "pgsteward.io/version"
	// AnnotationDataRole has, on a volume claim, RolePrimary if its data was the primary's when that was last known: a cluster
	// that is created anew with fewer instances than volumes begins with that one.
	AnnotationDataRole = "pgsteward.io/data-role"

	// AnnotationPaused, "true" on a PostgresCluster, makes the operator leave it alone; the databases go on.
	AnnotationPaused = "pgsteward.io/paused"
	// AnnotationForceDelete, "true" on a PostgresCluster that is being deleted, lets it go although something of it does not; the
	// garbage collector removes the rest when it can.
	AnnotationForceDelete = "pgsteward.io/force-delete"
	// AnnotationSkipFinalBackup, "true" on a PostgresCluster that is being deleted, deletes it without the last backup that its spec wants.
	AnnotationSkipFinalBackup = "pgsteward.io/skip-final-backup"
	// AnnotationRecoverInPlace on a PostgresCluster asks for a recovery of its own data: JSON, see backup.ParseInPlace.
	AnnotationRecoverInPlace = "pgsteward.io/recover-in-place"
	// AnnotationKeepInRepository, "true" on a PostgresBackup, lets it go without removing its backup from the repository.
	AnnotationKeepInRepository = "pgsteward.io/keep-in-repository"
	// AnnotationSwitchover on a PostgresCluster is a wish: the name of the standby that is to become primary, or SwitchoverBest. The
	// operator removes it when it has been carried out or refused.
	AnnotationSwitchover = "pgsteward.io/switchover"
	// SwitchoverBest is the value of AnnotationSwitchover that leaves the choice to the primary.
	SwitchoverBest = "best"
	// AnnotationFenced on a PostgresCluster has the names of the instances whose PostgreSQL is to be stopped, separated by commas, or
	// FencedAll. It stays until somebody removes it.
	AnnotationFenced = "pgsteward.io/fenced"
	// FencedAll is the value of AnnotationFenced that means every instance.
	FencedAll = "*"
	// AnnotationForceFailover on a PostgresCluster has the name of the standby that may take over although it may lack commits,
	// should the primary's lease have run out. It goes when that one is primary.
	AnnotationForceFailover = "pgsteward.io/force-failover"
	// AnnotationRestart on a PostgresCluster: each new value, such as a date, restarts all instances, one at a time. It is on the Pods
	// too, with the value that they were made with.
	AnnotationRestart = "pgsteward.io/restart"
	// AnnotationSpecHash has, on a Pod, the hash of what the spec wants of a Pod. It does not change with the operator's version.
	AnnotationSpecHash = "pgsteward.io/spec-hash"
	// AnnotationArchives is on Pods whose agent can archive WAL and make backups.
	AnnotationArchives = "pgsteward.io/archives"
	// AnnotationHoldUpgrades, "true" on a PostgresCluster, makes OLM wait with upgrading the operator.
	AnnotationHoldUpgrades = "pgsteward.io/hold-upgrades"
	// AnnotationUpgradeSwitchover, "now" on a PostgresCluster, lets a major upgrade switch over that waits for it.
	AnnotationUpgradeSwitchover = "pgsteward.io/upgrade-switchover"
	// AnnotationUpgradeRetry on a PostgresCluster: each new value makes an upgrade that has failed begin again.
	AnnotationUpgradeRetry = "pgsteward.io/upgrade-retry"
	// AnnotationSkipUpgradeBackup, "true" on a PostgresCluster, has a major upgrade begin without a backup before it.
	AnnotationSkipUpgradeBackup = "pgsteward.io/skip-upgrade-backup"
	// AnnotationUpgradePreflight on a PostgresCluster has a major, such as "17": what an upgrade to it would not carry is looked for, and
	// told in the status, without upgrading.
	AnnotationUpgradePreflight = "pgsteward.io/upgrade-preflight"
	// AnnotationValidation, ValidationWarn on a PostgresCluster, makes the webhook warn of what it would refuse.
	AnnotationValidation = "pgsteward.io/validation"
	// ValidationWarn is the value of AnnotationValidation that counts.
	ValidationWarn = "warn"

	// Finalizer keeps a PostgresCluster until what it must not leave behind is gone.
	Finalizer = "pgsteward.io/cleanup"
	// BackupFinalizer keeps a PostgresBackup until its backup is removed from the repository, or left there.
	BackupFinalizer = "pgsteward.io/backup"
	// FieldManager is the owner of the fields that the operator applies.
	FieldManager = "pgsteward"
	// PodFieldManager is the owner of what the operator applies to Pods beside their StatefulSet.
	PodFieldManager = "pgsteward-pods"
	// AgentFieldManager is the owner of the fields that agents apply.
	AgentFieldManager = "pgsteward-agent"
)

// Ports.
const (
	PortPostgres     = 5432
	PortPostgresName = "postgres"
	// PortAgent serves the agent's API over mutual TLS.
	PortAgent     = 8443
	PortAgentName = "agent"
	// PortHealth serves probes and metrics.
	PortHealth     = 8081
	PortHealthName = "health"
	// PortBackup serves data and WAL to the other hosts of the cluster, over mutual TLS (pgBackRest's own port).
	PortBackup     = 8432
	PortBackupName = "backup"
)

// Containers and volumes of an instance's Pod.
const (
	ContainerPostgres = "postgres"
	ContainerInstall  = "install"
	// ContainerCarry copies the old programs of PostgreSQL for a major upgrade.
	ContainerCarry = "carry"
	// ContainerRepository is the container of a repository host's Pod, ContainerBackup that of a scheduled backup's.
	ContainerRepository = "repository"
	ContainerBackup     = "backup"
	// ContainerVerify is the container of a Pod that verifies backups.
	ContainerVerify = "verify"

	VolumeData    = "data"
	VolumeProgram = "program"
	VolumeRun     = "run"
	VolumeTmp     = "tmp"
	VolumeShm     = "shm"
	VolumeConfig  = "config"
	VolumeSecrets = "secrets"
	// VolumeCarried has what ContainerCarry copied.
	VolumeCarried = "carried"
)

// Paths in an instance's Pod.
const (
	// PathProgram is where the init container leaves the agent's binary and a passwd file.
	PathProgram = "/opt/pgsteward"
	// PathAgentBinary is the agent's binary.
	PathAgentBinary = PathProgram + "/pgsteward"
	// FilePasswd is the passwd file's name in the program volume; it is mounted over /etc/passwd, since initdb and peer
	// authentication need a name for whatever uid the Pod has.
	FilePasswd = "passwd"
	// PathCarried is where the old programs of PostgreSQL are during a major upgrade.
	PathCarried = "/opt/pgsteward-carried"
	// FileUpgradeMarker is the file, in the agent's folder on the data volume, that says what a major upgrade left there.
	FileUpgradeMarker = "upgrade.json"
	// PathData is the mount point of the data volume.
	PathData = "/var/lib/pgsteward"
	// PathRun holds PostgreSQL's socket and the agent's pipes.
	PathRun = "/var/run/postgresql"
	// PathShm is where PostgreSQL's processes share memory.
	PathShm = "/dev/shm"
	// PathConfig has FileConfig.
	PathConfig = "/etc/pgsteward/config"
	// FileConfig is the agent's configuration (agentapi.Config as JSON).
	FileConfig = "config.json"
	// PathSecrets has one folder for each of DirServer, DirReplication, DirApp, DirSuperuser.
	PathSecrets    = "/etc/pgsteward/secrets"
	DirServer      = "server"
	DirReplication = "replication"
	DirApp         = "app"
	DirSuperuser   = "superuser"
	// DirBackup and DirRecovery have the secrets of the repositories for backups and for a recovery.
	DirBackup   = "backup"
	DirRecovery = "recovery"
	// FileCredentials is in these the key of the Secret that the spec names.
	FileCredentials = "credentials"
)

// Roles of PostgreSQL.
const (
	// Superuser is the bootstrap superuser.
	Superuser = "postgres"
	// ReplicationUser is the role of standbys; it authenticates by a client certificate of this common name.
	ReplicationUser = "pgsteward_replication"
	// UpgradeUser is the superuser by which one generation's agent works on the other's server during a major upgrade. It authenticates
	// by the certificate of ReplicationUser, and does not exist otherwise.
	UpgradeUser = "pgsteward_upgrade"
	// OperatorUser is the common name of the operator's client certificate for agents.
	OperatorUser = "pgsteward-operator"
)

// Keys of Secrets.
const (
	KeyUser     = "user"
	KeyPassword = "password"
	KeyDBName   = "dbname"
	KeyHost     = "host"
	KeyPort     = "port"
	KeyURI      = "uri"
	KeyJDBCURI  = "jdbc-uri"
	KeyPgpass   = "pgpass"
	KeyTLSCert  = "tls.crt"
	KeyTLSKey   = "tls.key"
	KeyCACert   = "ca.crt"
	// KeyS3Key and KeyS3Secret are in the Secret of an S3 repository, KeyPassphrase in that of its encryption.
	KeyS3Key      = "access-key-id"
	KeyS3Secret   = "secret-access-key"
	KeyPassphrase = "passphrase"
	// KeyGCSService, KeyAzureShared and KeyAzureSAS are in the Secret of such a repository, unless the spec names another.
	KeyGCSService  = "service-account.json"
	KeyAzureShared = "account-key"
	KeyAzureSAS    = "sas-token"
)

// MaxReplicas is the greatest number of instances of a cluster.
const MaxReplicas = 9

// MaxOrdinal is the highest number an instance can have: after many scale-ins a free number is always found below it.
const MaxOrdinal = 2 * MaxReplicas

// Instance is the name of the cluster's instance of that number, from 1; also of its StatefulSet.
func Instance(cluster string, ordinal int) string { return fmt.Sprintf("%s-%d", cluster, ordinal) }

// Ordinal is the number in the name of an instance of the cluster; false if it is not such a name.
func Ordinal(cluster, instance string) (int, bool) {
	suffix, ok := strings.CutPrefix(instance, cluster+"-")
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(suffix)
	if err != nil || n < 1 || strconv.Itoa(n) != suffix {
		return 0, false
	}
	return n, true
}

// Pod is the name of the instance's Pod.
func Pod(instance string) string { return instance + "-0" }

// DataVolume is the name of the instance's volume claim.
func DataVolume(instance string) string { return instance + "-data" }

// ServiceRW selects the primary.
func ServiceRW(cluster string) string { return cluster + "-rw" }

// ServiceRO selects the standbys.
func ServiceRO(cluster string) string { return cluster + "-ro" }

// ServiceR selects all instances.
func ServiceR(cluster string) string { return cluster + "-r" }

// ServiceInstances is the headless Service that gives each instance a stable name.
func ServiceInstances(cluster string) string { return cluster + "-instances" }

// ServiceHost is the host name of a Service inside the Kubernetes cluster.
func ServiceHost(service, namespace string) string { return service + "." + namespace + ".svc" }

// InstanceHost is the stable host name of an instance.
func InstanceHost(cluster, namespace, instance string) string {
	return Pod(instance) + "." + ServiceHost(ServiceInstances(cluster), namespace)
}

// PrimaryLease is the name of the Lease whose holder may write.
func PrimaryLease(cluster string) string { return cluster + "-primary" }

// ConfigMap is the name of the ConfigMap with the agents' configuration.
func ConfigMap(cluster string) string { return cluster + "-config" }

// SuperuserSecret has the superuser's connection.
func SuperuserSecret(cluster string) string { return cluster + "-superuser" }

// AppSecret has the application's connection.
func AppSecret(cluster string) string { return cluster + "-app" }

// ReplicationSecret has the standbys' client certificate.
func ReplicationSecret(cluster string) string { return cluster + "-replication" }

// CASecret has the cluster's certificate authority.
func CASecret(cluster string) string { return cluster + "-ca" }

// ServerSecret has the certificate of PostgreSQL and of the agents.
func ServerSecret(cluster string) string { return cluster + "-server" }

// Secrets are the names of the cluster's Secrets.
func Secrets(cluster string) []string {
	return []string{CASecret(cluster), ServerSecret(cluster), ReplicationSecret(cluster), SuperuserSecret(cluster), AppSecret(cluster)}
}

// ServiceAccount is the name of the instances' ServiceAccount, Role and RoleBinding.
func ServiceAccount(cluster string) string { return cluster + "-instance" }

// OperatorBinding is the name of the RoleBinding that lets the operator read and write Secrets in the cluster's namespace.
func OperatorBinding(cluster string) string { return cluster + "-operator" }

// SecretsRole is the name of the ClusterRole that it binds.
const SecretsRole = "pgsteward-secrets"

// DisruptionBudget is the name of the cluster's PodDisruptionBudget.
func DisruptionBudget(cluster string) string { return cluster }

// Repository is the name of the StatefulSet and the Service of the cluster's repository host; its Pod is Pod of that.
func Repository(cluster string) string { return cluster + "-repository" }

// RepositoryVolume is the name of the volume claim with the backups.
func RepositoryVolume(cluster string) string { return cluster + "-repository" }

// RepositoryLabels are on every object of the repository host.
func RepositoryLabels(cluster string) map[string]string {
	labels := ClusterLabels(cluster)
	labels[LabelInstance] = Repository(cluster)
	labels[LabelComponent] = "repository"
	return labels
}

// RepositorySelector selects the repository host's Pod.
func RepositorySelector(cluster string) map[string]string {
	return map[string]string{LabelCluster: cluster, LabelComponent: "repository"}
}

// BackupJob is the name of the CronJob that asks for backups, and of its ServiceAccount, Role and RoleBinding.
func BackupJob(cluster string) string { return cluster + "-backup" }

// ScheduledFor is the time for which the schedule asked for the PostgresBackup of that name; false if it did not. A CronJob names its Jobs after that
// time, in minutes, and the PostgresBackup has the Job's name.
func ScheduledFor(cluster, backup string) (time.Time, bool) {
	text, ok := strings.CutPrefix(backup, BackupJob(cluster)+"-")
	minutes, err := strconv.ParseInt(text, 10, 64)
	if !ok || err != nil || minutes <= 0 {
		return time.Time{}, false
	}
	return time.Unix(minutes*60, 0), true
}

// BackupJobLabels are on the Pods of scheduled backups. They have no label of the cluster, since they are none of its instances.
func BackupJobLabels(cluster string) map[string]string {
	return map[string]string{LabelName: ManagedBy, LabelAppInstance: cluster, LabelComponent: "backup"}
}

// VerifyJob is the name of the CronJob that verifies backups.
func VerifyJob(cluster string) string { return cluster + "-verify" }

// componentVerification is the value of LabelComponent on what verifies backups.
const componentVerification = "verification"

// VerifyLabels are on the Pods that verify backups.
func VerifyLabels(cluster string) map[string]string {
	labels := ClusterLabels(cluster)
	labels[LabelComponent] = componentVerification
	return labels
}

// IsVerification says whether those are the labels of a Pod that verifies backups.
func IsVerification(labels map[string]string) bool {
	return labels[LabelComponent] == componentVerification
}

// VerifyVolumeLabels are on the volume claims of those Pods. They have no label of the cluster, since they are none of its volumes: they go
// with their Pods.
func VerifyVolumeLabels(cluster string) map[string]string {
	return map[string]string{LabelName: ManagedBy, LabelAppInstance: cluster, LabelComponent: componentVerification}
}

// FirstBackup is the name of the PostgresBackup that is made when there is none yet of the stanza, or none from which the newest can be recovered;
// the mark says for which cause of that, and elsewhere in which repository, if an earlier one has taken the name.
func FirstBackup(cluster, stanza, mark, elsewhere string) string {
	name := cluster + "-" + stanza
	for _, part := range []string{mark, elsewhere} {
		if part != "" {
			name += "-" + part
		}
	}
	return name
}

// FinalBackup is the name of the PostgresBackup that is made before the cluster of that UID is deleted.
func FinalBackup(cluster, uid string) string { return cluster + "-final-" + uid[:min(len(uid), 8)] }

// UpgradeBackup is the name of the PostgresBackup that is made before a major upgrade to that version, which began at that time.
func UpgradeBackup(cluster, to string, began time.Time) string {
	return fmt.Sprintf("%s-before-%s-%x", cluster, to, began.Unix())
}

// RecoveryBackup is the name of the PostgresBackup that is made before that attempt of a recovery in place.
func RecoveryBackup(cluster, attempt string) string { return cluster + "-before-recovery-" + attempt }

// ClusterLabels are on every object of the cluster.
func ClusterLabels(cluster string) map[string]string {
	return map[string]string{
		LabelName:        AppPostgres,
		LabelAppInstance: cluster,
		LabelManagedBy:   ManagedBy,
		LabelCluster:     cluster,
	}
}

// InstanceLabels are on every object of one instance.
func InstanceLabels(cluster, instance string) map[string]string {
	labels := ClusterLabels(cluster)
	labels[LabelInstance] = instance
	labels[LabelComponent] = "database"
	return labels
}

// ClusterSelector selects the Pods of the cluster.
func ClusterSelector(cluster string) map[string]string {
	return map[string]string{LabelCluster: cluster, LabelComponent: "database"}
}

// RoleSelector selects the Pods of the cluster with that role.
func RoleSelector(cluster, role string) map[string]string {
	selector := ClusterSelector(cluster)
	selector[LabelRole] = role
	return selector
}

// SlotName is the physical replication slot of a standby on its primary. PostgreSQL allows lower-case letters, digits and '_'
// (https://www.postgresql.org/docs/current/warm-standby.html#STREAMING-REPLICATION-SLOTS).
func SlotName(instance string) string {
	return "pgsteward_" + strings.ReplaceAll(instance, "-", "_")
}

// UpgradeSchema is a schema that each database has during a major upgrade; UpgradePublication its publication.
const (
	UpgradeSchema      = "pgsteward_upgrade"
	UpgradePublication = "pgsteward_upgrade"
)

// UpgradeSeeds is the setting of UpgradeUser on the source that has the system identifiers of the seeds that have worked there, with spaces in between:
// PostgreSQL names the slots by which their tables are copied after it. It goes with the role.
const UpgradeSeeds = "pgsteward.seeds"

// UpgradeSlot is the logical replication slot, and the subscription, of the database with that oid on the side that sends, for the upgrade of that ID.
func UpgradeSlot(id string, database uint32) string {
	return UpgradeSlots(id) + strconv.FormatUint(uint64(database), 10)
}

// UpgradeSlots is what all of an upgrade's slots and subscriptions begin with.
func UpgradeSlots(id string) string { return UpgradePublication + "_" + id + "_" }

// ServerCertificate is the common name of the cluster's server certificate, by which agents know each other.
func ServerCertificate(cluster string) string { return cluster }

// Of the operator itself.
const (
	// CRD is the name of PostgresCluster's CustomResourceDefinition.
	CRD = "postgresclusters.pgsteward.io"
	// WebhookConfiguration is the name of the ValidatingWebhookConfiguration.
	WebhookConfiguration = "pgsteward-validating"
	// WebhookService is the Service through which the API server reaches the webhook.
	WebhookService = "pgsteward-webhook"
	// WebhookSecret has the webhook's certificate, where OLM does not provide one.
	WebhookSecret = "pgsteward-webhook-cert"
	// KeyCAKey is the key, in WebhookSecret, of the authority's private key.
	KeyCAKey = "ca.key"
)
