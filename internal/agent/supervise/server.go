package supervise

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrRunning is that a server was to be started while one runs.
var ErrRunning = errors.New("a server is running")

// lastWords is how long the end of a server that failed is kept back, so that its log is read first.
const lastWords = 100 * time.Millisecond

// leftoversBound is how long processes that a dead postmaster left behind are waited for once they were killed.
const leftoversBound = 10 * time.Second

// Mode is a way to stop PostgreSQL (https://www.postgresql.org/docs/current/server-shutdown.html).
type Mode int

// The modes, each more forceful than the one before.
const (
	// Fast disconnects the clients, writes a checkpoint and lets standbys receive everything.
	Fast Mode = iota + 1
	// Immediate stops without a checkpoint; the next start recovers.
	Immediate
	// Kill ends all processes by force.
	Kill
)

// Spec is how a server is started.
type Spec struct {
	// Program is the postgres binary, DataDirectory what it runs on.
	Program       string
	DataDirectory string
	// Writable says that it may accept writes as soon as it has started.
	Writable bool
	// Detached says that it writes by the operator's order, beside the Lease: the first server of the next generation before a major
	// upgrade's switchover, and the last one of the previous generation after it. No client can reach it.
	Detached bool
}

// Exit is how a server ended.
type Exit struct {
	// Asked says whether it was stopped by Stop.
	Asked bool
	// Err is nil if it ended with status 0.
	Err error
	At  time.Time
	// Started is when it was started.
	Started time.Time
}

// Snapshot is a server at one moment.
type Snapshot struct {
	Running bool
	PID     int
	Started time.Time
	// Writable says whether it may accept writes: it was started so, or is being promoted.
	Writable bool
	// Detached says that it was started so: it writes without the Lease, and nobody stops it for want of that.
	Detached bool
	// Stopping is the most forceful mode in which it was told to stop; 0 if it was not.
	Stopping Mode
	// StoppingSince is when it was first told to stop; zero if it was not.
	StoppingSince time.Time
	// ModeSince is when it was told to stop in the mode Stopping.
	ModeSince time.Time
	// Exit is that of the last server; nil if none has ended.
	Exit *Exit
}

// Server is the PostgreSQL server of an instance: at most one process at a time.
type Server struct {
	children *Children
	// line receives what the server writes to its standard error, which is little once its log is set up.
	line func(string)
	// changed is called after a start or an end.
	changed func()

	// Watch, if it is set, is told the postmaster's PID while the server may write, and 0 when it does not any more. To be set
	// before the first start.
	Watch func(pid int)

	mu       sync.Mutex
	snapshot Snapshot
	done     chan struct{}
	// gone says that the postmaster was waited for: its PID may be another process's, although the server still counts as running.
	gone bool
}

// NewServer is a server that does not run.
func NewServer(children *Children, line func(string), changed func()) *Server {
	done := make(chan struct{})
	close(done)
	return &Server{children: children, line: line, changed: changed, done: done}
}

// Start starts the server and returns as soon as its process exists.
func (s *Server) Start(spec Spec) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.snapshot.Running {
		return ErrRunning
	}
	// Not bound to a context: it is stopped by Stop only, in the order that its data needs.
	cmd := s.children.Command(context.Background(), spec.Program, "-D", spec.DataDirectory)
	read, write, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("starting PostgreSQL: %w", err)
	}
	cmd.Stdout, cmd.Stderr = write, write
	// PG_GRANDPARENT_PID and other variables of pg_ctl are not ours; the agent's own environment may name a host or a user.
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "LANG=C.UTF-8")
	err = s.children.Start(cmd)
	_ = write.Close()
	if err != nil {
		_ = read.Close()
		return fmt.Errorf("starting PostgreSQL: %w", err)
	}
	exit := s.snapshot.Exit
	s.snapshot = Snapshot{Running: true, PID: cmd.Process.Pid, Started: time.Now(), Writable: spec.Writable, Detached: spec.Detached, Exit: exit}
	s.done, s.gone = make(chan struct{}), false
	if spec.Writable && !spec.Detached {
		s.watch(s.snapshot.PID)
	}
	left := newLeftovers(cmd.Process.Pid, spec.DataDirectory)
	drained := make(chan struct{})
	go func() { defer close(drained); s.copyLines(read) }()
	go func() {
		err := s.children.Wait(cmd)
		s.mu.Lock()
		s.gone = true
		s.watch(0)
		s.mu.Unlock()
		// Only then has it ended: a backend whose postmaster was killed goes on, commits and answers its client.
		if !left.kill(leftoversBound) {
			s.line("PostgreSQL has ended, but processes of it that were killed are still there")
		}
		awaitLastWords(drained, s.Snapshot().Stopping, err)
		s.ended(err)
	}()
	return nil
}

// awaitLastWords waits a moment for what the server has said, which may say why it ended; not if that was by force.
func awaitLastWords(drained <-chan struct{}, stopping Mode, err error) {
	if stopping == Kill {
		return
	}
	select {
	case <-drained:
	case <-time.After(time.Second):
	}
	if stopping == 0 && err != nil { // and what it wrote to its log is being read
		<-time.After(lastWords)
	}
}

func (s *Server) copyLines(from io.ReadCloser) {
	defer func() { _ = from.Close() }()
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		s.line(lines.Text())
	}
	_, _ = io.Copy(io.Discard, from)
}

func (s *Server) ended(err error) {
	s.mu.Lock()
	now := time.Now()
	s.snapshot.Exit = &Exit{Asked: s.snapshot.Stopping != 0, Err: err, At: now, Started: s.snapshot.Started}
	s.snapshot = Snapshot{Started: s.snapshot.Started, Exit: s.snapshot.Exit}
	close(s.done)
	s.mu.Unlock()
	s.changed()
}

// Stop tells the server to stop in that mode. It does not wait, and does nothing if the server was told so already.
func (s *Server) Stop(mode Mode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.snapshot.Running || s.snapshot.Stopping >= mode {
		return
	}
	if s.snapshot.Stopping == 0 {
		s.snapshot.StoppingSince = time.Now()
	}
	s.snapshot.Stopping, s.snapshot.ModeSince = mode, time.Now()
	if s.gone {
		return // what it left behind is being killed
	}
	switch mode {
	case Fast:
		_ = syscall.Kill(s.snapshot.PID, syscall.SIGINT)
	case Immediate:
		_ = syscall.Kill(s.snapshot.PID, syscall.SIGQUIT)
	case Kill:
		killTree(s.snapshot.PID)
	}
}

// Reload tells the server to read its configuration and certificates again. It says whether it could: a server that was just
// started would be ended by the signal.
func (s *Server) Reload() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.snapshot.Running || s.gone || !expects(s.snapshot.PID, syscall.SIGHUP) {
		return false
	}
	return syscall.Kill(s.snapshot.PID, syscall.SIGHUP) == nil
}

// expects says whether the process catches the signal, or holds it back for now; otherwise it would end by it.
func expects(pid int, signal syscall.Signal) bool {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(content)) {
		name, text, _ := strings.Cut(line, ":")
		if name != "SigCgt" && name != "SigBlk" {
			continue
		}
		mask, err := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
		if err == nil && mask&(1<<(uint(signal)-1)) != 0 {
			return true
		}
	}
	return false
}

// SetWritable says that the server may accept writes from now on, and only with the Lease: it is being promoted, or was detached and
// its instance holds the Lease now. To be called before clients come.
func (s *Server) SetWritable() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snapshot.Writable, s.snapshot.Detached = s.snapshot.Running, false
	if s.snapshot.Writable && !s.gone {
		s.watch(s.snapshot.PID)
	}
}

func (s *Server) watch(pid int) {
	if s.Watch != nil {
		s.Watch(pid)
	}
}

// Snapshot is the server now.
func (s *Server) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snapshot
}

// Done is closed when the server that runs now has ended; it is closed if none runs.
func (s *Server) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done
}
