package role

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/pgsteward/pgsteward/internal/naming"
)

// timeout bounds one request.
const timeout = 3 * time.Second

// Labeler labels Pods.
type Labeler interface {
	// Label puts the role on the Pod; empty: takes it off. The UID, if not empty, must be the Pod's.
	Label(ctx context.Context, pod, uid, role string) error
}

// Kubernetes labels Pods through the API server.
type Kubernetes struct{ pods client.PodInterface }

// NewKubernetes labels Pods of the namespace.
func NewKubernetes(config *rest.Config, namespace string) (*Kubernetes, error) {
	pods, err := client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for Pods: %w", err)
	}
	return &Kubernetes{pods: pods.Pods(namespace)}, nil
}

// Label applies nothing but the label, as its only owner.
func (k *Kubernetes) Label(ctx context.Context, pod, uid, role string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	metadata := map[string]any{"name": pod}
	if role != "" {
		metadata["labels"] = map[string]string{naming.LabelRole: role}
	}
	if uid != "" {
		metadata["uid"] = uid
	}
	patch, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": metadata})
	if err != nil {
		return fmt.Errorf("labelling Pod %s: %w", pod, err)
	}
	_, err = k.pods.Patch(ctx, pod, types.ApplyPatchType, patch,
		metav1.PatchOptions{FieldManager: naming.AgentFieldManager, Force: ptr.To(true)})
	if err != nil {
		return fmt.Errorf("labelling Pod %s: %w", pod, err)
	}
	return nil
}
