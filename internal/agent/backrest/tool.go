package backrest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/supervise"
	"github.com/pgsteward/pgsteward/internal/backup"
)

// Bounds of commands that take no time of their own.
const (
	stanzaBound = 3 * time.Minute
	infoBound   = 2 * time.Minute
	expireBound = 30 * time.Minute
	pushBound   = 5 * time.Minute
)

// ErrMissing is that the image has no pgBackRest.
var ErrMissing = errors.New("the image has no pgbackrest: use one of pgsteward's images, or one made from them, or remove spec.backup")

// Tool runs pgBackRest on this machine.
type Tool struct {
	Children *supervise.Children
	// Program is the path of pgbackrest.
	Program string
	// Work is a folder for configurations, locks and the spool; Chown gives a path to the user that PostgreSQL runs as.
	Work  string
	Chown func(path string) error
}

// Find looks for pgBackRest.
func Find() (string, error) {
	for _, path := range []string{"/usr/bin/pgbackrest", "/usr/local/bin/pgbackrest"} {
		if info, err := os.Stat(path); err == nil && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	path, err := exec.LookPath("pgbackrest")
	if err != nil {
		return "", ErrMissing
	}
	return path, nil
}

// Configuration is where the configuration of that name is.
func (t *Tool) Configuration(name string) string { return filepath.Join(t.Work, name+".conf") }

// Write writes a configuration, if it differs from the one that is there.
func (t *Tool) Write(name string, s Settings) (changed bool, err error) {
	s.Work = t.Work
	content, err := s.Configuration()
	if err != nil {
		return false, err
	}
	for _, folder := range []string{t.Work, filepath.Join(t.Work, "lock"), filepath.Join(t.Work, "log"), filepath.Join(t.Work, "spool")} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return false, fmt.Errorf("preparing pgBackRest: %w", err)
		}
		if err := t.Chown(folder); err != nil {
			return false, fmt.Errorf("preparing pgBackRest: %w", err)
		}
	}
	path := t.Configuration(name)
	if present, err := os.ReadFile(path); err == nil && string(present) == content {
		return false, nil
	}
	err = os.WriteFile(path+".new", []byte(content), 0o600)
	if err == nil {
		err = t.Chown(path + ".new")
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return false, fmt.Errorf("configuring pgBackRest: %w", err)
	}
	return true, nil
}

// ArchiveCommand is PostgreSQL's archive_command. While the file hold exists it ends in a way that makes the archiver give up at once,
// so that a shutdown for a hand-over need not wait for the repository; what was not archived then is archived by the next primary.
func (t *Tool) ArchiveCommand(name, stanza, hold string) string {
	return fmt.Sprintf(`test ! -e %s || exit 130; exec %s --config=%s --stanza=%s archive-push "%%p"`, hold, t.Program, t.Configuration(name), stanza)
}

// ErrOtherWAL is that the archive has a file of WAL of that name already, with another content.
var ErrOtherWAL = errors.New("the archive has another file of that name")

// Push archives a file of WAL that PostgreSQL does not know of any more. One that is there already is no error.
func (t *Tool) Push(ctx context.Context, name, stanza, path string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, pushBound, fmt.Errorf("the repository took no WAL for %s", pushBound))
	defer cancel()
	_, err := t.run(ctx, name, "--stanza="+stanza, "--no-archive-async", "archive-push", path)
	if err != nil && strings.Contains(err.Error(), "different checksum") {
		return fmt.Errorf("%w: %w", ErrOtherWAL, err)
	}
	return err
}

// EndPushes ends what the archiver does just now: it may wait for a repository that does not answer.
func (t *Tool) EndPushes() {
	found, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range found {
		content, err := os.ReadFile(path)
		if err != nil {
			continue // it is gone
		}
		arguments := strings.Split(string(content), "\x00")
		if arguments[0] != t.Program || !slices.ContainsFunc(arguments, func(a string) bool { return strings.HasPrefix(a, "--config="+t.Work) }) ||
			!slices.ContainsFunc(arguments, func(a string) bool { return strings.HasPrefix(a, "archive-push") }) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			_ = syscall.Kill(pid, syscall.SIGTERM)
		}
	}
}

// RestoreCommand is PostgreSQL's restore_command for the data in that folder. pgBackRest ends with 1 if the repository has no such file,
// which PostgreSQL takes for the end of the WAL. Anything else is a repository that does not answer: that is tried again for some minutes,
// and then ends the recovery, as status 126 does; to PostgreSQL any lower one would be the end of the WAL too, and data be missing unseen
// (https://www.postgresql.org/docs/current/runtime-config-wal.html#GUC-RESTORE-COMMAND). It fetches one file after the other: fetching ahead has
// a race in pgBackRest (pgbackrest/pgbackrest#2423), and an old one's "no such file" may be a stale note of it.
func (t *Tool) RestoreCommand(name, stanza, folder string) string {
	get := fmt.Sprintf(`%s --config=%s --stanza=%s --pg1-path=%s --no-archive-async archive-get "%%f" "%%p"`, t.Program, t.Configuration(name), stanza, folder)
	return fmt.Sprintf(`for pause in 1 2 5 10 20 30 60 0; do %s; result=$?; test $result -le 1 && exit $result; sleep $pause; done; exit 126`, get)
}

// CreateStanza makes the stanza in the repository, if it is not there.
func (t *Tool) CreateStanza(ctx context.Context, name, stanza string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stanzaBound, fmt.Errorf("the repository gave no answer for %s", stanzaBound))
	defer cancel()
	_, err := t.run(ctx, name, "--stanza="+stanza, "stanza-create")
	return err
}

// Info is what the repository has.
func (t *Tool) Info(ctx context.Context, name string, stanza string) ([]backup.Contents, error) {
	args := []string{"info", "--output=json"}
	if stanza != "" {
		args = append(args, "--stanza="+stanza)
	}
	output, err := t.bounded(ctx, name, args...)
	if err != nil {
		return nil, err
	}
	return parseInfo(output)
}

var engineTypes = map[backup.Type]string{backup.Full: "full", backup.Differential: "diff", backup.Incremental: "incr"}

// Backup makes a backup. note is noted with it.
func (t *Tool) Backup(ctx context.Context, name, stanza string, kind backup.Type, note string) error {
	args := []string{"--stanza=" + stanza, "--type=" + engineTypes[kind]}
	if note != "" {
		args = append(args, "--annotation="+annotationKey+"="+note)
	}
	_, err := t.run(ctx, name, append(args, "backup")...)
	return err
}

// Expire removes all but the newest full backups, of that number, with what needs them, and the WAL that none of them needs.
func (t *Tool) Expire(ctx context.Context, name, stanza string, keepFull int) error {
	ctx, cancel := context.WithTimeout(ctx, expireBound)
	defer cancel()
	_, err := t.run(ctx, name, "--stanza="+stanza, "--repo1-retention-full-type=count", "--repo1-retention-full="+strconv.Itoa(keepFull), "expire")
	return err
}

// DeleteStanza removes a stanza whose PostgreSQL system is none of the present, with all that it has.
func (t *Tool) DeleteStanza(ctx context.Context, name, stanza string) error {
	ctx, cancel := context.WithTimeout(ctx, expireBound)
	defer cancel()
	// pgBackRest wants it to be stopped, and a folder of data whose server does not run.
	if _, err := t.run(ctx, name, "--stanza="+stanza, "stop"); err != nil {
		return err
	}
	_, err := t.run(ctx, name, "--stanza="+stanza, "--pg1-path=/nonexistent", "--force", "stanza-delete")
	if err != nil { // what is left of it is to be read, and to be removed another time
		_, startErr := t.run(context.WithoutCancel(ctx), name, "--stanza="+stanza, "start")
		err = errors.Join(err, startErr)
	}
	return err
}

// Remove removes the backup of that label, and all that need it, and the WAL from before the oldest of the full backups that are left,
// which is their number: pgBackRest looks after WAL whenever it removes something.
func (t *Tool) Remove(ctx context.Context, name, stanza, label string, fullLeft int) error {
	ctx, cancel := context.WithTimeout(ctx, expireBound)
	defer cancel()
	_, err := t.run(ctx, name, "--stanza="+stanza, "--set="+label, "--repo1-retention-full-type=count", "--repo1-retention-full="+strconv.Itoa(max(fullLeft, 1)), "expire")
	return err
}

// Restore puts the backup into the empty folder.
func (t *Tool) Restore(ctx context.Context, name string, from backup.Source, folder string) error {
	_, err := t.run(ctx, name, "--stanza="+from.Stanza, "--set="+from.Backup.Label, "--pg1-path="+folder, "--type=none", "restore")
	return err
}

// Serve lets other hosts use this one until the context ends.
func (t *Tool) Serve(ctx context.Context, name string, started func(reload func())) error {
	cmd := t.command(ctx, name, "server")
	var output tail
	cmd.Stderr = &output
	if err := t.Children.Start(cmd); err != nil {
		return fmt.Errorf("starting pgbackrest server: %w", err)
	}
	process := cmd.Process
	started(func() { _ = process.Signal(syscall.SIGHUP) })
	if err := t.Children.Wait(cmd); ctx.Err() == nil {
		return fmt.Errorf("pgbackrest server ended: %w: %s", err, complaint(output.text))
	}
	return context.Cause(ctx)
}

func (t *Tool) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := t.Children.Command(ctx, t.Program, append([]string{"--config=" + t.Configuration(name)}, args...)...)
	cmd.Dir = t.Work
	// An option in the environment would be stronger than the file; the server's clients must find nothing but its socket.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "PGBACKREST_") || strings.HasPrefix(variable, "PG") && !strings.HasPrefix(variable, "PGSTEWARD_")
	})
	cmd.Env = append(cmd.Env, "LC_ALL=C.UTF-8", "LANG=C.UTF-8")
	return cmd
}

// run runs a command; its error has what it complained of.
func (t *Tool) run(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := t.command(ctx, name, args...)
	var output bytes.Buffer
	var said tail
	cmd.Stdout, cmd.Stderr = &output, &said
	if err := t.Children.Run(cmd); err != nil {
		what := args[len(args)-1]
		for _, command := range []string{"info", "repo-ls", "repo-get"} {
			if slices.Contains(args, command) {
				what = command
			}
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("pgbackrest %s: %w", what, context.Cause(ctx))
		}
		return nil, fmt.Errorf("pgbackrest %s: %s", what, complaint(said.text))
	}
	return output.Bytes(), nil
}

// tail keeps the end of what is written.
type tail struct{ text []byte }

const tailBytes = 16 << 10

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if extra := len(t.text) - tailBytes; extra > 0 {
		t.text = t.text[extra:]
	}
	return len(p), nil
}

var (
	errorPattern = regexp.MustCompile(`(?s)ERROR: (?:\[\d+\]: )?(.*)`)
	// warnPattern is what pgBackRest says of a host that it cannot use, and of others it could do without.
	warnPattern = regexp.MustCompile(`(?s)WARN: (unable to check .*?)(?:\n *(?:WARN|ERROR|INFO)|$)`)
)

const complaintBytes = 600

// complaint is the error in what pgBackRest said, on one line.
func complaint(said []byte) string {
	text := string(said)
	if match := errorPattern.FindStringSubmatch(text); match != nil {
		warned := warnPattern.FindStringSubmatch(text)
		text = match[1]
		if warned != nil {
			text += ": " + warned[1]
		}
	}
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > complaintBytes {
		text = strings.ToValidUTF8(text[:complaintBytes], "") + " …"
	}
	switch {
	case text == "":
		return "it gave no reason"
	case strings.Contains(text, "requires option: repo1-azure-key"): // which is left out only then
		return text + ": the image's pgBackRest knows no keyType auto for azure, which came with 2.58"
	}
	return text
}

// ArchiveError is why WAL was not archived last, as the spool has it; empty if it says nothing.
func (t *Tool) ArchiveError(stanza string) string {
	files, err := filepath.Glob(filepath.Join(t.Work, "spool", "archive", stanza, "out", "*.error"))
	if err != nil || len(files) == 0 {
		return ""
	}
	content, err := os.ReadFile(files[0])
	if err != nil {
		return ""
	}
	_, message, _ := strings.Cut(string(content), "\n") // the first line is a code
	return complaint([]byte(message))
}
