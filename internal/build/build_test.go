package build_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/build"
	"github.com/pgsteward/pgsteward/internal/credential"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/plan"
	"github.com/pgsteward/pgsteward/internal/testing/expect"
)

// minimal is the smallest PostgresCluster, without the defaults of the API server.
const minimal = `
	apiVersion: pgsteward.io/v1
	kind: PostgresCluster
	metadata: {name: prod-db, namespace: demo, uid: uid-1, generation: 4}
	spec: {replicas: 3, version: "16"}
`

// full has everything that a spec can have.
const full = `
	apiVersion: pgsteward.io/v1
	kind: PostgresCluster
	metadata: {name: prod-db, namespace: demo, uid: uid-1, generation: 4}
	spec:
	  replicas: 2
	  version: "17"
	  image: registry.example/my/postgres:17
	  imagePullSecrets: [{name: pull-a}, {name: pull-b}]
	  storage: {size: 10Gi, storageClassName: fast}
	  resources:
	    requests: {cpu: 250m}
	    limits: {memory: 2Gi, cpu: "1"}
	  postgresql:
	    parameters: {work_mem: 16MB, "pg_stat_statements.max": "1000"}
	    pgHBA: ["hostssl all all 10.0.0.0/8 scram-sha-256"]
	  bootstrap: {initdb: {database: shop, owner: clerk}}
	  availability:
	    {leaseDuration: 1m, renewDeadline: 30s, renewInterval: 10s, failsafe: false, maximumLag: 1Mi, synchronous: {mode: required, number: 1}}
	  scheduling:
	    nodeSelector: {disk: fast}
	    tolerations: [{key: dedicated, value: postgres, effect: NoSchedule}]
	  deletion: {volumes: Delete}
`

func parse(t *testing.T, text string) *v1.PostgresCluster {
	t.Helper()
	c := &v1.PostgresCluster{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(expect.Dedent(text)), c))
	return c
}

func members(cluster string, ordinals ...int) []plan.Member {
	all := make([]plan.Member, 0, len(ordinals))
	for _, n := range ordinals {
		all = append(all, plan.Member{Name: naming.Instance(cluster, n), Ordinal: n})
	}
	return all
}

// input is that of a cluster with its instances 1 and 2.
func input(t *testing.T, text string) build.Input {
	t.Helper()
	c := parse(t, text)
	return build.Input{
		Cluster: c, Members: members(c.Name, 1, 2),
		Credentials: credential.Set{
			SuperuserPassword: "root-secret", AppPassword: "app-secret",
			CA:          credential.KeyPair{Cert: []byte("ca-cert"), Key: []byte("ca-key")},
			Server:      credential.KeyPair{Cert: []byte("server-cert"), Key: []byte("server-key")},
			Replication: credential.KeyPair{Cert: []byte("replication-cert"), Key: []byte("replication-key")},
		},
		Settings: build.Settings{OperatorImage: "registry.example/pgsteward:1", PostgresImages: map[string]string{"16": "registry.example/postgres:16"}},
	}
}

// asUnstructured is an object as it is sent.
func asUnstructured(t *testing.T, object runtime.ApplyConfiguration) *unstructured.Unstructured {
	t.Helper()
	text, err := json.Marshal(object)
	require.NoError(t, err)
	u := &unstructured.Unstructured{}
	require.NoError(t, u.UnmarshalJSON(text))
	return u
}

// find is the object of that kind and name among all that are built.
func find(t *testing.T, in build.Input, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, object := range build.Objects(in) {
		if u := asUnstructured(t, object); u.GetKind() == kind && u.GetName() == name {
			return u
		}
	}
	require.Fail(t, "no such object", "%s %s", kind, name)
	return nil
}

// TestObjectsAreAll: what a cluster is made of, what a Pod needs before the Pod.
func TestObjectsAreAll(t *testing.T) {
	t.Parallel()
	var got []string
	for _, object := range build.Objects(input(t, minimal)) {
		u := asUnstructured(t, object)
		got = append(got, u.GetKind()+"/"+u.GetName())
	}
	assert.Equal(t, []string{
		"ServiceAccount/prod-db-instance", "Role/prod-db-instance", "RoleBinding/prod-db-instance",
		"Lease/prod-db-primary", "ConfigMap/prod-db-config",
		"Secret/prod-db-ca", "Secret/prod-db-server", "Secret/prod-db-replication", "Secret/prod-db-superuser", "Secret/prod-db-app",
		"Service/prod-db-rw", "Service/prod-db-ro", "Service/prod-db-r", "Service/prod-db-instances",
		"PodDisruptionBudget/prod-db",
		"PersistentVolumeClaim/prod-db-1-data", "StatefulSet/prod-db-1",
		"PersistentVolumeClaim/prod-db-2-data", "StatefulSet/prod-db-2",
	}, got)
}

// TestEveryObject has what makes it ours: namespace, labels, owner.
func TestEveryObject(t *testing.T) {
	t.Parallel()
	for _, text := range []string{minimal, full} {
		for _, object := range build.Objects(input(t, text)) {
			u := asUnstructured(t, object)
			name := u.GetKind() + "/" + u.GetName()
			assert.Equal(t, "demo", u.GetNamespace(), name)
			assert.Subset(t, u.GetLabels(), naming.ClusterLabels("prod-db"), name)
			if u.GetKind() == "PersistentVolumeClaim" {
				continue // TestVolumes
			}
			expect.YAML(t, `
				- {apiVersion: pgsteward.io/v1, kind: PostgresCluster, name: prod-db, uid: uid-1, controller: true, blockOwnerDeletion: true}
			`, u.GetOwnerReferences())
		}
	}
}

// TestSecondCall makes the same, and changes nothing that it was given.
func TestSecondCall(t *testing.T) {
	t.Parallel()
	for _, text := range []string{minimal, full} {
		in, same := input(t, text), input(t, text)
		first, err := json.Marshal(build.Objects(in))
		require.NoError(t, err)
		for range 20 { // maps have no order
			again, err := json.Marshal(build.Objects(in))
			require.NoError(t, err)
			require.JSONEq(t, string(first), string(again))
			require.Equal(t, string(first), string(again))
		}
		assert.Equal(t, same, in)
	}
}

// TestNames: with the longest name that a cluster can have, every name and label is still one.
func TestNames(t *testing.T) {
	t.Parallel()
	long := "a" + strings.Repeat("b", 49)
	in := input(t, strings.ReplaceAll(minimal, "prod-db", long))
	in.Members = members(long, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	for _, object := range build.Objects(in) {
		u := asUnstructured(t, object)
		name := u.GetName()
		assert.LessOrEqual(t, len(name), validation.DNS1123LabelMaxLength, name)
		if u.GetKind() == "Service" {
			assert.Empty(t, validation.IsDNS1035Label(name))
		}
		for key, value := range u.GetLabels() {
			assert.Empty(t, validation.IsValidLabelValue(value), "%s of %s", key, name)
		}
		if u.GetKind() == "StatefulSet" {
			// its controller labels Pods with the name of a revision: the set's, '-' and ten characters
			revision := name + "-" + strings.Repeat("x", 10)
			assert.Empty(t, validation.IsValidLabelValue(revision), revision)
			assert.Empty(t, validation.IsDNS1123Label(naming.Pod(name)), "it is the Pod's host name")
		}
	}
	// https://www.postgresql.org/docs/current/sql-syntax-lexical.html#SQL-SYNTAX-IDENTIFIERS: names have 63 bytes
	assert.LessOrEqual(t, len(naming.SlotName(naming.Instance(long, 9))), 63)
}

func TestServices(t *testing.T) {
	t.Parallel()
	in := input(t, minimal)
	service := func(name string) any { return find(t, in, "Service", name).Object["spec"] }
	expect.YAML(t, `
		type: ClusterIP
		publishNotReadyAddresses: true
		selector: {pgsteward.io/cluster: prod-db, app.kubernetes.io/component: database, pgsteward.io/role: primary}
		ports: [{name: postgres, port: 5432, targetPort: postgres, protocol: TCP}]
	`, service("prod-db-rw"))
	expect.YAML(t, `
		type: ClusterIP
		selector: {pgsteward.io/cluster: prod-db, app.kubernetes.io/component: database, pgsteward.io/role: standby}
		ports: [{name: postgres, port: 5432, targetPort: postgres, protocol: TCP}]
	`, service("prod-db-ro"))
	expect.YAML(t, `
		type: ClusterIP
		selector: {pgsteward.io/cluster: prod-db, app.kubernetes.io/component: database}
		ports: [{name: postgres, port: 5432, targetPort: postgres, protocol: TCP}]
	`, service("prod-db-r"))
	expect.YAML(t, `
		type: ClusterIP
		clusterIP: None
		publishNotReadyAddresses: true
		selector: {pgsteward.io/cluster: prod-db, app.kubernetes.io/component: database}
		ports:
		- {name: postgres, port: 5432, targetPort: postgres, protocol: TCP}
		- {name: agent, port: 8443, targetPort: agent, protocol: TCP}
	`, service("prod-db-instances"))
}

// TestAccess: an instance may hold its Lease and label its cluster's Pods, and nothing else; above all it reads no Secret.
func TestAccess(t *testing.T) {
	t.Parallel()
	in := input(t, minimal)
	assert.Equal(t, false, find(t, in, "ServiceAccount", "prod-db-instance").Object["automountServiceAccountToken"])
	expect.YAML(t, `
		- {apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [prod-db-primary], verbs: [get, list, watch, update, patch]}
		- {apiGroups: [""], resources: [pods], resourceNames: [prod-db-1-0, prod-db-2-0], verbs: [get, patch]}
		- {apiGroups: [events.k8s.io], resources: [events], verbs: [create]}
	`, find(t, in, "Role", "prod-db-instance").Object["rules"])
	binding := find(t, in, "RoleBinding", "prod-db-instance")
	expect.YAML(t, `{apiGroup: rbac.authorization.k8s.io, kind: Role, name: prod-db-instance}`, binding.Object["roleRef"])
	expect.YAML(t, `[{kind: ServiceAccount, namespace: demo, name: prod-db-instance}]`, binding.Object["subjects"])
}

// TestLease: its spec belongs to the agents.
func TestLease(t *testing.T) {
	t.Parallel()
	assert.NotContains(t, find(t, input(t, minimal), "Lease", "prod-db-primary").Object, "spec")
}

func TestDisruptionBudget(t *testing.T) {
	t.Parallel()
	budget := build.Ref{Kind: "PodDisruptionBudget", Name: "prod-db"}
	in := input(t, minimal)
	expect.YAML(t, `
		maxUnavailable: 1
		unhealthyPodEvictionPolicy: AlwaysAllow
		selector: {matchLabels: {pgsteward.io/cluster: prod-db, app.kubernetes.io/component: database}}
	`, find(t, in, "PodDisruptionBudget", "prod-db").Object["spec"])
	assert.NotContains(t, build.Unwanted(in), budget)

	in.Cluster.Status.Upgrade = &v1.UpgradeStatus{Surge: true}
	assert.Contains(t, build.Unwanted(in), budget, "the second instance is there for an upgrade only, and may never run")
	in.Cluster.Status.Upgrade = nil

	in.Members = members("prod-db", 1)
	for _, object := range build.Objects(in) {
		assert.NotEqual(t, "PodDisruptionBudget", asUnstructured(t, object).GetKind(), "it would block a drain for ever")
	}
	assert.Contains(t, build.Unwanted(in), budget)
}

func TestConfigMap(t *testing.T) {
	t.Parallel()
	config := func(in build.Input) string {
		data, ok := find(t, in, "ConfigMap", "prod-db-config").Object["data"].(map[string]any)
		require.True(t, ok)
		assert.Len(t, data, 1)
		text, ok := data["config.json"].(string)
		require.True(t, ok)
		return text
	}
	in := input(t, minimal)
	in.Bootstrap = "prod-db-1"
	assert.JSONEq(t, `{
		"cluster": "prod-db", "namespace": "demo", "generation": 4, "version": "16", "bootstrap": "prod-db-1",
		"members": [
			{"name": "prod-db-1", "host": "prod-db-1-0.prod-db-instances.demo.svc"},
			{"name": "prod-db-2", "host": "prod-db-2-0.prod-db-instances.demo.svc"}
		],
		"database": "app", "owner": "app",
		"lease": {"name": "prod-db-primary", "durationSeconds": 8, "deadlineSeconds": 5, "renewSeconds": 2},
		"availability": {"maximumLagBytes": 16777216, "crashRestartSeconds": 3, "failsafe": true, "synchronous": {"mode": "none"}}
	}`, config(in))

	in = input(t, full)
	in.SystemIdentifier = "7123"
	in.Cluster.Annotations = map[string]string{"pgsteward.io/fenced": "prod-db-2, prod-db-1,,prod-db-2", "pgsteward.io/force-failover": "prod-db-2"}
	assert.JSONEq(t, `{
		"cluster": "prod-db", "namespace": "demo", "generation": 4, "version": "17", "systemIdentifier": "7123",
		"members": [
			{"name": "prod-db-1", "host": "prod-db-1-0.prod-db-instances.demo.svc"},
			{"name": "prod-db-2", "host": "prod-db-2-0.prod-db-instances.demo.svc"}
		],
		"database": "shop", "owner": "clerk",
		"parameters": {"work_mem": "16MB", "pg_stat_statements.max": "1000"},
		"hba": ["hostssl all all 10.0.0.0/8 scram-sha-256"],
		"lease": {"name": "prod-db-primary", "durationSeconds": 60, "deadlineSeconds": 30, "renewSeconds": 10},
		"availability": {"maximumLagBytes": 1048576, "crashRestartSeconds": 3, "synchronous": {"mode": "required", "number": 1}},
		"fenced": ["prod-db-1", "prod-db-2"], "forceFailover": "prod-db-2"
	}`, config(in))
}

// TestOperatorBinding: the operator lets itself at the Secrets of the cluster's namespace, before anything else.
func TestOperatorBinding(t *testing.T) {
	t.Parallel()
	in := input(t, minimal)
	assert.Empty(t, build.Access(in), "outside of Kubernetes it has the rights of whoever runs it")
	in.Settings.ServiceAccount, in.Settings.Namespace = "manager", "system"
	binding := asUnstructured(t, build.Objects(in)[0])
	assert.Equal(t, "prod-db-operator", binding.GetName())
	assert.Equal(t, "demo", binding.GetNamespace())
	expect.YAML(t, `{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: pgsteward-secrets}`, binding.Object["roleRef"])
	expect.YAML(t, `[{kind: ServiceAccount, namespace: system, name: manager}]`, binding.Object["subjects"])
	assert.Equal(t, binding, asUnstructured(t, build.Access(in)[0]))
}
