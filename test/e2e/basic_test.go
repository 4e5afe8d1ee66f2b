//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// TestBasic is the cluster of the README, from its sample file: everything that one may expect of it.
func TestBasic(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	sample, err := os.ReadFile(filepath.Join(root, "config", "samples", "pgsteward_v1_postgrescluster.yaml"))
	require.NoError(t, err)
	c := applyYAML(t, namespace, "prod-db", string(sample))
	startClient(t, namespace)
	c.waitReady(t)
	t.Run("status", func(t *testing.T) { basicStatus(t, c) })
	t.Run("columns", func(t *testing.T) { basicColumns(t, c) })
	t.Run("children", func(t *testing.T) { basicChildren(t, c) })
	t.Run("pods", func(t *testing.T) { basicPods(t, c) })
	t.Run("write and read", func(t *testing.T) { basicWriteAndRead(t, c) })
	t.Run("secrets", func(t *testing.T) { basicSecrets(t, c) })
	t.Run("TLS", func(t *testing.T) { basicTLS(t, c) })
	t.Run("replication", func(t *testing.T) { basicReplication(t, c) })
	t.Run("settings", func(t *testing.T) { basicSettings(t, c) })
	t.Run("logs", func(t *testing.T) { basicLogs(t, c) })
}

func basicStatus(t *testing.T, c cluster) {
	object := c.get(t)
	status := object.Status
	require.Equal(t, "prod-db-1", status.CurrentPrimary)
	require.Equal(t, fmt.Sprintf("prod-db-rw.%s.svc", c.namespace), status.PrimaryHost)
	require.Len(t, status.ReplicaHosts, 2)
	require.Equal(t, int32(3), status.Replicas)
	require.Equal(t, int32(3), status.ReadyReplicas)
	require.Regexp(t, `^16\.\d+`, status.Version)
	require.Regexp(t, `^\d{15,}$`, status.SystemIdentifier)
	require.Contains(t, status.Selector, naming.LabelCluster+"=prod-db")
	for name, want := range map[string]metav1.ConditionStatus{v1.ConditionReady: "True", v1.ConditionProgressing: "False", v1.ConditionDegraded: "False"} {
		i := slices.IndexFunc(status.Conditions, func(c metav1.Condition) bool { return c.Type == name })
		require.GreaterOrEqual(t, i, 0, name)
		require.Equal(t, want, status.Conditions[i].Status, name)
	}
	require.Len(t, status.Instances, 3)
	for i, instance := range status.Instances {
		require.Equal(t, fmt.Sprintf("prod-db-%d", i+1), instance.Name)
		require.True(t, instance.Ready, instance.Name)
		require.Equal(t, status.Version, instance.Version, instance.Name)
		require.Equal(t, int64(1), instance.Timeline, instance.Name)
		require.Regexp(t, `^[0-9A-F]+/[0-9A-F]+$`, instance.LSN, instance.Name)
		require.NotEmpty(t, instance.Node, instance.Name)
		if i == 0 {
			require.Equal(t, v1.RolePrimary, instance.Role)
			continue
		}
		require.Equal(t, v1.RoleStandby, instance.Role, instance.Name)
		require.NotNil(t, instance.LagBytes, instance.Name)
	}
	for _, reason := range []string{v1.ReasonReady, v1.ReasonPrimaryChanged, v1.ReasonInstanceReady} {
		require.NotEmpty(t, c.events(t, reason), "event %s", reason)
	}
	require.Len(t, c.events(t, v1.ReasonReady), 1)
}

// basicColumns: kubectl get pgc shows what a person wants.
func basicColumns(t *testing.T, c cluster) {
	lines := strings.Split(strings.TrimSpace(mustKubectl(t, "-n", c.namespace, "get", "pgc")), "\n")
	require.Len(t, lines, 2)
	require.Equal(t, []string{"NAME", "VERSION", "REPLICAS", "READY", "PHASE", "UPGRADE", "PRIMARY", "REASON", "AGE"}, strings.Fields(lines[0]))
	require.Equal(t, []string{"prod-db", "16", "3", "3", "Running", "prod-db-1", "ClusterReady"}, strings.Fields(lines[1])[:7])
}

// basicChildren: all objects exist, labelled and owned; volumes have no owner, since they outlive the cluster.
func basicChildren(t *testing.T, c cluster) {
	want := []string{
		"ConfigMap/prod-db-config", "Lease/prod-db-primary", "PodDisruptionBudget/prod-db",
		"Role/prod-db-instance", "RoleBinding/prod-db-instance", "RoleBinding/prod-db-operator", "ServiceAccount/prod-db-instance",
		"Secret/prod-db-app", "Secret/prod-db-superuser", "Secret/prod-db-replication", "Secret/prod-db-ca", "Secret/prod-db-server",
		"Service/prod-db-rw", "Service/prod-db-ro", "Service/prod-db-r", "Service/prod-db-instances",
	}
	for i := 1; i <= 3; i++ {
		want = append(want, fmt.Sprintf("StatefulSet/prod-db-%d", i), fmt.Sprintf("Pod/prod-db-%d-0", i), fmt.Sprintf("PersistentVolumeClaim/prod-db-%d-data", i))
	}
	owner := c.get(t)
	children := c.children(t)
	var names []string
	for name, child := range children {
		names = append(names, name)
		require.Equal(t, naming.ManagedBy, child.Labels[naming.LabelManagedBy], name)
		require.Equal(t, "prod-db", child.Labels[naming.LabelAppInstance], name)
		controller := metav1.GetControllerOf(&child)
		switch child.Kind {
		case "PersistentVolumeClaim":
			require.Nil(t, controller, name)
			require.NotEmpty(t, child.Annotations[naming.AnnotationSystemIdentifier], name)
		case "Pod":
			require.NotNil(t, controller, name)
			require.Equal(t, child.Labels[naming.LabelInstance], controller.Name)
		default:
			require.NotNil(t, controller, name)
			require.Equal(t, owner.UID, controller.UID, name)
		}
	}
	require.ElementsMatch(t, want, names)
}

// basicPods: each has requests, the role label that its status says, and, where there are nodes enough, a node of its own. (That
// they are restricted is seen from their existing: the namespace enforces it.)
func basicPods(t *testing.T, c cluster) {
	nodes := map[string]bool{}
	roles := map[string]int{}
	for name, pod := range c.pods(t) {
		nodes[pod.Spec.NodeName] = true
		roles[pod.Labels[naming.LabelRole]]++
		require.NotNil(t, pod.Spec.SecurityContext.RunAsNonRoot, name)
		for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			require.False(t, container.Resources.Requests.Cpu().IsZero(), "%s of %s requests no CPU", container.Name, name)
			require.False(t, container.Resources.Requests.Memory().IsZero(), "%s of %s requests no memory", container.Name, name)
			require.True(t, *container.SecurityContext.ReadOnlyRootFilesystem, "%s of %s", container.Name, name)
		}
		for _, status := range pod.Status.ContainerStatuses {
			require.Zero(t, status.RestartCount, name)
		}
	}
	require.Equal(t, map[string]int{naming.RolePrimary: 1, naming.RoleStandby: 2}, roles)
	if len(readyNodes(t)) >= 3 {
		require.Len(t, nodes, 3)
	}
}

func basicWriteAndRead(t *testing.T, c cluster) {
	c.waitServed(t, "first")
	require.Equal(t, "f", c.sql(t, "prod-db-rw", "SELECT pg_is_in_recovery()"))
	require.Equal(t, "t", c.sql(t, "prod-db-ro", "SELECT pg_is_in_recovery()"))
	_, err := c.trySQL("prod-db-ro", "", "sslmode=require", "INSERT INTO seen VALUES ('no')")
	require.ErrorContains(t, err, "read-only")
	require.Contains(t, c.rows(t, "prod-db-r"), "first")
	require.Equal(t, "app", c.sql(t, "prod-db-rw", "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = current_database()"))
	require.Equal(t, "f", c.sql(t, "prod-db-rw", "SELECT rolsuper OR rolcreaterole OR rolreplication FROM pg_roles WHERE rolname = current_user"))
	c.requireOnePrimary(t)
}

// basicSecrets: each form in which the application's Secret has the connection works; the superuser's does.
func basicSecrets(t *testing.T, c cluster) {
	psql := func(arguments ...string) string {
		t.Helper()
		return strings.TrimSpace(mustKubectl(t, append([]string{"-n", c.namespace, "exec", clientPod, "--"}, arguments...)...))
	}
	app := c.secret(t, "prod-db-app")
	require.Equal(t, "app", app["user"])
	require.Equal(t, "app", app["dbname"])
	require.Equal(t, "5432", app["port"])
	require.Equal(t, fmt.Sprintf("prod-db-rw.%s.svc", c.namespace), app["host"])
	require.GreaterOrEqual(t, len(app["password"]), 20)
	require.Contains(t, app["jdbc-uri"], "jdbc:postgresql://"+app["host"]+":5432/app?")
	require.Equal(t, "app", psql("psql", "-XAt", app["uri"], "-c", "SELECT current_user"))
	require.Equal(t, "app", psql("sh", "-c", `umask 077; printf %s "$0" >/tmp/pgpass; PGPASSFILE=/tmp/pgpass psql -XAt "host=$1 user=app dbname=app" -c "SELECT current_user"`,
		app["pgpass"], app["host"]))
	superuser := c.secret(t, "prod-db-superuser")
	require.Equal(t, "postgres", superuser["user"])
	require.Equal(t, "t", psql("psql", "-XAt", superuser["uri"], "-c", "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"))
}

// basicTLS: connections are encrypted, the certificate is the one of the cluster's authority for the Service's name, and nobody gets
// in without.
func basicTLS(t *testing.T, c cluster) {
	const mine = "SELECT ssl, version FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
	require.Equal(t, "t|TLSv1.3", c.sql(t, "prod-db-rw", mine))
	_, err := c.trySQL("prod-db-rw", "", "sslmode=disable", mine)
	require.ErrorContains(t, err, "no encryption")
	_, err = inPod(c.namespace, clientPod, clientPod, c.secret(t, "prod-db-ca")["ca.crt"], "sh", "-c", "cat >/tmp/ca.crt")
	require.NoError(t, err)
	for _, service := range []string{"prod-db-rw", "prod-db-ro", "prod-db-r"} {
		out, err := c.trySQL(service, "", "sslmode=verify-full sslrootcert=/tmp/ca.crt", mine)
		require.NoError(t, err)
		require.Equal(t, "t|TLSv1.3", out)
	}
	_, err = c.trySQL("prod-db-rw", "wrong", "sslmode=require", "SELECT 1")
	require.ErrorContains(t, err, "password authentication failed")
}

// basicReplication: standbys stream over TLS, with a client certificate, each through a slot of its own.
func basicReplication(t *testing.T, c cluster) {
	primary := c.primaryPod(t)
	require.Equal(t, "prod-db-2|streaming|pgsteward_replication|t|t\nprod-db-3|streaming|pgsteward_replication|t|t", c.superuser(t, primary,
		"SELECT application_name, state, usename, ssl, client_dn LIKE '%CN=pgsteward_replication%' FROM pg_stat_replication JOIN pg_stat_ssl USING (pid) ORDER BY 1"))
	require.Equal(t, "pgsteward_prod_db_2|physical|t\npgsteward_prod_db_3|physical|t", c.superuser(t, primary,
		"SELECT slot_name, slot_type, active FROM pg_replication_slots ORDER BY 1"))
	require.Equal(t, "t", c.superuser(t, primary, "SELECT bool_and(rolpassword IS NULL) FROM pg_authid WHERE rolname = 'pgsteward_replication'"))
}

func basicSettings(t *testing.T, c cluster) {
	want := map[string]string{
		"data_checksums": "on", "server_encoding": "UTF8", "wal_level": "logical", "password_encryption": "scram-sha-256", "ssl": "on",
	}
	for pod := range c.pods(t) {
		for name, value := range want {
			require.Equal(t, value, c.superuser(t, pod, "SHOW "+name), "%s of %s", name, pod)
		}
	}
	require.Equal(t, "SCRAM-SHA-256", c.superuser(t, c.primaryPod(t), "SELECT string_agg(DISTINCT split_part(rolpassword, '$', 1), ' ') FROM pg_authid WHERE rolpassword IS NOT NULL"))
}

// basicLogs: every line is JSON, PostgreSQL's own included, and no password is among them.
func basicLogs(t *testing.T, c cluster) {
	passwords := []string{c.secret(t, "prod-db-app")["password"], c.secret(t, "prod-db-superuser")["password"]}
	for pod := range c.pods(t) {
		log := mustKubectl(t, "-n", c.namespace, "logs", pod, "-c", naming.ContainerPostgres)
		require.Contains(t, log, "database system is ready to accept", "%s: PostgreSQL's own log", pod)
		for line := range strings.Lines(log) {
			require.True(t, strings.HasPrefix(line, "{"), "%s: not JSON: %s", pod, line)
		}
		for _, password := range passwords {
			require.NotContains(t, log, password, "the log of %s", pod)
		}
	}
}

// TestSized is a cluster with everything in its spec that a user usually sets.
func TestSized(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	class := defaultStorageClass(t)
	c := applyYAML(t, namespace, "orders-db", fmt.Sprintf(`
apiVersion: pgsteward.io/v1
kind: PostgresCluster
metadata: {name: orders-db}
spec:
  replicas: 2
  version: "17"
  storage: {size: 2Gi, storageClassName: %s}
  resources:
    requests: {cpu: 150m, memory: 320Mi}
    limits: {memory: 640Mi}
  bootstrap:
    initdb: {database: orders, owner: clerk}
`, class))
	startClient(t, namespace)
	object := c.waitReady(t)
	require.Regexp(t, `^17\.\d+`, object.Status.Version)
	c.waitServed(t, "order")
	require.Equal(t, "clerk|orders", c.sql(t, "orders-db-rw", "SELECT current_user, current_database()"))
	for _, pod := range c.pods(t) {
		resources := pod.Spec.Containers[0].Resources
		require.True(t, resources.Requests.Cpu().Equal(resource.MustParse("150m")))
		require.True(t, resources.Requests.Memory().Equal(resource.MustParse("320Mi")))
		require.True(t, resources.Limits.Memory().Equal(resource.MustParse("640Mi")))
		claim := &corev1.PersistentVolumeClaim{}
		require.NoError(t, kube.Get(t.Context(), key(namespace, naming.DataVolume(pod.Labels[naming.LabelInstance])), claim))
		require.True(t, claim.Spec.Resources.Requests.Storage().Equal(resource.MustParse("2Gi")))
		require.Equal(t, class, *claim.Spec.StorageClassName)
	}
}

// defaultStorageClass is the one that volumes get if they name none.
func defaultStorageClass(t *testing.T) string {
	t.Helper()
	classes := &storagev1.StorageClassList{}
	require.NoError(t, kube.List(t.Context(), classes))
	for _, class := range classes.Items {
		if class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" {
			return class.Name
		}
	}
	t.Fatal("the cluster has no default StorageClass")
	return ""
}

// TestVersions: the majors that the other groups do not use, as single instances.
func TestVersions(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	startClient(t, namespace)
	for _, major := range []string{"15", "18"} {
		c := create(t, newCluster(namespace, "v"+major, major, 1))
		object := c.waitReady(t)
		require.Regexp(t, `^`+major+`\.\d+`, object.Status.Version)
		require.Empty(t, object.Status.ReplicaHosts)
		c.waitServed(t, "row")
		require.Equal(t, "t|TLSv1.3", c.sql(t, naming.ServiceRW(c.name), "SELECT ssl, version FROM pg_stat_ssl WHERE pid = pg_backend_pid()"))
		require.Equal(t, "on|UTF8|logical", c.sql(t, naming.ServiceRW(c.name), "SELECT current_setting('data_checksums'), current_setting('server_encoding'), current_setting('wal_level')"))
		require.NotContains(t, c.children(t), "PodDisruptionBudget/"+c.name, "it would block a drain for ever")
		c.delete(t)
	}
}
