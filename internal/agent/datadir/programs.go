package datadir

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/pgsteward/pgsteward/internal/agent/supervise"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// Programs are the paths of PostgreSQL's programs in the image, and their version.
type Programs struct {
	Postgres   string
	InitDB     string
	BaseBackup string
	// Rewind is empty if the image has no pg_rewind of this version.
	Rewind  string
	Version postgres.Version
}

// FindPrograms looks for PostgreSQL's programs: first where distributions put those of the major, since PATH may have another
// major's (or Debian's wrappers, which choose by themselves), then on PATH.
func FindPrograms(ctx context.Context, children *supervise.Children, major int) (Programs, error) {
	var programs Programs
	for name, path := range map[string]*string{
		"postgres": &programs.Postgres, "initdb": &programs.InitDB, "pg_basebackup": &programs.BaseBackup,
	} {
		found, err := findProgram(name, major)
		if err != nil {
			return Programs{}, err
		}
		*path = found
	}
	var err error
	if programs.Version, err = versionOf(ctx, children, programs.Postgres); err != nil {
		return Programs{}, err
	}
	// An image may do without it, which costs a copy where a rewind would do.
	programs.Rewind = FindOptional(ctx, children, "pg_rewind", programs.Version.Major)
	return programs, nil
}

// FindOptional looks for a program that an image may do without. It is empty if there is none of that major: one of another would refuse
// the data.
func FindOptional(ctx context.Context, children *supervise.Children, name string, major int) string {
	path, err := findProgram(name, major)
	if err != nil {
		return ""
	}
	if version, err := versionOf(ctx, children, path); err != nil || version.Major != major {
		return ""
	}
	return path
}

// FindClient looks for a program that connects to a server, which may be of another major; empty: the image has none.
func FindClient(name string, major int) string {
	path, err := findProgram(name, major)
	if err != nil {
		return ""
	}
	return path
}

func versionOf(ctx context.Context, children *supervise.Children, program string) (postgres.Version, error) {
	cmd := children.Command(ctx, program, "--version")
	var output tail
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := children.Run(cmd); err != nil {
		return postgres.Version{}, fmt.Errorf("running %s --version: %w: %s", program, err, output.String())
	}
	return postgres.ParseVersion(output.String())
}

func findProgram(name string, major int) (string, error) {
	for _, directory := range []string{
		fmt.Sprintf("/usr/lib/postgresql/%d/bin", major),
		fmt.Sprintf("/usr/pgsql-%d/bin", major),
	} {
		if path := filepath.Join(directory, name); isExecutable(path) {
			return path, nil
		}
	}
	if path, err := exec.LookPath(name); err == nil {
		return filepath.Abs(path)
	}
	if path := filepath.Join("/usr/local/bin", name); isExecutable(path) {
		return path, nil
	}
	// An image of another major: its version is the better message.
	if others, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name); len(others) > 0 {
		return others[0], nil
	}
	return "", fmt.Errorf("the image has no program %s: neither on PATH nor in /usr/lib/postgresql/%d/bin", name, major)
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
