//go:build e2e

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// The PostgresCluster under test.
const (
	clusterName = "db"
	replicas    = 3
	// labelSuite marks the namespaces of this suite. Its value is the run's process id.
	labelSuite = "pgsteward-chaos"
	// boundReady is for a new cluster, boundHealthy for one that something was done to.
	boundReady   = 4 * time.Minute
	boundHealthy = 4 * time.Minute
)

// kind is what kind of PostgresCluster is tested.
type kind struct {
	version string
	mode    string // async or sync
	// alone says that nothing beside the writer through the Service uses the cluster, as when a pause is measured: on a small
	// machine those who look whether all is right are what takes the time.
	alone bool
}

func (k kind) String() string { return k.version + "-" + k.mode }

// bed is a namespace with a PostgresCluster and the client.
type bed struct {
	kind
	namespace string
	clientURL string
	user      map[string][]byte // what the application's Secret has
}

// manifest is the cluster and the client.
func (k kind) manifest(namespace string) string {
	availability := ""
	if k.mode == "sync" {
		availability = "availability: {synchronous: {mode: required, number: 1}}"
	}
	var hosts []string
	for n := 1; n <= replicas; n++ {
		instance := naming.Instance(clusterName, n)
		hosts = append(hosts, instance+"="+absolute(naming.InstanceHost(clusterName, namespace, instance)))
	}
	reader := absolute(naming.ServiceHost(naming.ServiceRO(clusterName), namespace))
	if k.alone {
		hosts, reader = nil, ""
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s, labels: {%[2]s: "%[14]d", pod-security.kubernetes.io/enforce: restricted}}
---
apiVersion: pgsteward.io/v1
kind: PostgresCluster
metadata: {name: %[3]s, namespace: %[1]s}
spec:
  version: "%[4]s"
  image: %[5]s
  replicas: %[6]d
  storage: {size: 3Gi}
  resources: {requests: {cpu: 500m, memory: 256Mi}} # else any program of the node comes before PostgreSQL where there is little CPU
  %[7]s
---
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: %[1]s}
spec:
  nodeName: node%[8]d
  tolerations: [{operator: Exists}]
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: client
    image: %[9]s
    args: ["-rw=%[10]s", "-ro=%[11]s", "-instances=%[12]s"]
    resources: {requests: {cpu: 250m, memory: 32Mi}}
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
    env:
    - {name: PGUSER, valueFrom: {secretKeyRef: {name: %[13]s, key: user}}}
    - {name: PGPASSWORD, valueFrom: {secretKeyRef: {name: %[13]s, key: password}}}
    - {name: PGDATABASE, valueFrom: {secretKeyRef: {name: %[13]s, key: dbname}}}
`, namespace, labelSuite, clusterName, k.version, images["POSTGRES_"+k.version+"_IMAGE"], replicas, availability,
		clientNode, images["CHAOS_IMAGE"], absolute(naming.ServiceHost(naming.ServiceRW(clusterName), namespace)),
		reader, strings.Join(hosts, ","), naming.AppSecret(clusterName), os.Getpid())
}

// absolute spares the resolver its search list.
func absolute(host string) string { return host + ".cluster.local." }

// newBed makes a bed and waits until it is healthy. It goes with the test.
func newBed(t *testing.T, k kind) *bed {
	t.Helper()
	b := &bed{kind: k, namespace: fmt.Sprintf("chaos-%s-%d", k, time.Now().Unix()%1e6)}
	file := filepath.Join(t.TempDir(), "bed.yaml")
	require.NoError(t, os.WriteFile(file, []byte(k.manifest(b.namespace)), 0o600))
	t.Cleanup(func() {
		if os.Getenv("CHAOS_KEEP") != "" {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), boundReady)
		defer cancel()
		if err := removeNamespaces(ctx); err != nil {
			t.Error(err)
		}
	})
	_, err := kubectl(t.Context(), "apply", "-f", file)
	require.NoError(t, err)
	require.NoError(t, until(t.Context(), boundReady, b.findClient))
	if err := until(t.Context(), boundReady, b.healthy); err != nil {
		b.dump(t.Context(), "new")
		t.Fatalf("a new cluster is not healthy: %v", err)
	}
	return b
}

// removeNamespaces removes those of this run, and of runs that have ended, and waits until they are gone.
func removeNamespaces(ctx context.Context) error {
	return until(ctx, boundReady, func(ctx context.Context) error {
		list := &corev1.NamespaceList{}
		if err := kube.List(ctx, list, client.HasLabels{labelSuite}); err != nil {
			return err
		}
		list.Items = slices.DeleteFunc(list.Items, ofAnotherRun)
		if len(list.Items) == 0 {
			return nil
		}
		for _, namespace := range list.Items {
			if err := kube.Delete(ctx, &namespace); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
				return err
			}
		}
		return fmt.Errorf("namespace %s is not gone", list.Items[0].Name)
	})
}

// ofAnotherRun says whether the namespace belongs to a run that still goes on. (Several can, if they break only Pods.)
func ofAnotherRun(namespace corev1.Namespace) bool {
	run := namespace.Labels[labelSuite]
	comm, err := os.ReadFile(filepath.Join("/proc", run, "comm"))
	return err == nil && strings.HasPrefix(string(comm), "chaos.test") && run != strconv.Itoa(os.Getpid())
}

// findClient waits for the client's Pod and keeps its address.
func (b *bed) findClient(ctx context.Context) error {
	pod := &corev1.Pod{}
	if err := kube.Get(ctx, client.ObjectKey{Namespace: b.namespace, Name: "client"}, pod); err != nil {
		return err
	}
	if !podReady(*pod) {
		return errors.New("the client does not run")
	}
	b.clientURL = "http://" + pod.Status.PodIP + ":8080"
	return nil
}

// ask asks the client.
func (b *bed) ask(ctx context.Context, method, path string, into any) error {
	bound := 2 * time.Second
	if method == http.MethodPost {
		bound = 3 * time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, b.clientURL+path, http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the client answers %s to %s", answer.Status, path)
	}
	return json.NewDecoder(answer.Body).Decode(into)
}

// scene is who is what at the begin of a round.
type scene struct {
	*bed
	primary  corev1.Pod
	standbys []corev1.Pod // by name
}

// look reads the scene.
func (b *bed) look(ctx context.Context) (scene, error) {
	s := scene{bed: b}
	pods, err := b.pods(ctx)
	if err != nil {
		return s, err
	}
	for _, pod := range pods {
		if pod.Labels[naming.LabelRole] == naming.RolePrimary {
			s.primary = pod
		} else {
			s.standbys = append(s.standbys, pod)
		}
	}
	if s.primary.Name == "" || len(s.standbys) != replicas-1 {
		return s, errors.New("there is not one primary among the Pods")
	}
	return s, nil
}

// pods are the instances', by name.
func (b *bed) pods(ctx context.Context) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	err := kube.List(ctx, list, client.InNamespace(b.namespace), client.MatchingLabels(naming.ClusterSelector(clusterName)))
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return list.Items, err
}

func podReady(pod corev1.Pod) bool {
	return pod.DeletionTimestamp.IsZero() && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// healthy says what is missing: the status and the Pods say ready, one instance writes and has the label, the others follow it.
func (b *bed) healthy(ctx context.Context) error {
	pods, err := b.pods(ctx)
	if err != nil {
		return err
	}
	if len(pods) != replicas {
		return fmt.Errorf("there are %d Pods", len(pods))
	}
	for _, pod := range pods {
		if !podReady(pod) {
			return fmt.Errorf("%s is not ready", pod.Name)
		}
	}
	c := &v1.PostgresCluster{}
	if err := kube.Get(ctx, client.ObjectKey{Namespace: b.namespace, Name: clusterName}, c); err != nil {
		return err
	}
	ready := apimeta.FindStatusCondition(c.Status.Conditions, v1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionTrue || c.Status.ReadyReplicas != replicas || c.Status.ObservedGeneration != c.Generation {
		return fmt.Errorf("the status says %d ready, Ready: %v", c.Status.ReadyReplicas, ready)
	}
	s, err := b.look(ctx)
	if err != nil {
		return err
	}
	if naming.Pod(c.Status.CurrentPrimary) != s.primary.Name {
		return fmt.Errorf("the status says that %q is the primary, the labels say %s", c.Status.CurrentPrimary, s.primary.Name)
	}
	return s.streaming(ctx)
}

// streaming says what is missing until the primary writes and the others have all that it has written.
func (s scene) streaming(ctx context.Context) error {
	written, err := s.sql(ctx, s.primary, "SELECT CASE WHEN pg_is_in_recovery() THEN NULL ELSE pg_current_wal_lsn() END::text")
	if err != nil || written == "" {
		return fmt.Errorf("%s, the primary, is in recovery or does not answer: %w", s.primary.Name, err)
	}
	for _, pod := range s.standbys {
		query := fmt.Sprintf("SELECT CASE WHEN pg_is_in_recovery() AND pg_last_wal_replay_lsn() >= '%s' THEN 'follows' ELSE pg_last_wal_replay_lsn()::text END", written)
		got, err := s.sql(ctx, pod, query)
		if err != nil {
			return err
		}
		if got != "follows" {
			return fmt.Errorf("%s is at %q and %s, the primary, was at %s before", pod.Name, got, s.primary.Name, written)
		}
	}
	return nil
}

// sql runs a query of one value in an instance, as the application's user. This machine reaches Pods.
func (b *bed) sql(ctx context.Context, pod corev1.Pod, query string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return b.sqlWithin(ctx, pod, query)
}

// sqlWithin is sql whose bound is that of the context; the value is empty if there is none.
func (b *bed) sqlWithin(ctx context.Context, pod corev1.Pod, query string) (string, error) {
	if b.user == nil {
		secret := &corev1.Secret{}
		if err := kube.Get(ctx, client.ObjectKey{Namespace: b.namespace, Name: naming.AppSecret(clusterName)}, secret); err != nil {
			return "", err
		}
		b.user = secret.Data
	}
	config, err := pgx.ParseConfig(fmt.Sprintf("sslmode=require host=%s user=%s password=%s dbname=%s",
		pod.Status.PodIP, b.user[naming.KeyUser], b.user[naming.KeyPassword], b.user[naming.KeyDBName]))
	if err != nil {
		return "", err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return "", fmt.Errorf("%s: %w", pod.Name, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var value *string
	err = conn.QueryRow(ctx, query).Scan(&value)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && value == nil {
		return "", nil
	} else if err != nil {
		return "", err
	}
	return *value, nil
}

// same says which instance has not the same rows of the round as the others.
func (b *bed) same(ctx context.Context, round int) error {
	pods, err := b.pods(ctx)
	if err != nil {
		return err
	}
	first := ""
	for i, pod := range pods {
		got, err := b.sql(ctx, pod, fmt.Sprintf("SELECT count(*) || '|' || coalesce(sum(hashtextextended(t::text, 0)), 0) FROM chaos t WHERE round = %d", round))
		if err != nil {
			return err
		}
		if i == 0 {
			first = got
		} else if got != first {
			return fmt.Errorf("%s has (rows|hash) %s, %s has %s", pods[0].Name, first, pod.Name, got)
		}
	}
	return nil
}

// dump writes what a person would look at into a file under bin/ and returns its name.
func (b *bed) dump(ctx context.Context, what string) string {
	var all strings.Builder
	section := func(args ...string) string {
		out, err := kubectl(ctx, args...)
		fmt.Fprintf(&all, "--- kubectl %s\n%s\n", strings.Join(args, " "), out)
		if err != nil {
			fmt.Fprintln(&all, err)
		}
		return out
	}
	section("get", "nodes", "-o", "wide")
	section("-n", b.namespace, "get", "pgc,lease", "-o", "yaml")
	section("-n", b.namespace, "get", "pod,statefulset,pvc,endpointslice", "-o", "wide", "--show-labels")
	section("-n", b.namespace, "get", "events", "--sort-by=.lastTimestamp")
	pods, _ := b.pods(ctx)
	for _, pod := range pods {
		section("-n", b.namespace, "describe", "pod", pod.Name)
		section("-n", b.namespace, "logs", pod.Name, "-c", naming.ContainerPostgres, "--previous", "--tail=1000")
		section("-n", b.namespace, "logs", pod.Name, "-c", naming.ContainerPostgres, "--tail=2000")
	}
	section("-n", operatorNamespace, "logs", "deployment/"+operatorDeployment, "--all-pods", "--prefix", "--tail=500")
	file := filepath.Join(root, "bin", "chaos-failures", strings.ReplaceAll(b.namespace+"-"+what, "/", "-")+".txt")
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(all.String()), 0o644)); err != nil {
		return err.Error()
	}
	return file
}
