//go:build e2e

package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// olmRun is one life of a database under operators that the Operator Lifecycle Manager installs, from the first release to this tree.
type olmRun struct {
	catalogs map[string]string // what hack/olm/catalogs.sh made
	cluster  cluster
	writer   writer
	pods     map[string]types.UID
	started  map[string]string
}

// TestOLM: installed from a catalog, upgraded release by release to this tree while a cluster is written to, held, broken, removed and
// installed again, and tried with operator-sdk. The database notices none of it. It runs alone, since the operator is everybody's,
// and on a cluster with OLM (hack/test.sh olm).
func TestOLM(t *testing.T) {
	r := &olmRun{catalogs: readOLM(t)}
	namespace := newNamespace(t)
	takeOver(t)
	startClient(t, namespace)
	for _, part := range []struct {
		name string
		test func(*testing.T)
	}{
		{"install", func(t *testing.T) { r.install(t, namespace) }},
		{"upgrade release by release", r.upgrade},
		{"two OperatorGroups", r.twoGroups},
		{"another channel, approved by hand, held", r.held},
		{"a broken release", r.broken},
		{"uninstall and install again", r.again},
		{"operator-sdk run bundle", r.runBundle},
		{"scorecard", scorecard},
	} {
		if !t.Run(strings.ReplaceAll(part.name, " ", "_"), part.test) {
			dumpOLM(t)
			return
		}
	}
	r.writer.stop(t)
	r.requireUndisturbed(t)
	for _, said := range r.writer.requireKept(t) {
		t.Logf("refused: %s", said)
	}
}

// install: the first release, as docs/install-olm.md says. What is forgotten at first is the OperatorGroup: nothing happens then, and
// when it is there OLM goes on.
func (r *olmRun) install(t *testing.T, namespace string) {
	r.showCatalog(t, "FIRST")
	first := strings.Fields(r.catalogs["RELEASES"])[0]
	subscribe(t, r.catalogs["STABLE_CHANNEL"], "Automatic", "startingCSV: "+csvName(first))
	never(t, 10*time.Second, func() {
		require.Empty(t, mustKubectl(t, "-n", operatorNamespace, "get", "csv,installplan", "-o", "name"), "there is no OperatorGroup")
	})
	makeOperatorGroup(t, "pgsteward")
	waitInstalled(t, first)

	c := newCluster(namespace, "db", "17", 2)
	r.cluster = create(t, c)
	r.cluster.waitReady(t)
	r.cluster.waitServed(t, "before")
	r.pods, r.started = r.cluster.podUIDs(t), r.cluster.postmasters(t)
	r.writer = startWriter(t, r.cluster)
	r.writer.waitWritten(t, 10)
}

// upgrade: the catalog has got newer releases, and this tree. Each was installed, one after the other. What was stored before is
// valid and can be had in every version of the API.
func (r *olmRun) upgrade(t *testing.T) {
	r.showCatalog(t, "HEAD")
	waitInstalled(t, r.catalogs["HEAD_VERSION"])
	want := strings.Fields(r.catalogs["RELEASES"] + " " + r.catalogs["HEAD_VERSION"])
	for i := range want {
		want[i] = csvName(want[i])
	}
	require.Equal(t, want, installed(t), "what was installed, in its order")
	r.requireUndisturbed(t)

	name := r.cluster.namespace + "/" + r.cluster.name
	require.Equal(t, "17", r.oldVersion(t, "{.spec.postgresVersion}"), "%s as v1alpha1", name)
	require.Contains(t, mustKubectl(t, "get", old, "-A", "-o", "name"), "/"+r.cluster.name)
	before := r.cluster.get(t)
	again := newCluster(before.Namespace, before.Name, before.Spec.Version, *before.Spec.Replicas)
	again.ResourceVersion = before.ResourceVersion
	again.Finalizers = before.Finalizers
	require.NoError(t, kube.Update(t.Context(), again, client.DryRunAll), "what the first release took is valid")
	r.requireObeyed(t, "5MB")
}

// twoGroups: OLM says that it does not know which OperatorGroup to go by, and the operator serves on.
func (r *olmRun) twoGroups(t *testing.T) {
	operators := operatorPods(t)
	makeOperatorGroup(t, "another")
	eventually(t, boundReady, "the CSV says that there are two OperatorGroups", func(collect *assert.CollectT) {
		require.Contains(collect, csvSaid(collect, r.catalogs["HEAD_VERSION"]), "Failed TooManyOperatorGroups")
	})
	r.requireObeyed(t, "6MB")
	mustKubectl(t, "-n", operatorNamespace, "delete", "operatorgroup", "another")
	// OLM may have put the CSV under the one that was deleted; it looks again when the other changes.
	mustKubectl(t, "-n", operatorNamespace, "annotate", "operatorgroup", "pgsteward", labelSuite+"/looked-at=now")
	waitInstalled(t, r.catalogs["HEAD_VERSION"])
	requireSameOperator(t, operators)
}

// held: a further release in another channel waits to be approved, then until nothing holds the operator. Meanwhile, and after it,
// nobody can write as v1alpha1 what nothing would convert.
func (r *olmRun) held(t *testing.T) {
	head, next := r.catalogs["HEAD_VERSION"], r.catalogs["NEXT_VERSION"]
	operators := operatorPods(t)
	mustKubectl(t, "-n", r.cluster.namespace, "annotate", "pgc", r.cluster.name, naming.AnnotationHoldUpgrades+"=true")
	eventually(t, boundSettle, "the operator says that it must not be replaced", func(collect *assert.CollectT) {
		require.Contains(collect, olmGet(collect, "operatorcondition", csvName(head), `{.spec.conditions[?(@.type=="Upgradeable")]}`), `"status":"False"`)
	})
	mustKubectl(t, "-n", operatorNamespace, "patch", olmSubscription, "pgsteward", "--type=merge",
		"-p", `{"spec":{"channel":"`+r.catalogs["CANDIDATE_CHANNEL"]+`","installPlanApproval":"Manual"}}`)
	plan := waitPlan(t, next)
	require.Equal(t, "RequiresApproval", olmGet(t, "installplan", plan, "{.status.phase}"))
	require.Empty(t, csvSaid(t, next), "it was not approved")

	approve(t, plan)
	eventually(t, boundReady, "the next release waits", func(collect *assert.CollectT) {
		said := csvSaid(collect, next)
		require.Contains(collect, said, "Pending OperatorConditionNotUpgradeable")
		require.Contains(collect, said, r.cluster.namespace+"/"+r.cluster.name)
	})
	requireSameOperator(t, operators)
	eventually(t, boundReady, "OLM has applied the CRD already, and with it taken the conversion away", func(collect *assert.CollectT) {
		require.Empty(collect, r.oldVersion(collect, "{.spec.postgresVersion}"))
	})
	_, err := kubectl(t.Context(), "", "-n", r.cluster.namespace, "patch", old, r.cluster.name, "--type=merge", "--dry-run=server", "-p", `{"spec":{"replicas":3}}`)
	require.ErrorContains(t, err, "nothing converts between v1alpha1 and v1 at the moment")

	mustKubectl(t, "-n", r.cluster.namespace, "annotate", "pgc", r.cluster.name, naming.AnnotationHoldUpgrades+"-")
	waitInstalled(t, next)
	require.NotEqual(t, operators, operatorPods(t))
	eventually(t, boundReady, "v1alpha1 is converted again", func(collect *assert.CollectT) {
		require.Equal(collect, "17", r.oldVersion(collect, "{.spec.postgresVersion}"))
	})
	r.requireUndisturbed(t)
}

// broken: a release whose Deployment cannot start does not take the place of the one that runs.
func (r *olmRun) broken(t *testing.T) {
	operators := operatorPods(t)
	r.showCatalog(t, "BROKEN")
	approve(t, waitPlan(t, r.catalogs["BROKEN_VERSION"]))
	eventually(t, boundReady, "the broken release cannot start", func(collect *assert.CollectT) {
		require.Contains(collect, csvSaid(collect, r.catalogs["BROKEN_VERSION"]), "Installing")
		pods := &corev1.PodList{}
		require.NoError(collect, kube.List(context.Background(), pods, client.InNamespace(operatorNamespace)))
		var reasons []string
		for _, pod := range pods.Items {
			for _, status := range pod.Status.ContainerStatuses {
				if status.State.Waiting != nil {
					reasons = append(reasons, status.State.Waiting.Reason)
				}
			}
		}
		require.Subset(collect, []string{"ErrImagePull", "ImagePullBackOff"}, reasons)
		require.NotEmpty(collect, reasons)
	})
	requireSameOperator(t, operators)
	r.requireObeyed(t, "7MB")
	r.requireUndisturbed(t)
}

// again: OLM does not step over a release that it has begun to install, so both CSVs and the Subscription are removed. The database
// goes on without an operator. The next one, installed from a catalog that leads around the broken release, takes it over, with what
// happened meanwhile.
func (r *olmRun) again(t *testing.T) {
	r.showCatalog(t, "MENDED")
	uninstall(t)
	r.writer.waitWritten(t, 10)
	require.NoError(t, kube.Delete(t.Context(), &corev1.Service{ObjectMeta: meta(r.cluster.namespace, naming.ServiceRO(r.cluster.name))}))

	subscribe(t, r.catalogs["CANDIDATE_CHANNEL"], "Automatic")
	waitInstalled(t, r.catalogs["MENDED_VERSION"])
	eventually(t, boundReady, "the operator has taken the cluster over", func(collect *assert.CollectT) {
		require.NoError(collect, kube.Get(context.Background(), key(r.cluster.namespace, naming.ServiceRO(r.cluster.name)), &corev1.Service{}))
		require.True(collect, apimeta.IsStatusConditionTrue(r.cluster.get(collect).Status.Conditions, v1.ConditionReady))
	})
	r.requireObeyed(t, "8MB")
	r.requireUndisturbed(t)
}

// requireObeyed: the operator does what it is told.
func (r *olmRun) requireObeyed(t *testing.T, memory string) {
	t.Helper()
	r.cluster.patch(t, func(spec *v1.PostgresClusterSpec) {
		spec.PostgreSQL.Parameters = map[string]v1.ParameterValue{"work_mem": v1.ParameterValue(memory)}
	})
	eventually(t, boundReady, "work_mem is "+memory, func(collect *assert.CollectT) {
		for pod := range r.cluster.pods(collect) {
			require.Equal(collect, memory, r.cluster.superuser(collect, pod, "SHOW work_mem"))
		}
	})
}

// requireUndisturbed: neither a Pod nor its PostgreSQL was restarted since the cluster was made, and rows are written.
func (r *olmRun) requireUndisturbed(t *testing.T) {
	t.Helper()
	require.Equal(t, r.pods, r.cluster.podUIDs(t), "Pods were replaced")
	require.Equal(t, r.started, r.cluster.postmasters(t), "PostgreSQL was restarted")
}

// oldVersion is a part of the cluster as v1alpha1 shows it.
func (r *olmRun) oldVersion(t require.TestingT, path string) string {
	said, err := kubectl(context.Background(), "", "-n", r.cluster.namespace, "get", old, r.cluster.name, "-o", "jsonpath="+path)
	require.NoError(t, err)
	return said
}

// operatorPods are the names of the operator's Pods that are ready.
func operatorPods(t require.TestingT) []string {
	pods := &corev1.PodList{}
	require.NoError(t, kube.List(context.Background(), pods, client.InNamespace(operatorNamespace), client.MatchingLabels{naming.LabelName: "pgsteward"}))
	var names []string
	for _, pod := range pods.Items {
		if podReady(pod) {
			names = append(names, pod.Name)
		}
	}
	return names
}

// requireSameOperator: these Pods are still those of the operator that are ready. (One that has lost its lease starts again.)
func requireSameOperator(t *testing.T, before []string) {
	t.Helper()
	eventually(t, boundSettle, "the operator is the same", func(collect *assert.CollectT) {
		require.ElementsMatch(collect, before, operatorPods(collect))
	})
}

// operatorGone waits until there is no operator.
func operatorGone(t *testing.T) {
	t.Helper()
	eventually(t, boundGone, "the operator is gone", func(collect *assert.CollectT) {
		err := kube.Get(context.Background(), key(operatorNamespace, operatorDeployment), &appsv1.Deployment{})
		require.Error(collect, err)
		require.NoError(collect, client.IgnoreNotFound(err))
		require.Empty(collect, operatorPods(collect))
	})
}
