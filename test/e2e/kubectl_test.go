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
