package supervise

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// reapInterval is how often orphans are looked for beside SIGCHLD, which the kernel may merge.
const reapInterval = 5 * time.Second

// Children starts commands and reaps the processes that the kernel gives to PID 1.
type Children struct {
	// Credential is what commands run as; nil: as the agent.
	Credential *syscall.Credential
}

// commands are this process's children that somebody waits for. They are the process's, not one Children's, as zombies are.
var commands = struct {
	sync.Mutex
	pids map[int]struct{}
}{pids: map[int]struct{}{}}

// Command is a command that gets its own process group, so that a signal to the agent's group does not reach it, and that is
// killed with its context.
func (c *Children) Command(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: c.Credential}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// Start starts a command. Wait must follow without delay.
func (c *Children) Start(cmd *exec.Cmd) error {
	commands.Lock()
	defer commands.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	commands.pids[cmd.Process.Pid] = struct{}{}
	return nil
}

// Wait waits for a command that Start has started.
func (c *Children) Wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	commands.Lock()
	defer commands.Unlock()
	delete(commands.pids, cmd.Process.Pid)
	return err
}

// Run starts a command and waits for it.
func (c *Children) Run(cmd *exec.Cmd) error {
	if err := c.Start(cmd); err != nil {
		return err
	}
	return c.Wait(cmd)
}

// Reap reaps orphans until the context ends.
func (c *Children) Reap(ctx context.Context) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGCHLD)
	defer signal.Stop(signals)
	ticker := time.NewTicker(reapInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
		case <-ticker.C:
		}
		c.reapOrphans()
	}
}

// reapOrphans reaps every zombie child that is no command of ours. The lock keeps a command from being started, and ending,
// before it is known as ours.
func (c *Children) reapOrphans() {
	commands.Lock()
	defer commands.Unlock()
	for _, process := range processes() {
		_, ours := commands.pids[process.pid]
		if process.parent == os.Getpid() && process.state == "Z" && !ours {
			_, _ = syscall.Wait4(process.pid, nil, syscall.WNOHANG, nil)
		}
	}
}

// process is what /proc/PID/stat says of a process.
type process struct {
	pid    int
	state  string
	parent int
}

func processes() []process {
	paths, _ := filepath.Glob("/proc/[0-9]*/stat")
	found := make([]process, 0, len(paths))
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			continue // it is gone
		}
		// The command's name is in parentheses and may contain anything; what we want follows the last one.
		text := string(content)
		fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
		pid, errPID := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if errPID != nil || len(fields) < 2 {
			continue
		}
		parent, errParent := strconv.Atoi(fields[1])
		if errParent == nil {
			found = append(found, process{pid: pid, state: fields[0], parent: parent})
		}
	}
	return found
}

// killTree kills a process and its children with SIGKILL: the children first, since they would not see at once that their
// parent is gone.
func killTree(pid int) {
	_ = syscall.Kill(pid, syscall.SIGSTOP) // so that it starts no more
	for _, process := range processes() {
		if process.parent == pid {
			_ = syscall.Kill(process.pid, syscall.SIGKILL)
		}
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}
