package conf

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/agent/supervise"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// Choice is what the user wants.
type Choice struct {
	Parameters map[string]string `json:"parameters,omitempty"`
	HBA        []string          `json:"hba,omitempty"`
	// Generation is that of the spec; it does not make a choice another one.
	Generation int64 `json:"generation"`
}

func (c Choice) same(other Choice) bool {
	return len(c.Parameters) == len(other.Parameters) && len(c.HBA) == len(other.HBA) &&
		(len(c.Parameters) == 0 || reflect.DeepEqual(c.Parameters, other.Parameters)) &&
		(len(c.HBA) == 0 || reflect.DeepEqual(c.HBA, other.HBA))
}

const (
	provenFile   = "configuration.json"
	checkTimeout = 10 * time.Second
)

// Files keeps PostgreSQL's configuration files.
type Files struct {
	children *supervise.Children
	volume   *datadir.Volume
	program  string
	// user is the name of the agent's user, who is the superuser on the socket.
	users []string

	loaded   bool
	inForce  Choice
	proven   Choice
	rejected *Choice
	// reverted says that rejected was refused because a server did not start.
	reverted bool
	// problem is why the wanted choice is not in force.
	problem string
	written map[string]string
}

// NewFiles keeps the files of the data directory on the volume; program is the postgres binary that checks them. The users are
// the operating system's users that may connect as the superuser over the socket.
func NewFiles(children *supervise.Children, volume *datadir.Volume, program string, users []string) *Files {
	return &Files{children: children, volume: volume, program: program, users: users, written: map[string]string{}}
}

// Problem is why the wanted choice is not in force; empty if it is.
func (f *Files) Problem() string { return f.problem }

// Generation is that of the choice in force.
func (f *Files) Generation() int64 { return f.inForce.Generation }

// Choose takes note of what is wanted and puts it in force if PostgreSQL accepts it. It needs the settings that go with it,
// without the user's.
func (f *Files) Choose(ctx context.Context, wanted Choice, settings postgres.Settings) {
	f.load()
	if wanted.same(f.inForce) {
		f.inForce.Generation = wanted.Generation
		f.rejected, f.problem = nil, f.refusedNames(settings)
		return
	}
	if f.rejected != nil && wanted.same(*f.rejected) {
		return
	}
	if err := f.check(ctx, wanted, settings); err != nil {
		if ctx.Err() == nil {
			f.reject(wanted, err.Error())
		}
		return
	}
	f.inForce, f.rejected, f.problem = wanted, nil, ""
	f.problem = f.refusedNames(settings)
}

// refusedNames says which of the user's parameters are ours and therefore have no effect.
func (f *Files) refusedNames(settings postgres.Settings) string {
	settings.User = f.inForce.Parameters
	_, refused := settings.Merge()
	if len(refused) == 0 {
		return ""
	}
	return fmt.Sprintf("parameters managed by pgsteward cannot be set and are ignored: %s", strings.Join(refused, ", "))
}

func (f *Files) reject(wanted Choice, why string) {
	f.rejected, f.problem = &wanted, why
}

// tooSmall is what PostgreSQL says (xlogrecovery.c) when WAL shows that the primary had a greater setting than this server. The
// control file has it by then, so that the next start fits: the configuration is not to blame.
const tooSmall = "insufficient parameter settings"

// Revert goes back to the proven configuration because a server did not start with the one in force. It says whether there
// was anything to go back from. If the server does not start with the proven one either, it was not the configuration: the
// wanted one may be tried again.
func (f *Files) Revert(why string) bool {
	if strings.Contains(why, tooSmall) {
		return false
	}
	if f.inForce.same(f.proven) {
		if f.reverted {
			f.reverted, f.rejected, f.problem = false, nil, ""
		}
		return false
	}
	f.reverted = true
	f.reject(f.inForce, "PostgreSQL does not start with this configuration: "+why)
	f.inForce = f.proven
	return true
}

// Unproven says whether no server has been seen to run with the configuration in force.
func (f *Files) Unproven() bool { return !f.inForce.same(f.proven) }

// Refuse goes back to the proven configuration because a running server refused the one in force.
func (f *Files) Refuse(why string) {
	if f.Unproven() {
		f.reject(f.inForce, why)
		f.inForce = f.proven
	}
}

// Proved says that a server runs with the configuration in force.
func (f *Files) Proved() error {
	f.reverted = false
	if f.inForce.same(f.proven) && f.inForce.Generation == f.proven.Generation {
		return nil
	}
	content, err := json.Marshal(f.inForce)
	if err != nil {
		return fmt.Errorf("keeping the configuration: %w", err)
	}
	if err := f.volume.WriteFile(f.provenPath(), content); err != nil {
		return err
	}
	f.proven = f.inForce
	return nil
}

func (f *Files) provenPath() string { return filepath.Join(f.volume.AgentDir(), provenFile) }

// load reads the proven configuration once. If it cannot be read, PostgreSQL's and our defaults are the way back.
func (f *Files) load() {
	if f.loaded {
		return
	}
	f.loaded = true
	content, err := os.ReadFile(f.provenPath())
	if err == nil && json.Unmarshal(content, &f.proven) == nil {
		f.inForce = f.proven
	}
}

// Apply writes the files for the choice in force, and says whether they changed. What ALTER SYSTEM left is emptied: it would
// be stronger than everything here, also where it makes an instance unable to start or to follow. From PostgreSQL 17 on ALTER
// SYSTEM is switched off instead.
func (f *Files) Apply(settings postgres.Settings) (changed bool, err error) {
	f.load()
	settings.User = f.inForce.Parameters
	parameters, _ := settings.Merge()
	hba := postgres.HBA{ReplicationUser: naming.ReplicationUser, Closed: settings.Closed, Lines: f.inForce.HBA}
	if settings.Upgrade {
		hba.UpgradeUser = naming.UpgradeUser
	}
	for name, content := range map[string]string{
		"postgresql.conf":      parameters.String(),
		"postgresql.auto.conf": "# Emptied by pgsteward when the server starts. Use spec.postgresql.parameters.\n",
		"pg_hba.conf":          hba.String(),
		"pg_ident.conf":        postgres.Ident(naming.Superuser, f.users...) + postgres.UpgradeIdent(naming.ReplicationUser, hba.UpgradeUser),
	} {
		path := filepath.Join(f.volume.Dir(), name)
		if f.written[path] == content {
			continue
		}
		present, errRead := os.ReadFile(path)
		if errRead != nil || string(present) != content {
			if err := f.volume.WriteFile(path, []byte(content)); err != nil {
				return changed, err
			}
			changed = true
		}
		f.written[path] = content
	}
	return changed, nil
}

// Forget makes the next Apply look at the files again: another data directory is in their place.
func (f *Files) Forget() { clear(f.written) }

// check has PostgreSQL read the configuration.
func (f *Files) check(ctx context.Context, wanted Choice, settings postgres.Settings) error {
	for name := range wanted.Parameters {
		if !postgres.IsParameterName(name) {
			return fmt.Errorf("%q is not the name of a parameter", name)
		}
	}
	if err := postgres.CheckHBA(wanted.HBA); err != nil {
		return err
	}
	if err := f.volume.Prepare(); err != nil {
		return err
	}
	settings.User = wanted.Parameters
	parameters, _ := settings.Merge()
	path := filepath.Join(f.volume.AgentDir(), "candidate.conf")
	if err := f.volume.WriteFile(path, []byte(parameters.String())); err != nil {
		return err
	}
	defer func() { _ = os.Remove(path) }()

	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	cmd := f.children.Command(ctx, f.program, "-D", f.volume.Dir(), "-C", "shared_buffers", "-c", "config_file="+path)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "LANG=C.UTF-8")
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := f.children.Run(cmd); err != nil {
		return errors.New(complaint(output.String(), err))
	}
	return nil
}

var complaintPattern = regexp.MustCompile(`(?:LOG|FATAL|ERROR):  (.*)`)

// complaint is what PostgreSQL says is wrong, without times, file names and the closing remark that there are errors.
func complaint(output string, err error) string {
	var found []string
	for _, match := range complaintPattern.FindAllStringSubmatch(output, -1) {
		text := regexp.MustCompile(` in file "[^"]*" line \d+`).ReplaceAllString(match[1], "")
		if !strings.HasPrefix(text, "configuration file ") {
			found = append(found, text)
		}
	}
	if len(found) == 0 {
		return fmt.Sprintf("%v: %s", err, strings.TrimSpace(output))
	}
	return strings.Join(found, "; ")
}
