package backrest

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
)

// TestRunnerRemoves: one backup is removed at a time, and none is made meanwhile; what must stay is not, whoever asked.
func TestRunnerRemoves(t *testing.T) {
	t.Parallel()
	runner, _, _ := runnerOf(t, `cd $(dirname $0)
case "$*" in
*expire*)
	echo "$*" >expired
	for n in $(seq 600); do test -e go && break; sleep 0.1; done;;
*info*)
	first='{"label":"1F","type":"full","timestamp":{"stop":1}},'
	test -e expired && test -e go && first=
	echo '[{"name":"pg17-1","backup":['$first'{"label":"2F","type":"full","timestamp":{"stop":2}}],"status":{"code":0,"message":"ok"}}]';;
esac`)
	folder := runner.Tool.Work
	end := func(id string) *agentapi.RemovalRun {
		t.Helper()
		require.Eventually(t, func() bool { run := runner.Removal(); return run.ID == id && run.Ended != nil }, time.Minute, 20*time.Millisecond)
		return runner.Removal()
	}
	one := agentapi.RemovalRequest{ID: "one", Stanza: "pg17-1", Label: "1F"}
	require.NoError(t, runner.Remove(t.Context(), one))
	require.NoError(t, runner.Remove(t.Context(), one), "asking again begins nothing")
	require.ErrorContains(t, runner.Remove(t.Context(), agentapi.RemovalRequest{ID: "two", Stanza: "pg17-1", Label: "2F"}), "1F is being removed")
	require.ErrorContains(t, runner.Begin(t.Context(), Job{Request: agentapi.BackupRequest{ID: "b", Type: backup.Full}}), "1F is being removed")
	runner.Cancel("b", ErrCancelled)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "go"), nil, 0o600))
	require.Empty(t, end("one").Error)
	said, err := os.ReadFile(filepath.Join(folder, "expired"))
	require.NoError(t, err)
	require.Contains(t, string(said), "--stanza=pg17-1 --set=1F --repo1-retention-full-type=count --repo1-retention-full=1 expire")
	report := runner.Report()
	require.Len(t, report.Backups, 1)
	require.Equal(t, "2F", report.Backups[0].Label)

	require.NoError(t, runner.Remove(t.Context(), agentapi.RemovalRequest{ID: "two", Stanza: "pg17-1", Label: "2F"}))
	require.Contains(t, end("two").Error, "last good full one")
	runner.Stop()
}
