package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// UpgradeMethod is how the data of the new major version is made.
//
// +kubebuilder:validation:Enum=Automatic;Physical;Logical;InPlace
type UpgradeMethod string

const (
	// UpgradeAutomatic is Physical where that is possible, else Logical; the status says which, and why.
	UpgradeAutomatic UpgradeMethod = "Automatic"
	// UpgradePhysical takes a standby through pg_upgrade with hard links.
	UpgradePhysical UpgradeMethod = "Physical"
	// UpgradeLogical copies the schema and all tables.
	UpgradeLogical UpgradeMethod = "Logical"
	// UpgradeInPlace stops the primary and takes a standby that has everything through pg_upgrade.
	UpgradeInPlace UpgradeMethod = "InPlace"
)

// UpgradeSwitchover says when the new version takes over.
//
// +kubebuilder:validation:Enum=Automatic;Manual
type UpgradeSwitchover string

const (
	// SwitchoverAutomatic is as soon as the new version has caught up.
	SwitchoverAutomatic UpgradeSwitchover = "Automatic"
	// SwitchoverManual waits for the annotation pgsteward.io/upgrade-switchover.
	SwitchoverManual UpgradeSwitchover = "Manual"
)

// RollbackWindow is a time in whole seconds, such as 30m or 1h, or 0.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=16
// +kubebuilder:validation:Pattern=`^(0|([0-9]{1,4}h)?([0-9]{1,4}m)?([0-9]{1,5}s)?)$`
type RollbackWindow string

// UpgradeSpec says how the cluster goes to another major version when spec.version changes.
type UpgradeSpec struct {
	// method: Automatic, Physical (a standby goes through pg_upgrade, and follows), Logical (schema and tables are copied) or InPlace
	// (the primary is stopped while a standby that has everything goes through pg_upgrade, for 30 minutes at most: everything is carried
	// over, but rows of unlogged tables; there is no way back, whatever rollbackWindow says, and maxWritePause does not apply).
	// +kubebuilder:default=Automatic
	// +optional
	Method UpgradeMethod `json:"method,omitempty"`

	// switchover: Automatic, or Manual: the upgrade waits, caught up, until the annotation pgsteward.io/upgrade-switchover says now.
	// +kubebuilder:default=Automatic
	// +optional
	Switchover UpgradeSwitchover `json:"switchover,omitempty"`

	// switchoverWindow is when the new version may take over, caught up and waiting until then; with switchover Manual it needs a word
	// besides. Without it that may be at any time. The way back is at any time.
	// +optional
	SwitchoverWindow *SwitchoverWindow `json:"switchoverWindow,omitempty"`

	// rollbackWindow is how long after the switchover the old version follows, so that setting version back loses no write; 0: none.
	// +kubebuilder:default="1h"
	// +optional
	RollbackWindow RollbackWindow `json:"rollbackWindow,omitempty"`

	// maxWritePause is how long writes may pause in the switchover: 1s to 60s. If the new version has not received everything by
	// then, the old one takes writes again, and it is tried later.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('60s')",messageExpression="'must be from 1s to 60s, not ' + self"
	// +kubebuilder:default="5s"
	// +optional
	MaxWritePause Duration `json:"maxWritePause,omitempty"`
}

// SwitchoverWindow is a time that comes again and again, such as two hours from Saturday, two o'clock on.
type SwitchoverWindow struct {
	// schedule is when the window opens, as a CronJob has it: "0 2 * * 6" is every Saturday at two.
	// +kubebuilder:validation:XValidation:rule="self.trim().matches('^(@(hourly|daily|midnight|weekly|monthly|yearly|annually)|[^ \\\\t]+([ \\\\t]+[^ \\\\t]+){4})$')",messageExpression="'must have five fields (minute, hour, day of month, month, day of week) such as \"0 2 * * 6\", or be @hourly, @daily, @weekly, @monthly or @yearly, not \"' + self + '\"'"
	// +kubebuilder:validation:MaxLength=128
	// +required
	Schedule string `json:"schedule"`

	// timeZone of the schedule, such as Europe/Berlin. Default: UTC.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:default="Etc/UTC"
	// +optional
	TimeZone string `json:"timeZone,omitempty"`

	// duration is for how long the window is open: 1h to 168h. The last standby goes over within it, which may take half an hour.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1h') && duration(self) <= duration('168h')",messageExpression="'must be from 1h to 168h, not ' + self"
	// +kubebuilder:default="2h"
	// +optional
	Duration Duration `json:"duration,omitempty"`
}

// UpgradePhase is how far a major upgrade has come.
//
// +kubebuilder:validation:Enum=Preflight;PrepareSource;SeedStandby;CatchUp;RollStandbys;AwaitSwitchover;Switchover;Observe;Rollback;Retire;Revert;Done;RolledBack;Failed
type UpgradePhase string

// The phases of a major upgrade; the package comment of internal/upgrade has what each does.
const (
	UpgradePreflight       UpgradePhase = "Preflight"
	UpgradePrepareSource   UpgradePhase = "PrepareSource"
	UpgradeSeedStandby     UpgradePhase = "SeedStandby"
	UpgradeCatchUp         UpgradePhase = "CatchUp"
	UpgradeRollStandbys    UpgradePhase = "RollStandbys"
	UpgradeAwaitSwitchover UpgradePhase = "AwaitSwitchover"
	UpgradeSwitchingOver   UpgradePhase = "Switchover"
	UpgradeObserve         UpgradePhase = "Observe"
	UpgradeRollback        UpgradePhase = "Rollback"
	UpgradeRetire          UpgradePhase = "Retire"
	UpgradeRevert          UpgradePhase = "Revert"
	UpgradeDone            UpgradePhase = "Done"
	UpgradeRolledBack      UpgradePhase = "RolledBack"
	UpgradeFailed          UpgradePhase = "Failed"
)

// Final says whether nothing is left to do in that phase.
func (p UpgradePhase) Final() bool {
	return p == UpgradeDone || p == UpgradeRolledBack || p == UpgradeFailed
}

// ConditionUpgradePreflight is true when nothing that was found speaks against the upgrade that is wanted, or was asked about.
const ConditionUpgradePreflight = "UpgradePreflight"

// Reasons of a major upgrade.
const (
	// ReasonUpgrading: a major upgrade is under way.
	ReasonUpgrading = "Upgrading"
	// ReasonUpgraded: a major upgrade is complete.
	ReasonUpgraded = "Upgraded"
	// ReasonUpgradeBlocked: the preflight found something that must be mended first.
	ReasonUpgradeBlocked = "UpgradeBlocked"
	// ReasonUpgradeRetrying: an attempt failed, and another begins.
	ReasonUpgradeRetrying = "UpgradeRetrying"
	// ReasonUpgradeFailed: all attempts failed; the cluster is as it was.
	ReasonUpgradeFailed = "UpgradeFailed"
	// ReasonUpgradeReverted: an upgrade was called off, and the cluster is as it was.
	ReasonUpgradeReverted = "UpgradeReverted"
	// ReasonUpgradeSwitchedOver: the new version takes the writes.
	ReasonUpgradeSwitchedOver = "UpgradeSwitchedOver"
	// ReasonUpgradeRolledBack: the old version takes the writes again.
	ReasonUpgradeRolledBack = "UpgradeRolledBack"
	// ReasonUpgradeWaits: the upgrade waits for somebody, or for the cluster to be healthy.
	ReasonUpgradeWaits = "UpgradeWaits"
	// ReasonPreflightPassed: nothing speaks against the upgrade.
	ReasonPreflightPassed = "PreflightPassed"
)

// UpgradeStatus is a major upgrade: the present one, or the last.
type UpgradeStatus struct {
	// from and to are the major versions.
	From string `json:"from"`
	To   string `json:"to"`

	// phase is how far it has come.
	Phase UpgradePhase `json:"phase"`

	// message says in words what it does, or waits for.
	// +optional
	Message string `json:"message,omitempty"`

	// attempt counts from 1; id names the attempt on the servers.
	// +optional
	Attempt int32 `json:"attempt,omitempty"`
	// +optional
	ID string `json:"id,omitempty"`

	// seed is the instance that is the first of the new version.
	// +optional
	Seed string `json:"seed,omitempty"`

	// source is the instance that was primary when the seed was chosen: what the seed follows is on it.
	// +optional
	Source string `json:"source,omitempty"`

	// wish is what the upgrade was begun for: version, image and annotation. One that failed begins again when that changes.
	// +optional
	Wish string `json:"wish,omitempty"`

	// surge says that a second instance was added for the time of the upgrade, since spec.replicas is 1.
	// +optional
	Surge bool `json:"surge,omitempty"`

	// rolled are the other instances that have been told to run the new version.
	// +listType=atomic
	// +optional
	Rolled []string `json:"rolled,omitempty"`

	// origin is the instance that was primary of the old version, and follows the new one.
	// +optional
	Origin string `json:"origin,omitempty"`

	// fromImage is the image of the old version.
	// +optional
	FromImage string `json:"fromImage,omitempty"`

	// wantedMethod is what spec.upgrade.method said when the seed was chosen: a change afterwards is for the next attempt.
	// +optional
	WantedMethod UpgradeMethod `json:"wantedMethod,omitempty"`

	// method is how the data is made, and methodReason why so.
	// +optional
	Method string `json:"method,omitempty"`
	// +optional
	MethodReason string `json:"methodReason,omitempty"`

	// tablesDone of tablesTotal are copied, with method Logical.
	// +optional
	TablesDone int32 `json:"tablesDone,omitempty"`
	// +optional
	TablesTotal int32 `json:"tablesTotal,omitempty"`

	// lagBytes is how far the side that follows is behind. Refreshed about once a minute.
	// +optional
	LagBytes *int64 `json:"lagBytes,omitempty"`

	// progress is the step that was last seen to be new, and progressAt when: a step that takes too long ends the attempt.
	// +optional
	Progress string `json:"progress,omitempty"`
	// +optional
	ProgressAt *metav1.Time `json:"progressAt,omitempty"`

	// findings of the preflight.
	// +kubebuilder:validation:MaxItems=200
	// +listType=atomic
	// +optional
	Findings []UpgradeFinding `json:"findings,omitempty"`

	// startedAt, switchedOverAt and completedAt are when it began, when the new version took over, and when nothing was left to do.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// +optional
	SwitchedOverAt *metav1.Time `json:"switchedOverAt,omitempty"`
	// +optional
	CompletedAt *metav1.Time `json:"completedAt,omitempty"`

	// rollbackUntil is until when setting version back loses no write; with method InPlace there is no such time.
	// +optional
	RollbackUntil *metav1.Time `json:"rollbackUntil,omitempty"`

	// askedAt is when a switchover between versions was last asked for, and refusals how many were refused in a row.
	// +optional
	AskedAt *metav1.Time `json:"askedAt,omitempty"`
	// +optional
	Refusals int32 `json:"refusals,omitempty"`

	// lastWritePause is how long writes paused in the last switchover between versions, such as 640ms.
	// +optional
	LastWritePause string `json:"lastWritePause,omitempty"`

	// retryAt is when it is tried again, after something failed.
	// +optional
	RetryAt *metav1.Time `json:"retryAt,omitempty"`

	// lastFailure is why the last attempt, or the last switchover, came to nothing.
	// +optional
	LastFailure string `json:"lastFailure,omitempty"`
}

// UpgradeFinding is something that a major upgrade does not carry over as it is.
type UpgradeFinding struct {
	// severity: Blocker (mend it first), Fixed (pgsteward deals with it) or Warning.
	Severity string `json:"severity"`
	// check is the check's name.
	Check string `json:"check"`
	// database that it is in; empty: the whole server.
	// +optional
	Database string `json:"database,omitempty"`
	// objects are examples, at most ten.
	// +listType=atomic
	// +optional
	Objects []string `json:"objects,omitempty"`
	// message says what is wrong and what to do.
	Message string `json:"message"`
}
