package cmd

import (
	"testing"
	"time"

	"github.com/operator-framework/api/crds"
	olmv2 "github.com/operator-framework/api/pkg/operators/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/testing/apiserver"
	"github.com/pgsteward/pgsteward/internal/upgradeable"
)

// olm plays OLM: it has the kind OperatorCondition, makes one and lets the operator write it.
type olm struct {
	client.Client
	t *testing.T
}

const conditionName = "pgsteward.v0.0.0"

// startOLM installs the kind, until the test ends.
func startOLM(t *testing.T, config *rest.Config) olm {
	t.Helper()
	scheme := apiserver.Scheme(t)
	require.NoError(t, olmv2.AddToScheme(scheme))
	require.NoError(t, apiextensionsv1.AddToScheme(scheme))
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	options := envtest.CRDInstallOptions{Scheme: scheme, CRDs: []*apiextensionsv1.CustomResourceDefinition{crds.OperatorCondition()}}
	_, err = envtest.InstallCRDs(config, options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, envtest.UninstallCRDs(config, options)) })
	return olm{Client: c, t: t}
}

// condition makes the OperatorCondition.
func (o olm) condition() {
	o.t.Helper()
	require.NoError(o.t, o.Create(o.t.Context(), &olmv2.OperatorCondition{
		ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: conditionName},
		Spec:       olmv2.OperatorConditionSpec{ServiceAccounts: []string{operatorAccount}, Deployments: []string{"pgsteward-manager"}},
	}))
}

// role lets the operator do what OLM lets it do.
func (o olm) role() {
	o.t.Helper()
	name := metav1.ObjectMeta{Namespace: operatorNamespace, Name: conditionName}
	require.NoError(o.t, o.Create(o.t.Context(), &rbacv1.Role{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{olmv2.GroupVersion.Group}, Resources: []string{"operatorconditions"}, ResourceNames: []string{conditionName},
		Verbs: []string{"get", "update", "patch"},
	}}}))
	require.NoError(o.t, o.Create(o.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: conditionName},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: operatorNamespace, Name: operatorAccount}},
	}))
}

// get is the OperatorCondition as it is.
func (o olm) get(t require.TestingT) *olmv2.OperatorCondition {
	found := &olmv2.OperatorCondition{}
	require.NoError(t, o.Get(o.t.Context(), client.ObjectKey{Namespace: operatorNamespace, Name: conditionName}, found))
	return found
}

// change edits the OperatorCondition as it is.
func (o olm) change(edit func(*olmv2.OperatorCondition)) {
	o.t.Helper()
	before := o.get(o.t)
	after := before.DeepCopy()
	edit(after)
	require.NoError(o.t, o.Patch(o.t.Context(), after, client.MergeFrom(before)))
}

// requireUpgradeable waits for what OLM heeds: the condition, of the present generation.
func (o olm) requireUpgradeable(status metav1.ConditionStatus, reason, message string) {
	o.t.Helper()
	require.EventuallyWithT(o.t, func(collect *assert.CollectT) {
		found := o.get(collect)
		c := apimeta.FindStatusCondition(found.Spec.Conditions, olmv2.Upgradeable)
		require.NotNil(collect, c)
		assert.Equal(collect, status, c.Status)
		assert.Equal(collect, reason, c.Reason)
		assert.Equal(collect, message, c.Message)
		assert.Equal(collect, found.Generation, c.ObservedGeneration)
	}, patience, tick, "Upgradeable is %s", status)
}

// TestOperatorCondition runs the operator beside the OperatorCondition of a real OLM.
func TestOperatorCondition(t *testing.T) {
	config := apiserver.Config(t)
	o := startOLM(t, rest.CopyConfig(config))
	installRBAC(t, o)
	o.role()
	o.condition()
	t.Setenv(envOperatorCondition, conditionName)
	seen := startManager(t, config, managerFlags{healthAddress: "0"})
	yes := func() {
		t.Helper()
		o.requireUpgradeable(metav1.ConditionTrue, upgradeable.ReasonNothingRuns, "No PostgresCluster is in an operation that must not be interrupted")
	}
	yes()

	cluster := &v1.PostgresCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: apiserver.Namespace(t, o), Name: "prod-db"},
		Spec:       v1.PostgresClusterSpec{Version: "16"},
	}
	require.NoError(t, o.Create(t.Context(), cluster))
	hold := func(value string) {
		t.Helper()
		patch := `{"metadata":{"annotations":{"` + naming.AnnotationHoldUpgrades + `":` + value + `}}}`
		require.NoError(t, o.Patch(t.Context(), cluster, client.RawPatch("application/merge-patch+json", []byte(patch))))
	}
	no := func() {
		t.Helper()
		o.requireUpgradeable(metav1.ConditionFalse, upgradeable.ReasonHeld, cluster.Namespace+"/prod-db: held by the annotation pgsteward.io/hold-upgrades")
	}
	t.Run("an annotation holds upgrades", func(*testing.T) {
		hold(`"true"`)
		no()
		hold("null")
		yes()
	})
	t.Run("so does one that goes with its cluster", func(t *testing.T) {
		hold(`"true"`)
		no()
		require.NoError(t, o.Delete(t.Context(), cluster))
		yes()
	})
	t.Run("somebody else's edits stay, and do not make it outdated", func(t *testing.T) {
		other := metav1.Condition{Type: "Other", Status: metav1.ConditionTrue, Reason: "Theirs", LastTransitionTime: metav1.NewTime(time.Now().Truncate(time.Second))}
		o.change(func(c *olmv2.OperatorCondition) {
			c.Spec.Overrides = []metav1.Condition{{Type: olmv2.Upgradeable, Status: metav1.ConditionTrue, Reason: "Admin"}}
			c.Spec.Conditions = append(c.Spec.Conditions, other)
		})
		yes()
		found := o.get(t)
		require.Len(t, found.Spec.Overrides, 1)
		require.Len(t, found.Spec.Conditions, 2)
		require.Equal(t, other.Reason, apimeta.FindStatusCondition(found.Spec.Conditions, "Other").Reason)
		require.Equal(t, []string{operatorAccount}, found.Spec.ServiceAccounts)
	})
	t.Run("what somebody made of the condition is put right", func(*testing.T) {
		o.change(func(c *olmv2.OperatorCondition) {
			apimeta.FindStatusCondition(c.Spec.Conditions, olmv2.Upgradeable).Status = metav1.ConditionFalse
		})
		yes()
		o.change(func(c *olmv2.OperatorCondition) { c.Spec.Conditions = nil })
		yes()
	})
	t.Run("an OperatorCondition that is made anew gets it, too", func(t *testing.T) {
		require.NoError(t, o.Delete(t.Context(), o.get(t)))
		o.condition()
		yes()
	})
	t.Run("at rest it costs nothing", func(t *testing.T) { seen.requireRest(t) })
	seen.requireAllowed(t)
}
