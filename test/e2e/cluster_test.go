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
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// cluster is a PostgresCluster under test.
type cluster struct{ namespace, name string }

// create makes the PostgresCluster.
func create(t *testing.T, c *v1.PostgresCluster) cluster {
	t.Helper()
	require.NoError(t, kube.Create(t.Context(), c))
	return cluster{c.Namespace, c.Name}
}

// applyYAML makes a PostgresCluster as a user does: kubectl apply.
func applyYAML(t *testing.T, namespace, name, text string) cluster {
	t.Helper()
	_, err := kubectl(t.Context(), text, "-n", namespace, "apply", "-f", "-")
	require.NoError(t, err)
	return cluster{namespace, name}
}

// get reads the PostgresCluster.
func (c cluster) get(t require.TestingT) *v1.PostgresCluster {
	object := &v1.PostgresCluster{}
	require.NoError(t, kube.Get(context.Background(), key(c.namespace, c.name), object))
	return object
}

// patch changes the PostgresCluster's spec.
func (c cluster) patch(t *testing.T, change func(spec *v1.PostgresClusterSpec)) {
	t.Helper()
	object := c.get(t)
	before := object.DeepCopy()
	change(&object.Spec)
	require.NoError(t, kube.Patch(t.Context(), object, client.MergeFrom(before)))
}

// waitReady waits until the PostgresCluster says that it is ready, for its present spec, and returns it. After a disturbance it may
// take a moment until it says that it is not: hence the Pods, which are asked first.
func (c cluster) waitReady(t *testing.T) *v1.PostgresCluster {
	t.Helper()
	var object *v1.PostgresCluster
	eventually(t, boundReady, c.name+" is ready", func(collect *assert.CollectT) {
		for name, pod := range c.pods(collect) {
			require.True(collect, podReady(pod), "%s is not ready", name)
		}
		object = c.get(collect)
		requireReady(collect, object)
	})
	return object
}

// podReady says whether the Pod is ready and there to stay.
func podReady(pod corev1.Pod) bool {
	return pod.DeletionTimestamp.IsZero() && slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
}

// requireReady says whether all is as the spec wants it.
func requireReady(t require.TestingT, object *v1.PostgresCluster) {
	ready := apimeta.FindStatusCondition(object.Status.Conditions, v1.ConditionReady)
	require.NotNil(t, ready, "the status has no condition Ready")
	require.Equal(t, metav1.ConditionTrue, ready.Status, "%s: %s", ready.Reason, ready.Message)
	require.Equal(t, object.Generation, object.Status.ObservedGeneration)
	require.Equal(t, object.Generation, ready.ObservedGeneration)
	require.Equal(t, *object.Spec.Replicas, object.Status.ReadyReplicas)
	require.Equal(t, v1.PhaseRunning, object.Status.Phase)
}

// waitDegraded waits until the PostgresCluster says that it is degraded for that reason, in words that have all of these.
func (c cluster) waitDegraded(t *testing.T, reason string, words ...string) {
	t.Helper()
	eventually(t, boundReady, c.name+" says "+reason, func(collect *assert.CollectT) {
		degraded := apimeta.FindStatusCondition(c.get(collect).Status.Conditions, v1.ConditionDegraded)
		require.NotNil(collect, degraded)
		require.Equal(collect, metav1.ConditionTrue, degraded.Status)
		require.Equal(collect, reason, degraded.Reason, degraded.Message)
		for _, word := range words {
			require.Contains(collect, degraded.Message, word)
		}
	})
	eventually(t, boundSettle, "an event says so too", func(collect *assert.CollectT) {
		require.NotEmpty(collect, c.events(collect, reason))
	})
}

// waitSound waits until the PostgresCluster is ready and no condition speaks of trouble. (One may be ready and degraded: when all
// instances serve, with something that a person should mend.)
func (c cluster) waitSound(t *testing.T) {
	t.Helper()
	c.waitReady(t)
	eventually(t, boundSettle, c.name+" has no trouble", func(collect *assert.CollectT) {
		degraded := apimeta.FindStatusCondition(c.get(collect).Status.Conditions, v1.ConditionDegraded)
		require.NotNil(collect, degraded)
		require.Equal(collect, metav1.ConditionFalse, degraded.Status, "%s: %s", degraded.Reason, degraded.Message)
	})
}

// events are the messages of the PostgresCluster's events of that reason.
func (c cluster) events(t require.TestingT, reason string) []string {
	list := &eventsv1.EventList{}
	require.NoError(t, kube.List(context.Background(), list, client.InNamespace(c.namespace)))
	var messages []string
	for _, event := range list.Items {
		if event.Regarding.Kind == "PostgresCluster" && event.Regarding.Name == c.name && event.Reason == reason {
			messages = append(messages, event.Note)
		}
	}
	return messages
}

// pods are the PostgresCluster's Pods by name.
func (c cluster) pods(t require.TestingT) map[string]corev1.Pod {
	list := &corev1.PodList{}
	require.NoError(t, kube.List(context.Background(), list, client.InNamespace(c.namespace), client.MatchingLabels(naming.ClusterSelector(c.name))))
	pods := map[string]corev1.Pod{}
	for _, pod := range list.Items {
		pods[pod.Name] = pod
	}
	return pods
}

// primaryPod is the name of the primary's Pod.
func (c cluster) primaryPod(t require.TestingT) string {
	primary := c.get(t).Status.CurrentPrimary
	require.NotEmpty(t, primary, "the status names no primary")
	return naming.Pod(primary)
}

// standbyPods are the names of the standbys' Pods.
func (c cluster) standbyPods(t require.TestingT) []string {
	var names []string
	for _, instance := range c.get(t).Status.Instances {
		if instance.Role == v1.RoleStandby {
			names = append(names, naming.Pod(instance.Name))
		}
	}
	require.NotEmpty(t, names, "the status names no standby")
	return names
}

// deletePod deletes a Pod, by force if so wanted, and waits until another one has its place.
func (c cluster) deletePod(t *testing.T, name string, force bool) {
	t.Helper()
	before := c.pods(t)[name]
	require.NotEmpty(t, before.UID, "there is no Pod %s", name)
	options := []client.DeleteOption{}
	if force {
		options = append(options, client.GracePeriodSeconds(0))
	}
	require.NoError(t, kube.Delete(t.Context(), &before, options...))
	eventually(t, boundReady, "another Pod has taken the place of "+name, func(collect *assert.CollectT) {
		after, exists := c.pods(collect)[name]
		require.True(collect, exists)
		require.NotEqual(collect, before.UID, after.UID)
	})
}

// delete deletes the PostgresCluster and waits until it is gone.
func (c cluster) delete(t *testing.T) {
	t.Helper()
	require.NoError(t, kube.Delete(t.Context(), &v1.PostgresCluster{ObjectMeta: meta(c.namespace, c.name)}))
	c.waitGone(t)
}

// waitGone waits until the cluster that was deleted is gone.
func (c cluster) waitGone(t *testing.T) {
	t.Helper()
	eventually(t, boundGone, c.name+" is gone", func(collect *assert.CollectT) {
		err := kube.Get(context.Background(), key(c.namespace, c.name), &v1.PostgresCluster{})
		require.NoError(collect, client.IgnoreNotFound(err))
		require.Error(collect, err)
	})
}

// secret are the decoded values of a Secret.
func (c cluster) secret(t require.TestingT, name string) map[string]string {
	secret := &corev1.Secret{}
	require.NoError(t, kube.Get(context.Background(), key(c.namespace, name), secret))
	values := map[string]string{}
	for key, value := range secret.Data {
		values[key] = string(value)
	}
	return values
}

// trySQL runs SQL from the client's Pod, as the application does, through the Service, with that password.
func (c cluster) trySQL(service, password, options, sql string) (string, error) {
	secret := &corev1.Secret{}
	if err := kube.Get(context.Background(), key(c.namespace, naming.AppSecret(c.name)), secret); err != nil {
		return "", err
	}
	if password == "" {
		password = string(secret.Data[naming.KeyPassword])
	}
	target := fmt.Sprintf("host=%s user=%s dbname=%s %s", naming.ServiceHost(service, c.namespace),
		secret.Data[naming.KeyUser], secret.Data[naming.KeyDBName], options)
	out, err := inPod(c.namespace, clientPod, clientPod, "",
		"env", "PGPASSWORD="+password, "psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", target, "-c", sql)
	return strings.TrimSpace(out), err
}

// sql runs SQL through the Service; it must succeed.
func (c cluster) sql(t require.TestingT, service, sql string) string {
	out, err := c.trySQL(service, "", "sslmode=require", sql)
	require.NoError(t, err)
	return out
}

// write makes the table "seen", if there is none, and writes a row.
func (c cluster) write(t require.TestingT, what string) {
	c.sql(t, naming.ServiceRW(c.name), fmt.Sprintf("SET client_min_messages = error; "+
		"CREATE TABLE IF NOT EXISTS seen (what text PRIMARY KEY); INSERT INTO seen VALUES ('%s') ON CONFLICT DO NOTHING", what))
}

// waitRows waits until these rows can be read through the Service: it takes a moment until every node knows where a Pod is that
// has become ready.
func (c cluster) waitRows(t *testing.T, service string, want ...string) {
	t.Helper()
	eventually(t, boundSettle, "read through "+service+": "+strings.Join(want, " "), func(collect *assert.CollectT) {
		require.Subset(collect, c.rows(collect, service), want)
	})
}

// rows are those of the table "seen", read through the Service.
func (c cluster) rows(t require.TestingT, service string) []string {
	return strings.Fields(c.sql(t, service, "SELECT what FROM seen ORDER BY what"))
}

// waitServed waits until a row can be written through -rw and, if there are standbys, read through -ro.
func (c cluster) waitServed(t *testing.T, what string) {
	t.Helper()
	eventually(t, boundSettle, "written through -rw: "+what, func(collect *assert.CollectT) { c.write(collect, what) })
	service := naming.ServiceRO(c.name)
	if *c.get(t).Spec.Replicas == 1 {
		service = naming.ServiceR(c.name)
	}
	c.waitRows(t, service, what)
}

// superuser runs SQL inside an instance's Pod, over the socket.
func (c cluster) superuser(t require.TestingT, pod, sql string) string {
	return c.superuserIn(t, pod, "postgres", sql)
}

// superuserIn is superuser in that database.
func (c cluster) superuserIn(t require.TestingT, pod, database, sql string) string {
	out, err := inPod(c.namespace, pod, naming.ContainerPostgres, "",
		"psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-U", naming.Superuser, "-d", database, "-c", sql)
	require.NoError(t, err)
	return strings.TrimSpace(out)
}

// requireOnePrimary: one instance, and only one, takes writes, and it is the one with the label.
func (c cluster) requireOnePrimary(t require.TestingT) {
	var writable, labelled []string
	for name, pod := range c.pods(t) {
		if c.superuser(t, name, "SELECT pg_is_in_recovery()") == "f" {
			writable = append(writable, name)
		}
		if pod.Labels[naming.LabelRole] == naming.RolePrimary {
			labelled = append(labelled, name)
		}
	}
	require.Len(t, writable, 1)
	require.Equal(t, writable, labelled)
	require.Equal(t, writable[0], c.primaryPod(t))
}

// never watches for a while that something does not happen.
func never(t *testing.T, during time.Duration, check func()) {
	t.Helper()
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(tick) {
		check()
	}
}
