package controllers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/plan"
)

// TestApprovalSpent: an approval is for one switchover: it may come before an upgrade, and goes with the switchover or with the upgrade.
func TestApprovalSpent(t *testing.T) {
	t.Parallel()
	upgrade := func(phase v1.UpgradePhase) *v1.UpgradeStatus { return &v1.UpgradeStatus{Phase: phase} }
	switched := upgrade(v1.UpgradeObserve)
	switched.SwitchedOverAt = &metav1.Time{Time: time.Unix(1, 0)}
	for name, c := range map[string]struct {
		wanted       string
		before, next *v1.UpgradeStatus
		want         bool
	}{
		"before there is an upgrade":          {wanted: "16"},
		"the version is about to be changed":  {wanted: "17", before: upgrade(v1.UpgradeDone)},
		"while it waits":                      {wanted: "17", before: upgrade(v1.UpgradeAwaitSwitchover)},
		"refused, and tried again":            {wanted: "17", before: upgrade(v1.UpgradeSwitchingOver), next: upgrade(v1.UpgradeAwaitSwitchover)},
		"it has been":                         {wanted: "17", before: upgrade(v1.UpgradeSwitchingOver), next: switched, want: true},
		"being called off":                    {wanted: "16", before: upgrade(v1.UpgradeAwaitSwitchover), next: upgrade(v1.UpgradeRevert)},
		"called off":                          {wanted: "16", before: upgrade(v1.UpgradeRevert), next: upgrade(v1.UpgradeRolledBack), want: true},
		"failed, and to be tried again":       {wanted: "17", before: upgrade(v1.UpgradeFailed)},
		"called off earlier; no pass says so": {wanted: "16", before: upgrade(v1.UpgradeRolledBack), want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := facts.Cluster{Live: "16", Version: c.wanted}
			f.Upgrade.Status = c.before
			assert.Equal(t, c.want, approvalSpent(f, plan.Decision{UpgradeStatus: c.next}))
		})
	}
}
