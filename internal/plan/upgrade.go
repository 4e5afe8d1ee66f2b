package plan

import (
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/upgrade"
)

// upgrading takes the next step of a major upgrade that is under way. Nobody is added or removed meanwhile.
func upgrading(f *facts.Cluster) (Decision, bool) {
	step := upgrade.Next(f)
	if !step.Applies {
		return Decision{}, false
	}
	d := Decision{Members: existing(f), Reason: step.Reason, Message: step.Message, Recheck: step.Recheck}
	if i, exists := f.Instance(step.Restart); exists && i.Pod != nil {
		d.Action = RestartInstance{Instance: i.Name, PodUID: i.Pod.UID}
	}
	if primary, exists := f.Instance(f.Holder); exists && primary.Pod != nil && step.Switch != nil {
		d.Action = SwitchVersion{From: primary.Name, PodUID: primary.Pod.UID, Request: *step.Switch}
	}
	return d, true
}

// upgradeWaits is for an upgrade that is wanted and has not begun: it waits for what is told, and nothing is rolled meanwhile.
func upgradeWaits(f *facts.Cluster) (Decision, bool) {
	step := upgrade.Next(f)
	if !step.Waits {
		return Decision{}, false
	}
	return Decision{Members: members(f), Reason: step.Reason, Message: step.Message, Recheck: step.Recheck}, true
}

// noteUpgrade adds to any decision what there is to say of a major upgrade, and who is to run what. Next was stored before it is acted
// upon: a decision that does nothing for an upgrade does not take its next step either, but for that one begins.
func noteUpgrade(f *facts.Cluster, d *Decision) {
	step := upgrade.Next(f)
	d.Upgrade, d.Preflight, d.Backup = step.Config, step.Preflight, step.Backup
	d.UpgradeStatus = f.Upgrade.Status
	if d.Rule == "upgrade" || !step.Applies {
		d.UpgradeStatus = step.Status
	}
	if step.Problem != nil {
		d.Refused = append(d.Refused, Refusal{Reason: step.Problem.Reason, What: "upgrading", Why: step.Problem.Message})
	}
	for n, m := range d.Members {
		d.Members[n].Version = step.Versions[m.Name]
		if m.Name == step.Carry && step.Carry != "" {
			d.Members[n].Carry = f.Upgrade.Status.From
		}
	}
}
