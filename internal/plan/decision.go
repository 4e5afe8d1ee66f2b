package plan

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
)

// Decision is what one pass does.
type Decision struct {
	// Rule is the name of the rule that decided.
	Rule string
	// Members are the instances that shall exist, by number.
	Members []Member
	// Bootstrap is the member that may make a new PostgreSQL system; empty if none may.
	Bootstrap string
	// Stopped says that no member is to run.
	Stopped bool
	// AccessOnly says that only what gives the operator access to Secrets is to be written.
	AccessOnly bool
	// Quiet says that nothing is to be told: the state will be known in a moment.
	Quiet bool
	// Frozen says that nothing is to be written but the status.
	Frozen bool
	// Upgrade is what the agents are told of a major upgrade; nil: there is none.
	Upgrade *agentapi.Upgrade
	// UpgradeStatus is what the status is to say of a major upgrade; nil: there never was one. Preflight is the condition; nil: none.
	UpgradeStatus *v1.UpgradeStatus
	Preflight     *metav1.Condition
	// Backup is the name of a PostgresBackup to ask for, which a major upgrade or a recovery in place waits for; empty: none.
	Backup string
	// Recovery is what the status is to say of a recovery in place; nil: there never was one. InPlace and Floor are what the agents are told
	// of it; nil: nothing.
	Recovery *v1.RecoveryStatus
	InPlace  *agentapi.InPlace
	Floor    *agentapi.Floor
	// Action removes or restarts something, or is None.
	Action Action
	// Switchover is what there is to say of the last switchover; nil: nothing new.
	Switchover *v1.SwitchoverStatus
	// Granted says that the wish for a switchover has been dealt with, and its annotation can go.
	Granted bool
	// Forced says that the instance that was forced to take over has done so, and the annotation can go: the next time another may
	// be better.
	Forced bool
	// Reason is a Reason constant of apis/v1; Message is for people.
	Reason, Message string
	// Refused are actions that the spec asks for and that are not safe now.
	Refused []Refusal
	// Recheck is when to look again even if nothing is heard; zero: only when something changes.
	Recheck time.Duration
}

// Member is an instance that shall exist.
type Member struct {
	Name    string
	Ordinal int
	// Version is the major that it is to run; empty: the live one. Carry is another one whose programs it needs beside its own.
	Version, Carry string
}

// Refusal says why something that the spec asks for is not done now.
type Refusal struct {
	// Reason is a Reason constant of apis/v1 if somebody must mend something; empty if time will.
	Reason string
	// What is refused, such as "removing prod-db-3".
	What string
	// Why names the rule and the facts.
	Why string
}

// Action is what a pass removes, restarts or asks an agent for.
//
//sumtype:decl
type Action interface{ action() }

// None does nothing.
type None struct{}

// RemoveInstance deletes a standby: its StatefulSet and, if DeleteVolume, its volume.
type RemoveInstance struct {
	Instance     string
	DeleteVolume bool
}

// RestartInstance deletes the instance's Pod of that UID, so that it is made anew.
type RestartInstance struct{ Instance, PodUID string }

// RestartServer asks the agent in the Pod of that UID to restart PostgreSQL, if the server is still the one that was started then.
type RestartServer struct {
	Instance, PodUID string
	Started          *time.Time
	Why              string
}

// Switchover asks the agent of the primary From, in the Pod of that UID, to hand over to the standby To; empty: to the best.
type Switchover struct{ From, PodUID, To string }

// SwitchVersion asks the agent of the primary From, in the Pod of that UID, to move the writes to the other generation.
type SwitchVersion struct {
	From, PodUID string
	Request      agentapi.UpgradeSwitchoverRequest
}

// ReplaceInstance deletes a standby's volume, which its node has taken with it, and its Pod of that UID without waiting for the node,
// so that both are made anew.
type ReplaceInstance struct{ Instance, PodUID string }

// ForgetPod deletes the instance's Pod of that UID without waiting for its node, which was deleted.
type ForgetPod struct{ Instance, PodUID string }

// ReplaceVolume deletes the instance's volume claim, which was never bound, so that it is made anew.
type ReplaceVolume struct{ Instance string }

// MakeFinalBackup asks for the backup of that name, the last one of a cluster that is being deleted.
type MakeFinalBackup struct{ Name string }

// RemoveInstances deletes all StatefulSets of a cluster that is being deleted.
type RemoveInstances struct{}

// RemoveRest deletes all other objects of a cluster that is being deleted, its volumes only if DeleteVolumes, and that of its backups only
// if DeleteBackups.
type RemoveRest struct{ DeleteVolumes, DeleteBackups bool }

// Release lets a cluster go whose objects are gone.
type Release struct{}

func (None) action()            {}
func (RemoveInstance) action()  {}
func (RestartInstance) action() {}
func (RestartServer) action()   {}
func (Switchover) action()      {}
func (SwitchVersion) action()   {}
func (ReplaceInstance) action() {}
func (ForgetPod) action()       {}
func (ReplaceVolume) action()   {}
func (MakeFinalBackup) action() {}
func (RemoveInstances) action() {}
func (RemoveRest) action()      {}
func (Release) action()         {}
