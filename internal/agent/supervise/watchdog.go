package supervise

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// watchdogFile is the number of the pipe in the watchdog.
	watchdogFile = 3
	// watchdogInterval is how often it looks at the time.
	watchdogInterval = 50 * time.Millisecond
	// watchdogRestart is the pause before one that has ended is started again.
	watchdogRestart = time.Second
	// watchdogPatience bounds telling it something.
	watchdogPatience = 100 * time.Millisecond
	watchdogLeftover = 5 * time.Second
)

// Watchdog is a process beside the agent that ends a server which may write, by force, when its time is up. The agent does that
// itself long before; but an agent that was stopped (SIGSTOP), or that is starved, does nothing, while the server goes on.
type Watchdog struct {
	children *Children
	command  []string
	log      *slog.Logger

	mu   sync.Mutex
	pipe *os.File
	// until is when the server's time is up, since the machine's start; pid is the postmaster's, 0 if there is nothing to end.
	until time.Duration
	pid   int
}

// NewWatchdog is a watchdog that is this program with these arguments, which must call Guard.
func NewWatchdog(children *Children, command []string, log *slog.Logger) *Watchdog {
	return &Watchdog{children: children, command: command, log: log}
}

// Until says when the server's time is up.
func (w *Watchdog) Until(until time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.until = until
	w.tell()
}

// Watch says whose time it is about; 0: nobody's.
func (w *Watchdog) Watch(pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pid = pid
	w.tell()
}

func (w *Watchdog) tell() {
	if w.pipe == nil {
		return
	}
	_ = w.pipe.SetWriteDeadline(time.Now().Add(watchdogPatience))
	if _, err := w.pipe.Write(message(w.until, w.pid)); err != nil {
		_ = w.pipe.Close() // it ends, and a new one is started
		w.pipe = nil
	}
}

// Run keeps a watchdog running until the context ends.
func (w *Watchdog) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := w.run(ctx); ctx.Err() == nil {
			w.log.Error("The watchdog has ended", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchdogRestart):
		}
	}
}

func (w *Watchdog) run(ctx context.Context) error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd := w.children.Command(ctx, w.command[0], w.command[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.ExtraFiles = []*os.File{read}
	err = w.children.Start(cmd)
	_ = read.Close()
	if err != nil {
		_ = write.Close()
		return err
	}
	w.mu.Lock()
	w.pipe = write
	w.tell()
	w.mu.Unlock()
	err = w.children.Wait(cmd)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pipe == write {
		_ = write.Close()
		w.pipe = nil
	}
	return err
}

const messageBytes = 16

func message(until time.Duration, pid int) []byte {
	text := make([]byte, messageBytes)
	binary.LittleEndian.PutUint64(text, uint64(until))   //nolint:gosec // the same bits
	binary.LittleEndian.PutUint64(text[8:], uint64(pid)) //nolint:gosec // the same bits
	return text
}

// order is what the watchdog was told last.
type order struct {
	until time.Duration
	pid   int
	left  leftovers
}

// Guard is what the watchdog does, in a process of its own. It returns when the agent has ended.
func Guard() {
	var mu sync.Mutex
	var last order
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		pipe := os.NewFile(watchdogFile, "agent")
		text := make([]byte, messageBytes)
		for {
			if _, err := io.ReadFull(pipe, text); err != nil {
				return
			}
			next := order{
				until: time.Duration(binary.LittleEndian.Uint64(text)), //nolint:gosec // the same bits
				pid:   int(binary.LittleEndian.Uint64(text[8:])),       //nolint:gosec // the same bits
			}
			if next.pid > 0 {
				next.left = newLeftovers(next.pid, fmt.Sprintf("/proc/%d/cwd", next.pid))
			}
			mu.Lock()
			last = next
			mu.Unlock()
		}
	}()
	ticker := time.NewTicker(watchdogInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ended:
			return
		case <-ticker.C:
		}
		mu.Lock()
		now := last
		mu.Unlock()
		if now.pid > 0 && sinceStart() >= now.until {
			killTree(now.pid)
			now.left.kill(watchdogLeftover)
		}
	}
}

// sinceStart is the time since the machine was started, as lease.Boottime counts it.
func sinceStart() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic("clock_gettime(CLOCK_BOOTTIME): " + err.Error()) // cannot fail on Linux
	}
	return time.Duration(now.Nano())
}
