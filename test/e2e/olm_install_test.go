//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	// olmNamespace is where OLM runs, and looks for catalogs.
	olmNamespace = "olm"
	// olmSubscription is the kind in full: other APIs have Subscriptions, too.
	olmSubscription = "subscriptions.operators.coreos.com"
	// boundInstalled is for a release to be installed, or a chain of them.
	boundInstalled = 8 * time.Minute
	// sure is how long a release must have been installed.
	sure = 5 * time.Second
)

// readOLM reads what hack/olm/catalogs.sh and hack/olm/images.sh wrote.
func readOLM(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range []string{"olm.env", "olm-catalogs.env"} {
		found, err := readEnvironment(name)
		require.NoError(t, err, "run hack/test.sh olm")
		for name, value := range found {
			all[name] = value
		}
	}
	return all
}

// takeOver removes the operator that kustomize deployed, and, at the end, all that OLM installed, to deploy it again.
func takeOver(t *testing.T) {
	t.Helper()
	uninstall(t)
	removeCatalogs(t)
	runScript(t, "hack/deploy/undeploy.sh")
	t.Cleanup(func() {
		uninstall(t)
		removeCatalogs(t)
		runScript(t, "hack/deploy/deploy.sh")
	})
	_, err := kubectl(t.Context(), `{apiVersion: v1, kind: Namespace, metadata: {name: `+operatorNamespace+`}}`, "apply", "-f", "-")
	require.NoError(t, err)
}

// uninstall removes the operator as docs/install-olm.md says.
func uninstall(t *testing.T) {
	t.Helper()
	for _, kind := range []string{olmSubscription, "clusterserviceversions.operators.coreos.com"} {
		runKubectl(t, boundGone, "-n", operatorNamespace, "delete", kind, "--all", "--ignore-not-found")
	}
	if olmGet(t, "deployment", operatorDeployment, `{.metadata.labels.olm\.managed}`) != "" {
		operatorGone(t)
	}
}

// removeCatalogs removes our catalogs, those of operator-sdk too, and the OperatorGroups.
func removeCatalogs(t *testing.T) {
	t.Helper()
	runKubectl(t, boundGone, "-n", operatorNamespace, "delete", "operatorgroup,installplan,catalogsource,operatorcondition", "--all")
	runKubectl(t, boundGone, "-n", olmNamespace, "delete", "catalogsource", "pgsteward", "--ignore-not-found")
}

// runKubectl is kubectl for what takes long.
func runKubectl(t *testing.T, bound time.Duration, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	_, err := kubectl(ctx, "", args...)
	require.NoError(t, err)
}

// showCatalog puts that catalog into the place of the one that OLM has, and waits until OLM has read it.
func (r *olmRun) showCatalog(t *testing.T, which string) {
	t.Helper()
	_, err := kubectl(t.Context(), fmt.Sprintf(`
apiVersion: operators.coreos.com/v1alpha1
kind: CatalogSource
metadata: {name: pgsteward, namespace: %s}
spec:
  sourceType: grpc
  image: %s
  displayName: pgsteward
  grpcPodConfig:
    securityContextConfig: restricted
    extractContent: {catalogDir: /configs}
`, olmNamespace, r.catalogs["CATALOG_"+which]), "apply", "-f", "-")
	require.NoError(t, err)
	want := r.catalogs["CATALOG_"+which+"_NEWEST"]
	eventually(t, boundInstalled, "the catalog leads to "+want, func(collect *assert.CollectT) {
		heads, err := kubectl(context.Background(), "", "get", "packagemanifest", "pgsteward", "-o", "jsonpath={.status.channels[*].currentCSV}")
		require.NoError(collect, err)
		require.Contains(collect, strings.Fields(heads), csvName(want))
	})
}

// subscribe makes the Subscription, with further lines of its spec.
func subscribe(t *testing.T, channel, approval string, more ...string) {
	t.Helper()
	_, err := kubectl(t.Context(), fmt.Sprintf(`
apiVersion: operators.coreos.com/v1alpha1
kind: Subscription
metadata: {name: pgsteward, namespace: %s}
spec:
  source: pgsteward
  sourceNamespace: %s
  name: pgsteward
  channel: %s
  installPlanApproval: %s
  %s
`, operatorNamespace, olmNamespace, channel, approval, strings.Join(append(more, lostImages()...), "\n  ")), "create", "-f", "-")
	require.NoError(t, err)
}

// lostImages replaces PostgreSQL's images of releases that nobody has any more, which bin/releases.env names.
func lostImages() []string {
	found, err := readEnvironment("releases.env")
	if err != nil || len(found) == 0 {
		return nil
	}
	lines := []string{"config:", "  env:"}
	for name, image := range found {
		if major, ok := strings.CutPrefix(name, "POSTGRES_"); ok {
			lines = append(lines, fmt.Sprintf("  - {name: RELATED_IMAGE_POSTGRES_%s, value: %q}", strings.TrimSuffix(major, "_IMAGE"), image))
		}
	}
	slices.Sort(lines[2:])
	return lines
}

// makeOperatorGroup makes one for all namespaces.
func makeOperatorGroup(t *testing.T, name string) {
	t.Helper()
	_, err := kubectl(t.Context(), fmt.Sprintf(`{apiVersion: operators.coreos.com/v1, kind: OperatorGroup, metadata: {name: %s, namespace: %s}, spec: {}}`,
		name, operatorNamespace), "create", "-f", "-")
	require.NoError(t, err)
}

// csvName is the name of a version's ClusterServiceVersion.
func csvName(version string) string { return "pgsteward.v" + version }

// olmGet is a part of an object in the operator's namespace; nothing if there is no such object.
func olmGet(t require.TestingT, kind, name, path string) string {
	said, err := kubectl(context.Background(), "", "-n", operatorNamespace, "get", kind, name, "--ignore-not-found", "-o", "jsonpath="+path)
	require.NoError(t, err)
	return said
}

// csvSaid is a CSV's phase, reason and message; nothing if there is none.
func csvSaid(t require.TestingT, version string) string {
	return olmGet(t, "csv", csvName(version), "{.status.phase} {.status.reason} {.status.message}")
}

// waitInstalled waits until that version is installed, and no other, and OLM has finished what it does then: when a certificate was
// made anew, or the CRD written again, the CSV passes through other phases once more.
func waitInstalled(t *testing.T, version string) {
	t.Helper()
	since := time.Time{}
	eventually(t, boundInstalled, csvName(version)+" is installed", func(collect *assert.CollectT) {
		said, err := kubectl(context.Background(), "", "-n", operatorNamespace, "get", "csv", "-o", "jsonpath={range .items[*]}{.metadata.name} {.status.phase};{end}")
		if err != nil || said != csvName(version)+" Succeeded;" {
			since = time.Time{}
			require.NoError(collect, err)
			lookAgain(collect, said)
			require.Fail(collect, said)
		}
		if since.IsZero() {
			since = time.Now()
		}
		require.Greater(collect, time.Since(since), sure, "it is not sure yet")
	})
}

// lookAgain touches the Subscription when another release than the wanted one is all there is. OLM looks for the next one when the
// Subscription changes, else a quarter of an hour after it looked in vain because the one before was not quite gone.
func lookAgain(t require.TestingT, csvs string) {
	if strings.Count(csvs, ";") != 1 || !strings.HasSuffix(csvs, " Succeeded;") {
		return
	}
	_, err := kubectl(context.Background(), "", "-n", operatorNamespace, "annotate", "--overwrite", "--all", olmSubscription,
		fmt.Sprintf("%s/looked-at=%d", labelSuite, time.Now().Unix()/15))
	require.NoError(t, err)
}

// installed are the CSVs of the InstallPlans that were carried out, in their order.
func installed(t *testing.T) []string {
	t.Helper()
	return strings.Fields(mustKubectl(t, "-n", operatorNamespace, "get", "installplan", "--sort-by=.metadata.creationTimestamp",
		"-o", `jsonpath={.items[?(@.status.phase=="Complete")].spec.clusterServiceVersionNames[0]}`))
}

// waitPlan waits for the InstallPlan of a version and returns its name.
func waitPlan(t *testing.T, version string) string {
	t.Helper()
	var plan string
	eventually(t, boundInstalled, "there is an InstallPlan for "+csvName(version), func(collect *assert.CollectT) {
		said, err := kubectl(context.Background(), "", "-n", operatorNamespace, "get", "installplan",
			"-o", `jsonpath={range .items[*]}{.metadata.name} {.spec.clusterServiceVersionNames[0]} {.status.phase}{"\n"}{end}`)
		require.NoError(collect, err)
		plan = ""
		for line := range strings.Lines(said) {
			if fields := strings.Fields(line); len(fields) == 3 && fields[1] == csvName(version) {
				plan = fields[0]
			}
		}
		require.NotEmpty(collect, plan, said)
	})
	return plan
}

// approve lets OLM carry an InstallPlan out.
func approve(t *testing.T, plan string) {
	t.Helper()
	mustKubectl(t, "-n", operatorNamespace, "patch", "installplan", plan, "--type=merge", "-p", `{"spec":{"approved":true}}`)
}

// dumpOLM prints what a person would look at.
func dumpOLM(t *testing.T) {
	t.Helper()
	for _, args := range [][]string{
		{"-n", operatorNamespace, "get", "csv,installplan,operatorgroup,pods", "-o", "wide"},
		{"-n", operatorNamespace, "get", "csv", "-o", "jsonpath={range .items[*]}{.metadata.name} {.status.conditions}{\"\\n\"}{end}"},
		{"-n", operatorNamespace, "get", olmSubscription, "-o", "jsonpath={.items[*].status}"},
		{"-n", olmNamespace, "get", "catalogsource,pods,jobs", "-o", "wide"},
		{"-n", olmNamespace, "logs", "deployment/olm-operator", "--tail=30"},
		{"-n", olmNamespace, "logs", "deployment/catalog-operator", "--tail=30"},
	} {
		out, err := kubectl(context.Background(), "", args...)
		t.Logf("--- kubectl %s\n%s%v", strings.Join(args, " "), out, err)
	}
}
