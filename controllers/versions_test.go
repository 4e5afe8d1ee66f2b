package controllers_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/testing/apiserver"
)

// TestVersionChanges: to which version a cluster may go depends on which one serves, and on the upgrade that is under way.
func TestVersionChanges(t *testing.T) {
	t.Parallel()
	c := apiserver.Client(t)
	under := func(phase v1.UpgradePhase) *v1.UpgradeStatus {
		return &v1.UpgradeStatus{From: "16", To: "17", Phase: phase}
	}
	for name, test := range map[string]struct {
		version, serves, wanted string
		upgrade                 *v1.UpgradeStatus
		want                    []string // empty: accepted
	}{
		"up":                          {"16", "16.14", "18", nil, nil},
		"down":                        {"17", "17.12", "16", nil, []string{"cannot go down from 17 to 16", "status.upgrade.rollbackUntil"}},
		"before anything serves":      {"17", "", "16", nil, []string{"cannot go down from 17 to 16"}},
		"called off before it began":  {"17", "16.14", "16", under(v1.UpgradePreflight), nil},
		"another one before it began": {"17", "16.14", "18", under(v1.UpgradePreflight), nil},
		"a lower one before it began": {"18", "16.14", "17", &v1.UpgradeStatus{From: "16", To: "18", Phase: v1.UpgradePreflight}, nil},
		"called off":                  {"17", "16.14", "16", under(v1.UpgradeSeedStandby), nil},
		"another one meanwhile":       {"17", "16.14", "18", under(v1.UpgradeSeedStandby), []string{"from 16 to 17 is under way", "set version back to 16"}},
		"back in time":                {"17", "17.12", "16", under(v1.UpgradeObserve), nil},
		"and there again":             {"16", "17.12", "17", under(v1.UpgradeRollback), nil},
		"back too late":               {"17", "17.12", "16", under(v1.UpgradeRetire), []string{"cannot go down from 17 to 16"}},
		"back when it is done":        {"17", "17.12", "16", under(v1.UpgradeDone), []string{"cannot go down from 17 to 16"}},
		"on when it is done":          {"17", "17.12", "18", under(v1.UpgradeDone), nil},
		"below where it came from":    {"17", "17.12", "15", under(v1.UpgradeObserve), []string{"cannot go down from 17 to 15"}},
		"back after it failed":        {"17", "16.14", "16", under(v1.UpgradeFailed), nil},
		"again after it was back":     {"16", "16.14", "17", under(v1.UpgradeRolledBack), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := ofSpec(t, apiserver.Namespace(t, c), `{version: "`+test.version+`"}`)
			require.NoError(t, c.Create(t.Context(), u))
			object := &v1.PostgresCluster{}
			require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(u), object))
			object.Status.Version, object.Status.Upgrade = test.serves, test.upgrade
			require.NoError(t, c.Status().Update(t.Context(), object))
			object.Spec.Version = test.wanted
			err := c.Update(t.Context(), object)
			if len(test.want) == 0 {
				require.NoError(t, err)
				return
			}
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			for _, words := range append(test.want, "spec.version") {
				assert.Contains(t, err.Error(), words)
			}
			t.Log(err)
		})
	}
}
