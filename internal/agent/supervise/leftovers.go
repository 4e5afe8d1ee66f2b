package supervise

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// leftovers finds the processes that a postmaster leaves behind when it is killed alone, say for want of memory.
type leftovers struct {
	program, directory os.FileInfo
}

// newLeftovers is about the server whose postmaster is that process, which runs.
func newLeftovers(postmaster int, dataDirectory string) leftovers {
	program, err := os.Stat(fmt.Sprintf("/proc/%d/exe", postmaster))
	if err != nil {
		return leftovers{}
	}
	directory, err := os.Stat(dataDirectory)
	if err != nil {
		return leftovers{}
	}
	return leftovers{program: program, directory: directory}
}

// EndIn ends by force whatever server works in the data directory, with all its processes, and says whether it came so far within the bound.
// It is for servers that another program has started, and left behind when it was ended itself.
func EndIn(dataDirectory string, bound time.Duration) bool {
	directory, err := os.Stat(dataDirectory)
	if err != nil {
		return true
	}
	return leftovers{directory: directory}.kill(bound)
}

// kill kills them until none is there, and says whether it came so far within the bound.
func (l leftovers) kill(bound time.Duration) bool {
	deadline := time.NewTimer(bound)
	defer deadline.Stop()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		found := l.find()
		if len(found) == 0 {
			return true
		}
		for _, pid := range found {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		select {
		case <-deadline.C:
			return false
		case <-ticker.C:
		}
	}
}

// find finds processes of the server's program that work in its data directory, as all of PostgreSQL's do and no other
// server's can. Not among them are commands of the agent, and the logger: that one writes nothing but the postmaster's last
// words, and ends when nobody is left who could say more.
func (l leftovers) find() (found []int) {
	if l.directory == nil {
		return nil
	}
	commands.Lock()
	defer commands.Unlock()
	for _, process := range processes() {
		if _, ours := commands.pids[process.pid]; ours || process.state == "Z" {
			continue
		}
		proc := fmt.Sprintf("/proc/%d/", process.pid)
		if (l.program == nil || is(proc+"exe", l.program)) && is(proc+"cwd", l.directory) && !isLogger(proc) {
			found = append(found, process.pid)
		}
	}
	return found
}

func is(path string, file os.FileInfo) bool {
	found, err := os.Stat(path)
	return err == nil && os.SameFile(found, file)
}

// loggerTitle is the logger's, with and without cluster_name. A backend's ends with what it is doing.
var loggerTitle = regexp.MustCompile(`^postgres: (\S+: )?logger$`)

func isLogger(proc string) bool {
	title, err := os.ReadFile(proc + "cmdline")
	return err == nil && loggerTitle.MatchString(strings.TrimRight(string(title), "\x00 "))
}
