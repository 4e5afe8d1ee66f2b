//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
)

// kubectl runs kubectl as a user would and returns what it prints; stdin is its input. What it says on standard error is in the
// error.
func kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, boundRequest)
		defer cancel()
	}
	command := exec.CommandContext(ctx, kubectlBin, args...)
	command.Stdin = strings.NewReader(stdin)
	var out, problems bytes.Buffer
	command.Stdout, command.Stderr = &out, &problems
	err := command.Run()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		if len(args) > 2 && args[0] == "-n" {
			args = args[2:]
		}
		// not all of the arguments: there are passwords among them
		return out.String(), fmt.Errorf("kubectl %s: %w: %s", args[0], err, strings.TrimSpace(problems.String()))
	}
	return out.String(), nil
}

// mustKubectl is kubectl where it must succeed.
func mustKubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := kubectl(t.Context(), "", args...)
	require.NoError(t, err)
	return out
}

// inPod runs a command in a Pod's container, as kubectl exec does, and returns what it prints; what it says on standard error is in the
// error. It starts no kubectl: tests ask databases so often that this was most of what they made the machine do.
func inPod(namespace, pod, container, stdin string, command ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), boundRequest)
	defer cancel()
	client, err := rest.RESTClientFor(coreConfig())
	if err != nil {
		return "", err
	}
	address := client.Post().Namespace(namespace).Resource("pods").Name(pod).SubResource("exec").VersionedParams(&corev1.PodExecOptions{
		Container: container, Command: command, Stdin: stdin != "", Stdout: true, Stderr: true,
	}, clientgoscheme.ParameterCodec).URL()
	run, err := remotecommand.NewWebSocketExecutor(kubeConfig, "GET", address.String())
	if err != nil {
		return "", err
	}
	var out, problems bytes.Buffer
	streams := remotecommand.StreamOptions{Stdout: &out, Stderr: &problems}
	if stdin != "" {
		streams.Stdin = strings.NewReader(stdin)
	}
	if err := run.StreamWithContext(ctx, streams); err != nil {
		// not the command: there are passwords in it
		return out.String(), fmt.Errorf("in Pod %s: %w: %s", pod, err, strings.TrimSpace(problems.String()))
	}
	return out.String(), nil
}

// coreConfig is kubeConfig for requests about Pods that client.Client does not make.
func coreConfig() *rest.Config {
	c := rest.CopyConfig(kubeConfig)
	c.APIPath, c.GroupVersion, c.Timeout = "/api", &corev1.SchemeGroupVersion, 0 // inPod has a bound of its own
	c.NegotiatedSerializer = clientgoscheme.Codecs.WithoutConversion()
	return c
}
