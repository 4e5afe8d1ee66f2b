package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"

	"github.com/pgsteward/pgsteward/internal/agent/conf"
	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// prepare makes sure that there are a configuration, programs and a lease keeper; else it says what to wait for.
func (a *Agent) prepare(ctx, background context.Context) *outcome {
	config, err := a.files.readConfig(a.options.Paths.Config)
	if err != nil {
		a.log.Error("The configuration cannot be read", "error", err)
	}
	if config != nil {
		a.config = config
		a.noteHosts()
	}
	if a.config == nil {
		return &outcome{state: agentapi.StateWaiting, notReady: "there is no configuration yet"}
	}
	if config != nil {
		if err := a.startKeeper(background); err != nil {
			a.log.Error("The lease cannot be watched", "error", err)
			a.files.configSum = [32]byte{} // try again
			return &outcome{state: agentapi.StateWaiting, notReady: err.Error()}
		}
	}
	version := a.versionOf(a.options.Instance)
	major, err := strconv.Atoi(version)
	if err != nil {
		return &outcome{state: agentapi.StateFailed, problem: problem(reasonImage, "version "+version+" is no major of PostgreSQL")}
	}
	a.useMajor(ctx, major)
	if a.volume == nil {
		return &outcome{state: agentapi.StateWaiting, notReady: "looking for PostgreSQL's programs"}
	}
	if a.programsProblem != nil {
		return &outcome{state: agentapi.StateFailed, problem: a.programsProblem}
	}
	return nil
}

// chown gives a path to the user that PostgreSQL runs as.
func (a *Agent) chown(path string) error {
	if a.options.Credential == nil {
		return nil
	}
	return os.Chown(path, int(a.options.Credential.Uid), int(a.options.Credential.Gid))
}

// users are the operating system's users that are the superuser on the socket.
func (a *Agent) users() []string {
	if len(a.options.Users) > 0 {
		return a.options.Users
	}
	if current, err := user.Current(); err == nil && current.Username != "" {
		return []string{current.Username}
	}
	return []string{naming.Superuser}
}

// useMajor makes everything that depends on the major, once for each.
func (a *Agent) useMajor(ctx context.Context, major int) {
	if a.major == major || a.server.Snapshot().Running || !a.seed.isDone() {
		return
	}
	find := a.options.Programs
	if find == nil {
		find = datadir.FindPrograms
	}
	programs, err := find(ctx, a.children, major)
	a.programsProblem = nil
	switch {
	case err != nil && ctx.Err() != nil:
		return
	case err != nil:
		a.programsProblem = &agentapi.Problem{Reason: reasonImage, Message: err.Error()}
	case programs.Version.Major != major:
		a.programsProblem = &agentapi.Problem{Reason: reasonImage, Message: fmt.Sprintf(
			"the image has PostgreSQL %s, the cluster's version is %d", programs.Version.Text, major)}
	}
	a.major, a.programs = major, programs
	a.volume = datadir.NewVolume(a.options.Paths.Data, major, a.chown)
	a.conf = conf.NewFiles(a.children, a.volume, programs.Postgres, a.users())
	a.seeder = &datadir.Seeder{Children: a.children, Programs: programs, Volume: a.volume}
	if a.programsProblem != nil {
		a.log.Error("The image cannot be used", "error", a.programsProblem.Message)
		return
	}
	if err := errors.Join(a.volume.RemoveLeftovers(), a.volume.Prepare()); err != nil {
		a.log.Error("Preparing the volume failed", "error", err)
	}
}
