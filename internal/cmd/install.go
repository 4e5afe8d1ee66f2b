package cmd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pgsteward/pgsteward/internal/naming"
)

// installCommand runs in the init container of an instance's Pod, in the operator's image.
func installCommand() *cobra.Command {
	target := naming.PathProgram
	command := &cobra.Command{
		Use:   "install",
		Short: "Copies the agent into an instance's Pod (in its init container)",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			executable, err := os.Executable()
			if err != nil {
				return fmt.Errorf("finding this program: %w", err)
			}
			return install(executable, target)
		},
	}
	command.Flags().StringVar(&target, "target", target, "the folder to copy to")
	return command
}

// install copies the program and writes a passwd file in which the Pod's user, whatever its number is, has the name postgres:
// initdb and peer authentication look it up.
func install(executable, target string) error {
	if err := copyFile(executable, filepath.Join(target, filepath.Base(naming.PathAgentBinary)), 0o755); err != nil {
		return err
	}
	lines := []string{
		"root:x:0:0:root:/root:/sbin/nologin",
		"nobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin",
		fmt.Sprintf("postgres:x:%d:%d:PostgreSQL:%s:/bin/sh", os.Getuid(), os.Getgid(), naming.PathData),
	}
	path := filepath.Join(target, naming.FilePasswd)
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil { //nolint:gosec // everybody reads passwd
		return fmt.Errorf("writing the passwd file: %w", err)
	}
	return nil
}

// copyFile copies by way of another name, so that a container that was killed in the middle leaves no half of a program.
func copyFile(from, to string, mode os.FileMode) error {
	source, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copying the agent: %w", err)
	}
	defer func() { _ = source.Close() }()
	temporary := to + ".new"
	target, err := os.OpenFile(temporary, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return fmt.Errorf("copying the agent: %w", err)
	}
	_, errCopy := io.Copy(target, source)
	if err := errors.Join(errCopy, target.Chmod(mode), target.Close()); err != nil {
		return fmt.Errorf("copying the agent: %w", err)
	}
	if err := os.Rename(temporary, to); err != nil {
		return fmt.Errorf("copying the agent: %w", err)
	}
	return nil
}
