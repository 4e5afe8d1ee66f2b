package observe_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/observe"
)

// verifyPod is a Pod that verifies a backup.
func verifyPod(t *testing.T, name, status string) *corev1.Pod {
	t.Helper()
	pod := parse(t, &corev1.Pod{}, `
		metadata: {name: `+name+`, labels: {app.kubernetes.io/component: verification}}
		status: `+status+`
	`)
	pod.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
	return pod
}

// said is the status of a Pod that has ended with that result.
func said(t *testing.T, v agentapi.Verification) string {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	quoted, err := json.Marshal(string(text))
	require.NoError(t, err)
	return `{phase: Succeeded, containerStatuses: [{name: verify, image: i, imageID: i, ready: false, restartCount: 0, state: {terminated: {exitCode: 0, message: ` + string(quoted) + `}}}]}`
}

// TestObserveVerification: what counts is what the Pod says that ended last; one that Kubernetes has ended says nothing.
func TestObserveVerification(t *testing.T) {
	t.Parallel()
	ended := func(minutes int, label string) agentapi.Verification {
		at := now.Add(-time.Duration(minutes) * time.Minute)
		return agentapi.Verification{Label: label, Started: at.Add(-time.Minute), Ended: at}
	}
	older, newer := ended(20, "older"), ended(10, "newer")
	terminated := func(phase, rest, container string) string {
		return `{phase: ` + phase + rest + `, containerStatuses: [{name: verify, image: i, imageID: i, ready: false, restartCount: 0, state: {terminated: ` + container + `}}]}`
	}
	deleted := verifyPod(t, "a", said(t, newer))
	deleted.DeletionTimestamp, deleted.Finalizers = &metav1.Time{Time: now}, []string{"batch.kubernetes.io/job-tracking"}
	for what, test := range map[string]struct {
		pods []client.Object
		want *agentapi.Verification
	}{
		"none":           {nil, nil},
		"it runs":        {[]client.Object{verifyPod(t, "a", `{phase: Running}`)}, nil},
		"the newer":      {[]client.Object{verifyPod(t, "a", said(t, newer)), verifyPod(t, "b", said(t, older))}, &newer},
		"it was deleted": {[]client.Object{deleted}, nil},
		"it was killed": {[]client.Object{verifyPod(t, "a", terminated("Failed", "", `{exitCode: 137, reason: OOMKilled, finishedAt: "2026-11-29T11:50:00Z"}`))},
			&agentapi.Verification{
				Started: now.Add(-time.Hour), Ended: now.Add(-10 * time.Minute), Error: "the container verify ended without a result: OOMKilled, status 137",
			}},
		"it broke": {[]client.Object{verifyPod(t, "a", terminated("Failed", "", `{exitCode: 1, reason: Error, message: "pgsteward: unknown command", finishedAt: "2026-11-29T11:50:00Z"}`))},
			&agentapi.Verification{
				Started: now.Add(-time.Hour), Ended: now.Add(-10 * time.Minute),
				Error: "the container verify ended without a result: Error, status 1 pgsteward: unknown command",
			}},
		"it was refused by the kubelet": {[]client.Object{verifyPod(t, "a", `{phase: Failed, reason: OutOfcpu, message: not enough}`)},
			&agentapi.Verification{Started: now.Add(-time.Hour), Ended: now.Add(-time.Hour), Error: "the Pod a ended without a result: OutOfcpu not enough"}},
		"a drain": {[]client.Object{verifyPod(t, "a", terminated("Failed", `, conditions: [{type: DisruptionTarget, status: "True"}]`, `{exitCode: 1}`))}, nil},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			job := parse(t, &batchv1.CronJob{}, `metadata: {name: prod-db-verify}`)
			job.CreationTimestamp = metav1.NewTime(now.Add(-24 * time.Hour))
			w := newWorld(t, append(test.pods, job)...)
			w.cluster.Spec.Backup = &v1.BackupSpec{}
			o, err := w.reader.Observe(t.Context(), w.cluster, observe.Wanted{Verify: "0 4 * * 0", TimeZone: "Etc/UTC"})
			require.NoError(t, err)
			require.NotNil(t, o.Facts.Backup.Verification)
			got := *o.Facts.Backup.Verification
			assert.True(t, got.Since.Equal(job.CreationTimestamp.Time))
			assert.Equal(t, test.want, inUTC(got.Last))
			got.Since, got.Next, got.Last = time.Time{}, got.Next.UTC(), nil
			assert.Equal(t, facts.Verification{Interval: 7 * 24 * time.Hour, Next: time.Date(2026, 12, 6, 4, 0, 0, 0, time.UTC)}, got)
			assert.Empty(t, o.Facts.OrphanPods, "they are none of the cluster's instances")
			assert.Empty(t, o.Facts.Instances)
		})
	}
}

// inUTC is the same with times that can be compared.
func inUTC(v *agentapi.Verification) *agentapi.Verification {
	if v == nil {
		return nil
	}
	same := *v
	same.Started, same.Ended = v.Started.UTC(), v.Ended.UTC()
	return &same
}
