package supervise

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const (
	bound = 20 * time.Second
	often = 10 * time.Millisecond
)

// TestChildren_reaps makes this process the parent of orphans, as PID 1 is, and looks that they go while commands keep their
// exit status.
func TestChildren_reaps(t *testing.T) {
	require.NoError(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	t.Cleanup(func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) })
	var children Children
	ctx, cancel := context.WithCancel(t.Context())
	var reaping sync.WaitGroup
	reaping.Go(func() { children.Reap(ctx) })
	t.Cleanup(func() { cancel(); reaping.Wait() })

	var commands sync.WaitGroup
	for range 20 {
		commands.Go(func() {
			// the shell leaves an orphan behind, and ends with a status of its own
			cmd := children.Command(ctx, "/bin/sh", "-c", "(sleep 0.2 &) ; exit 7")
			err := children.Run(cmd)
			var exit *exec.ExitError
			if assert.ErrorAs(t, err, &exit) {
				assert.Equal(t, 7, exit.ExitCode())
			}
		})
	}
	commands.Wait()
	require.Eventually(t, func() bool {
		for _, p := range processes() {
			if p.parent == os.Getpid() {
				return false
			}
		}
		return true
	}, bound, often, "orphans are reaped")
}

func TestChildren_Command_ends_with_its_context(t *testing.T) {
	t.Parallel()
	var children Children
	ctx, cancel := context.WithCancel(t.Context())
	cmd := children.Command(ctx, "/bin/sh", "-c", "sleep 60 & wait")
	require.NoError(t, children.Start(cmd))
	cancel()
	began := time.Now()
	require.Error(t, children.Wait(cmd))
	assert.Less(t, time.Since(began), bound)
}

// postmaster is a stand-in for PostgreSQL: a script that answers signals as it does.
func postmaster(t *testing.T, body string) (*Server, Spec, *words) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "postgres")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+body), 0o755))
	said := &words{}
	server := NewServer(&Children{}, said.add, func() { said.add("changed") })
	t.Cleanup(func() { server.Stop(Kill); <-server.Done() })
	return server, Spec{Program: path, DataDirectory: "/nowhere", Writable: true}, said
}

type words struct {
	mu    sync.Mutex
	lines []string
}

func (w *words) add(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, line)
}

func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.lines, ",")
}

func awaitWord(t *testing.T, said *words, word string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(said.String(), word) }, bound, often)
}

const obedient = `trap 'echo fast; kill $!; exit 0' INT
trap 'echo immediate; kill $!; exit 2' QUIT
trap 'echo reload' HUP
echo up "$1" "$2"
while :; do sleep 60 & wait $!; done
`

func TestServer_stops_fast(t *testing.T) {
	t.Parallel()
	server, spec, said := postmaster(t, obedient)
	assert.False(t, server.Snapshot().Running)
	<-server.Done() // nothing runs

	require.NoError(t, server.Start(spec))
	require.ErrorIs(t, server.Start(spec), ErrRunning)
	awaitWord(t, said, "up -D /nowhere")
	assert.True(t, server.Snapshot().Writable)
	require.True(t, server.Reload())
	awaitWord(t, said, "reload")
	server.StopAndWait(t.Context(), bound)
	now := server.Snapshot()
	assert.False(t, now.Running)
	assert.False(t, now.Writable)
	assert.Equal(t, Mode(0), now.Stopping)
	require.NotNil(t, now.Exit)
	assert.True(t, now.Exit.Asked)
	require.NoError(t, now.Exit.Err)
	awaitWord(t, said, "changed") // it is told a moment after the server is done
	assert.Equal(t, "up -D /nowhere,reload,fast,changed", said.String())
}

func TestServer_stops_by_ever_greater_force(t *testing.T) {
	t.Parallel()
	server, spec, said := postmaster(t, "trap 'echo no' INT\ntrap 'echo immediate; exit 2' QUIT\necho up\nwhile :; do sleep 0.05; done")
	require.NoError(t, server.Start(spec))
	awaitWord(t, said, "up")
	assert.Zero(t, server.Snapshot().StoppingSince)
	began := time.Now()
	server.Stop(Fast)
	awaitWord(t, said, "no")
	since := server.Snapshot().StoppingSince
	assert.False(t, since.Before(began))
	server.Stop(Immediate)
	<-server.Done()
	assert.False(t, server.Snapshot().Exit.At.Before(since))
	assert.Zero(t, server.Snapshot().StoppingSince, "it has stopped")
	assert.Contains(t, said.String(), "up,no,immediate")
}

func TestServer_StopAndWait_uses_ever_greater_force(t *testing.T) {
	t.Parallel()
	server, spec, said := postmaster(t, "trap 'echo no' INT\ntrap 'echo immediate; exit 2' QUIT\necho up\nwhile :; do sleep 0.05; done")
	require.NoError(t, server.Start(spec))
	awaitWord(t, said, "up")
	server.StopAndWait(t.Context(), 300*time.Millisecond)
	assert.False(t, server.Snapshot().Running)
	assert.Contains(t, said.String(), "up,no,immediate")
}

func TestSnapshot_Due(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		stopping Mode
		since    time.Duration
		want     Mode
	}{
		{0, time.Hour, 0},
		{Fast, bound, Fast},
		{Fast, bound + 1, Immediate},
		{Immediate, ImmediateBound, Immediate},
		{Immediate, ImmediateBound + 1, Kill},
		{Kill, time.Hour, Kill},
	} {
		assert.Equal(t, c.want, Snapshot{Stopping: c.stopping, ModeSince: now.Add(-c.since)}.Due(now, bound), "%+v", c)
	}
}

func TestServer_kills_children_too(t *testing.T) {
	t.Parallel()
	server, spec, said := postmaster(t, "trap '' INT QUIT\nsleep 61 &\necho child $!\nwait; wait; wait")
	require.NoError(t, server.Start(spec))
	awaitWord(t, said, "child ")
	_, child, _ := strings.Cut(said.String(), "child ")
	server.Stop(Fast)
	server.Stop(Immediate)
	assert.Equal(t, Immediate, server.Snapshot().Stopping)
	server.Stop(Fast)
	assert.Equal(t, Immediate, server.Snapshot().Stopping, "never back to a gentler way")
	server.Stop(Kill)
	<-server.Done()
	require.Eventually(t, func() bool {
		content, err := os.ReadFile("/proc/" + strings.Split(child, ",")[0] + "/stat")
		return err != nil || strings.Contains(string(content), ") Z ")
	}, bound, often)
}

func TestServer_notes_a_crash(t *testing.T) {
	t.Parallel()
	server, spec, said := postmaster(t, "echo 'FATAL:  no more'; exit 1")
	require.NoError(t, server.Start(spec))
	<-server.Done()
	awaitWord(t, said, "changed")
	exit := server.Snapshot().Exit
	require.NotNil(t, exit)
	assert.False(t, exit.Asked)
	require.Error(t, exit.Err)
	assert.Equal(t, "FATAL:  no more,changed", said.String(), "its last words come first")
	server.SetWritable()
	assert.False(t, server.Snapshot().Writable, "what does not run does not write")

	require.NoError(t, server.Start(spec), "it can be started again")
	<-server.Done()
}

func TestServer_ends_when_all_of_it_has(t *testing.T) {
	t.Parallel()
	// a backend in the data directory, a process of the same program elsewhere, and one of another program
	server, spec, said := postmaster(t, `cd "$2"
(while :; do /bin/sleep 0.1; done) & backend=$!
(cd /; while :; do /bin/sleep 0.1; done) & stranger=$!
/bin/sleep 60 & other=$!
/bin/sleep 0.3 # until each is what it shall be
echo pids $backend $stranger $other
wait
`)
	spec.DataDirectory = t.TempDir()
	require.NoError(t, server.Start(spec))
	awaitWord(t, said, "pids ")
	pids := strings.Fields(strings.TrimPrefix(strings.Split(said.String(), ",")[0], "pids "))
	lives := func(pid string) bool {
		content, err := os.ReadFile("/proc/" + pid + "/stat")
		return err == nil && !strings.Contains(string(content), ") Z ")
	}
	for _, pid := range pids[1:] {
		number, err := strconv.Atoi(pid)
		require.NoError(t, err)
		t.Cleanup(func() { _ = unix.Kill(number, unix.SIGKILL) })
	}
	require.NoError(t, unix.Kill(server.Snapshot().PID, unix.SIGKILL))
	<-server.Done()
	assert.False(t, lives(pids[0]), "what could write has ended with the server")
	assert.True(t, lives(pids[1]), "what works elsewhere is not the server's")
	assert.True(t, lives(pids[2]), "nor is another program")
}

func TestLoggerTitle(t *testing.T) {
	t.Parallel()
	for title, logger := range map[string]bool{
		"postgres: logger": true, "postgres: db-1: logger": true,
		"postgres: checkpointer": false, "postgres: db-1: logger app [local] idle": false, "/usr/bin/postgres -D logger": false,
	} {
		assert.Equal(t, logger, loggerTitle.MatchString(title), title)
	}
}

func TestServer_Reload_before_it_can_be(t *testing.T) {
	t.Parallel()
	server, spec, said := postmaster(t, "echo up; read line")
	assert.False(t, server.Reload(), "nothing runs")
	require.NoError(t, server.Start(spec))
	awaitWord(t, said, "up")
	assert.False(t, server.Reload())
	assert.True(t, server.Snapshot().Running, "the signal would have ended it")
}

func TestServer_without_a_program(t *testing.T) {
	t.Parallel()
	server := NewServer(&Children{}, func(string) {}, func() {})
	require.Error(t, server.Start(Spec{Program: "/nowhere/postgres"}))
	assert.False(t, server.Snapshot().Running)
	<-server.Done()
}
