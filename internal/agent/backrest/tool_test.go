package backrest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// script writes a program of the shell.
func script(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755)) //nolint:gosec // it is to be run
}

// shell runs a command as PostgreSQL does and returns its status.
func shell(t *testing.T, folder, command string) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", strings.NewReplacer("%f", "000000010000000000000001", "%p", "pg_wal/RECOVERYXLOG").Replace(command))
	cmd.Dir, cmd.Env = folder, append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"))
	output, err := cmd.CombinedOutput()
	t.Logf("%s%v", output, err)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	require.NoError(t, err)
	return 0
}

// TestRestoreCommand: only a repository that says that it has no such file ends the WAL; one that does not answer ends the recovery.
func TestRestoreCommand(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		what    string
		program string
		status  int
		calls   int
	}{
		{"the file is there", "exit 0", 0, 1},
		{"there is no such file", "exit 1", 1, 1},
		{"the repository does not answer", "exit 103", 126, 8},
		{"it answers after a while", `test $(wc -l <calls) -lt 3 && exit 103; exit 0`, 0, 3},
		{"it answers after a while that there is none", `test $(wc -l <calls) -lt 3 && exit 49; exit 1`, 1, 3},
	} {
		t.Run(test.what, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			script(t, filepath.Join(folder, "sleep"), "")
			script(t, filepath.Join(folder, "pgbackrest"), `echo "$@" >>calls`+"\n"+test.program)
			tool := &Tool{Program: filepath.Join(folder, "pgbackrest"), Work: "/run/x"}
			assert.Equal(t, test.status, shell(t, folder, tool.RestoreCommand("recovery", "pg17-1", folder)))
			calls, err := os.ReadFile(filepath.Join(folder, "calls"))
			require.NoError(t, err)
			lines := strings.Split(strings.TrimSpace(string(calls)), "\n")
			assert.Len(t, lines, test.calls)
			assert.Equal(t, fmt.Sprintf(
				"--config=/run/x/recovery.conf --stanza=pg17-1 --pg1-path=%s --no-archive-async archive-get 000000010000000000000001 pg_wal/RECOVERYXLOG", folder), lines[0])
		})
	}
}

// TestArchiveCommand: while the file is there the archiver gives up at once.
func TestArchiveCommand(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	script(t, filepath.Join(folder, "pgbackrest"), `exit 82`)
	tool := &Tool{Program: filepath.Join(folder, "pgbackrest"), Work: "/run/x"}
	command := tool.ArchiveCommand("pgbackrest", "pg17-1", filepath.Join(folder, "hold"))
	assert.Equal(t, 82, shell(t, folder, command))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "hold"), nil, 0o600))
	assert.Equal(t, 130, shell(t, folder, command))
}

// TestEndPushes: what the archiver waits for ends, and nothing else.
func TestEndPushes(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	tool := &Tool{Program: "/bin/sh", Work: folder}
	start := func(arguments ...string) chan error {
		cmd := exec.CommandContext(t.Context(), "/bin/sh", append([]string{"-c", "read nothing", "--"}, arguments...)...)
		input, err := cmd.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		t.Cleanup(func() { _ = input.Close() })
		return ended
	}
	push := start("--config="+tool.Configuration("pgbackrest"), "archive-push", "pg_wal/1")
	other := start("--config=/elsewhere/pgbackrest.conf", "archive-push", "pg_wal/1")
	backup := start("--config="+tool.Configuration("backup"), "backup")
	tool.EndPushes()
	assert.ErrorContains(t, <-push, "terminated")
	for _, ended := range []chan error{other, backup} {
		select {
		case err := <-ended:
			assert.Fail(t, "it ended", "%v", err)
		default:
		}
	}
}
