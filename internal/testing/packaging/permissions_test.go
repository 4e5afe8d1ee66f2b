package packaging

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	sigsyaml "sigs.k8s.io/yaml"
)

// grants are permissions taken apart to one group, resource, name and verb each, so that however rules are written, the same
// permissions are equal.
type grants map[string]bool

func (g grants) add(rules []rbacv1.PolicyRule) {
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					for _, verb := range rule.Verbs {
						g[grant(group, resource, name, verb)] = true
					}
				}
			}
		}
		for _, url := range rule.NonResourceURLs {
			for _, verb := range rule.Verbs {
				g[verb+" "+url] = true
			}
		}
	}
}

func grant(group, resource, name, verb string) string {
	text := verb + " " + resource
	if group != "" {
		text += "." + group
	}
	if name != "" {
		text += " " + name
	}
	return text
}

// permissions are what a service account may do: in its own namespace or those the operator watches, and in the whole cluster.
type permissions struct{ namespaced, cluster grants }

// configPermissions are those of the roles in config/rbac that are bound to the service account.
func configPermissions(tb testing.TB, dir, account string) grants {
	tb.Helper()
	roles := map[string][]rbacv1.PolicyRule{}
	var bound []string
	for _, path := range yamlFiles(tb, dir) {
		for _, doc := range documents(tb, path) {
			// a Role and a RoleBinding have the same fields as those for the cluster
			var role rbacv1.ClusterRole
			var binding rbacv1.ClusterRoleBinding
			require.NoError(tb, sigsyaml.Unmarshal(doc, &role), path)
			switch role.Kind {
			case "ClusterRole", "Role":
				roles[role.Kind+" "+role.Name] = role.Rules
			case "ClusterRoleBinding", "RoleBinding":
				require.NoError(tb, sigsyaml.Unmarshal(doc, &binding), path)
				if slices.ContainsFunc(binding.Subjects, func(s rbacv1.Subject) bool { return s.Name == account }) {
					bound = append(bound, binding.RoleRef.Kind+" "+binding.RoleRef.Name)
				}
			}
		}
	}
	require.NotEmpty(tb, bound, "no role of %s is bound to %s", dir, account)
	all := grants{}
	for _, role := range bound {
		require.Contains(tb, roles, role, "bound, but not in %s", dir)
		all.add(roles[role])
	}
	return all
}

func bundlePermissions(csv *v1alpha1.ClusterServiceVersion) permissions {
	p := permissions{namespaced: grants{}, cluster: grants{}}
	for _, of := range csv.Spec.InstallStrategy.StrategySpec.Permissions {
		p.namespaced.add(of.Rules)
	}
	for _, of := range csv.Spec.InstallStrategy.StrategySpec.ClusterPermissions {
		p.cluster.add(of.Rules)
	}
	return p
}

// clusterScoped are resources that belong to no namespace.
var clusterScoped = []string{
	"storageclasses.storage.k8s.io", "clusterroles.rbac.authorization.k8s.io", "clusterrolebindings.rbac.authorization.k8s.io",
	"nodes", "namespaces", "persistentvolumes", "customresourcedefinitions.apiextensions.k8s.io",
	"validatingwebhookconfigurations.admissionregistration.k8s.io", "mutatingwebhookconfigurations.admissionregistration.k8s.io",
	"volumesnapshotclasses.snapshot.storage.k8s.io", "tokenreviews.authentication.k8s.io", "subjectaccessreviews.authorization.k8s.io",
}

// olmOnly are permissions that mean nothing where there is no OLM; the bundle has them, config/ need not.
var olmOnly = []string{"operatorconditions.operators.coreos.com"}

// checkPermissions wants what the bundle asks for to be what config/ grants, namespaced where it can be, and nothing by "*".
func checkPermissions(b bundle, config grants) []string {
	var problems say
	has := bundlePermissions(b.csv)
	all := maps.Clone(has.namespaced)
	maps.Copy(all, has.cluster)
	for _, g := range slices.Sorted(maps.Keys(all)) {
		resource := strings.Fields(g)[1]
		if !config[g] && !slices.Contains(olmOnly, resource) {
			problems.add("the bundle's permission to %s is not in config/rbac", g)
		}
		if strings.Contains(g, "*") {
			problems.add("the bundle has the permission to %s, which is more than anything needs", g)
		}
		if strings.Contains(resource, "customresourcedefinitions") && !strings.HasPrefix(g, "get ") && !strings.HasPrefix(g, "list ") {
			problems.add("the bundle has the permission to %s, which is OLM's work", g)
		}
	}
	for _, g := range slices.Sorted(maps.Keys(config)) {
		if !all[g] {
			problems.add("config/rbac's permission to %s is not in the bundle", g)
		}
	}
	for _, g := range slices.Sorted(maps.Keys(has.cluster)) {
		if !slices.Contains(clusterScoped, strings.Fields(g)[1]) {
			problems.add("the permission to %s is about objects in namespaces, and in clusterPermissions", g)
		}
	}
	return append(problems, checkAccounts(b)...)
}

// checkAccounts wants permissions for the deployments' service accounts, which OLM makes.
func checkAccounts(b bundle) []string {
	var problems say
	var accounts []string
	for _, deployment := range b.csv.Spec.InstallStrategy.StrategySpec.DeploymentSpecs {
		accounts = append(accounts, deployment.Spec.Template.Spec.ServiceAccountName)
	}
	strategy := b.csv.Spec.InstallStrategy.StrategySpec
	for _, of := range slices.Concat(strategy.Permissions, strategy.ClusterPermissions) {
		if !slices.Contains(accounts, of.ServiceAccountName) {
			problems.add("there are permissions for %s, which no deployment runs as", of.ServiceAccountName)
		}
	}
	for _, file := range b.files {
		if file.kind.Kind != "ServiceAccount" {
			continue
		}
		for _, account := range accounts {
			if strings.Contains(string(file.content), fmt.Sprintf("name: %s\n", account)) {
				problems.add("manifests/%s is the deployment's service account, which OLM makes", file.name)
			}
		}
	}
	return problems
}
