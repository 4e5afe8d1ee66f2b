package observe

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// podGrace is how long the StatefulSet controller may take to make a Pod before we ask why there is none.
const podGrace = 3 * time.Second

// podFacts is the instance's Pod as the kubelet and the scheduler see it.
func podFacts(pod *corev1.Pod, set *appsv1.StatefulSet) *facts.Pod {
	p := &facts.Pod{
		Name:       pod.Name,
		UID:        string(pod.UID),
		Current:    true,
		Deleting:   !pod.DeletionTimestamp.IsZero(),
		Node:       pod.Spec.NodeName,
		IP:         pod.Status.PodIP,
		Role:       pod.Labels[naming.LabelRole],
		ConfigHash: pod.Annotations[naming.AnnotationConfigHash],
	}
	if at, err := time.Parse(time.RFC3339, pod.Annotations[naming.AnnotationRefreshedAt]); err == nil {
		p.RefreshedAt = at
	}
	// which template the Pod should have is known only when the StatefulSet controller has seen the newest one
	if set.Status.ObservedGeneration == set.Generation && set.Status.UpdateRevision != "" {
		p.Current = pod.Labels[appsv1.ControllerRevisionHashLabelKey] == set.Status.UpdateRevision
	}
	for _, condition := range pod.Status.Conditions {
		switch {
		case condition.Type == corev1.PodReady:
			p.Ready = condition.Status == corev1.ConditionTrue
		case condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse && condition.Reason == corev1.PodReasonUnschedulable:
			p.Problem = &facts.Problem{Reason: v1.ReasonUnschedulable, Message: fmt.Sprintf("Pod %s finds no node: %s", pod.Name, condition.Message)}
		}
	}
	p.Running = slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == naming.ContainerPostgres && s.State.Running != nil
	})
	if evicted(pod) {
		p.Problem = &facts.Problem{Reason: v1.ReasonAgentUnreachable, Message: fmt.Sprintf(
			"Pod %s is evicted from node %s, which does not answer: it is made anew when the node is back, or when the node is deleted", pod.Name, pod.Spec.NodeName)}
	}
	if problem := containerProblem(pod); problem != nil && !p.Deleting {
		p.Problem = problem
	}
	return p
}

// evicted says whether Kubernetes has given up the Pod because of its node
// (https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/#taint-based-evictions). It stays until the node says that it ended.
func evicted(pod *corev1.Pod) bool {
	return !pod.DeletionTimestamp.IsZero() && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == "DeletionByTaintManager"
	})
}

// containerProblem is why a container of the Pod does not run, if the kubelet says so.
func containerProblem(pod *corev1.Pod) *facts.Problem {
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		waiting := status.State.Waiting
		if waiting == nil {
			continue
		}
		switch waiting.Reason {
		case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable", "ImageInspectError":
			return &facts.Problem{
				Reason:  v1.ReasonImagePullFailed,
				Message: fmt.Sprintf("Pod %s: the image %q of container %s cannot be pulled; correct spec.image or make it available: %s", pod.Name, status.Image, status.Name, pullError(waiting.Message)),
			}
		case "CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError":
			return &facts.Problem{
				Reason:  v1.ReasonContainerFailed,
				Message: strings.TrimSpace(fmt.Sprintf("Pod %s: container %s does not run (%s): %s %s", pod.Name, status.Name, waiting.Reason, waiting.Message, lastWords(status))),
			}
		}
	}
	return nil
}

// pullError is the error alone: while the kubelet backs off it repeats it behind words of its own.
func pullError(message string) string {
	if _, cause, ok := strings.Cut(message, "ErrImagePull: "); ok {
		return cause
	}
	return message
}

// lastWords is how the container ended the last time.
func lastWords(status corev1.ContainerStatus) string {
	ended := status.LastTerminationState.Terminated
	if ended == nil {
		return ""
	}
	return fmt.Sprintf("last exit code %d (%s) %s", ended.ExitCode, ended.Reason, ended.Message)
}

// refusal asks the events why the StatefulSet has no Pod.
func (r *Reader) refusal(ctx context.Context, set *appsv1.StatefulSet) (*facts.Problem, error) {
	stopped := set.Spec.Replicas != nil && *set.Spec.Replicas == 0
	if stopped || !set.DeletionTimestamp.IsZero() || r.Now().Sub(set.CreationTimestamp.Time) < podGrace {
		return nil, nil
	}
	events := &corev1.EventList{}
	err := r.API.List(ctx, events, client.InNamespace(set.Namespace), client.MatchingFieldsSelector{
		Selector: fields.SelectorFromSet(fields.Set{"involvedObject.uid": string(set.UID), "reason": "FailedCreate"}),
	})
	if err != nil {
		return nil, fmt.Errorf("listing the events of StatefulSet %s/%s: %w", set.Namespace, set.Name, err)
	}
	if len(events.Items) == 0 {
		return nil, nil
	}
	latest := slices.MaxFunc(events.Items, func(a, b corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
	return &facts.Problem{
		Reason:  refusalReason(latest.Message),
		Message: fmt.Sprintf("No Pod for %s: %s", set.Name, latest.Message),
	}, nil
}

// refusalReason sorts the API server's words; events have no machine-readable cause.
func refusalReason(message string) string {
	switch {
	case strings.Contains(message, "exceeded quota") || strings.Contains(message, "failed quota"):
		return v1.ReasonQuotaExceeded
	case strings.Contains(message, "being terminated"):
		return v1.ReasonNamespaceTerminating
	default:
		return v1.ReasonPodRefused
	}
}
