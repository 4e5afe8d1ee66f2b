package cmd

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agentapi"
)

// TestReport: the result is where Kubernetes takes it from, short enough to be taken whole, and a failure fails the Job.
func TestReport(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "termination-log")
	read := func() agentapi.Verification {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Less(t, len(text), 4096)
		var said agentapi.Verification
		require.NoError(t, json.Unmarshal(text, &said))
		return said
	}
	good := agentapi.Verification{Label: "20261130-020000F", Ended: time.Unix(1, 0).UTC(), Checked: []string{"tables"}}
	require.NoError(t, report(good, file))
	require.Equal(t, good, read())

	bad := agentapi.Verification{Label: "20261130-020000F", Error: strings.Repeat("<\"", 750)}
	require.EqualError(t, report(bad, file), bad.Error)
	require.Equal(t, bad, read())
	require.ErrorContains(t, report(good, filepath.Join(file, "nowhere")), "leaving the result")
}
