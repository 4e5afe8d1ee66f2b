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
	Version    postgres.Version
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
	cmd := children.Command(ctx, programs.Postgres, "--version")
	var output tail
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := children.Run(cmd); err != nil {
		return Programs{}, fmt.Errorf("running %s --version: %w: %s", programs.Postgres, err, output.String())
	}
	version, err := postgres.ParseVersion(output.String())
	if err != nil {
		return Programs{}, err
	}
	programs.Version = version
	return programs, nil
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
