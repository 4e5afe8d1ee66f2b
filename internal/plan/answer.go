package plan

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/upgrade"
)

// Declined is the decision after an agent has refused what the action asked it for.
func (d Decision) Declined(reason, why string, now time.Time) Decision {
	if a, restarts := d.Action.(RestartServer); restarts {
		d.Message += ", which is refused: " + why
		d.Refused = append(d.Refused, Refusal{What: "restarting " + a.Instance, Why: why})
	}
	if _, switches := d.Action.(Switchover); switches {
		s, at := *d.Switchover, metav1.NewTime(now)
		s.Phase, s.Reason, s.Message, s.CompletedAt = v1.SwitchoverRefused, reason, why, &at
		d.Switchover = &s
		d.Message = "Not switching over to " + targetWords(s.Target) + ": " + why
	}
	if _, switches := d.Action.(SwitchVersion); switches && d.UpgradeStatus != nil {
		d.UpgradeStatus = upgrade.Refused(d.UpgradeStatus, why, now)
		d.Message += ", which is refused: " + why
	}
	d.Action = None{}
	return d
}

// Unanswered is the decision after an agent could not be asked: as if nothing had been decided about a switchover.
func (d Decision) Unanswered() Decision {
	if _, asked := d.Action.(Switchover); asked {
		d.Switchover, d.Granted = nil, false
	}
	if _, asked := d.Action.(SwitchVersion); asked && d.UpgradeStatus != nil {
		d.UpgradeStatus = upgrade.Unanswered(d.UpgradeStatus)
	}
	return d
}
