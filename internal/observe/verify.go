package observe

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// verification is what is known of the verification of backups; nil: none is wanted.
func verification(objects Objects, c *v1.PostgresCluster, wanted Wanted, now time.Time) *facts.Verification {
	if wanted.Verify == "" {
		return nil
	}
	known := &facts.Verification{}
	known.Interval, known.Next = due(wanted.Verify, wanted.TimeZone, now)
	if job, ok := get[*batchv1.CronJob](objects, "CronJob", naming.VerifyJob(c.Name)); ok {
		known.Since = job.CreationTimestamp.Time
	}
	for _, object := range objects["Pod"] {
		pod, ok := object.(*corev1.Pod)
		if !ok || !naming.IsVerification(pod.Labels) {
			continue
		}
		if ended := verificationOf(pod); ended != nil && (known.Last == nil || ended.Ended.After(known.Last.Ended)) {
			known.Last = ended
		}
	}
	return known
}

// verificationOf is what came of the verification in that Pod; nil: it has not ended, or it was ended: by Kubernetes, so that another Pod
// follows, or by somebody who deleted it, which says nothing of the backup.
func verificationOf(pod *corev1.Pod) *agentapi.Verification {
	if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed || isDisrupted(pod) || pod.DeletionTimestamp != nil {
		return nil
	}
	last := agentapi.Verification{Started: pod.CreationTimestamp.Time, Ended: pod.CreationTimestamp.Time}
	for _, container := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		ended := container.State.Terminated
		if ended == nil {
			continue
		}
		said := agentapi.Verification{}
		if container.Name == naming.ContainerVerify && json.Unmarshal([]byte(ended.Message), &said) == nil && !said.Ended.IsZero() {
			return &said
		}
		last.Ended = ended.FinishedAt.Time
		if ended.ExitCode != 0 {
			last.Error = fmt.Sprintf("the container %s ended without a result: %s, status %d %s", container.Name, ended.Reason, ended.ExitCode, ended.Message)
		}
	}
	last.Error = strings.TrimSpace(cmp.Or(last.Error, fmt.Sprintf("the Pod %s ended without a result: %s %s", pod.Name, pod.Status.Reason, pod.Status.Message)))
	return &last
}

// isDisrupted says whether Kubernetes has ended the Pod for reasons that are not its own, such as a drain.
func isDisrupted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.DisruptionTarget && condition.Status == corev1.ConditionTrue
	})
}
