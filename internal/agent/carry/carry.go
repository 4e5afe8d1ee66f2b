package carry

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Needed are the programs that a major upgrade needs of the old image
// (https://www.postgresql.org/docs/current/pgupgrade.html; its sources check for these).
var Needed = []string{"postgres", "pg_ctl", "pg_controldata", "pg_resetwal"}

const (
	manifestFile = "carried.json"
	rootFolder   = "root"
	libFolder    = "lib"
	realSuffix   = ".carried"
)

// Options are what to copy, and where.
type Options struct {
	// Root is the root of the image's files; "/" in a container. Major is PostgreSQL's.
	Root  string
	Major int
	// To is the folder to copy to: the same path in both containers.
	To string
	// All copies all programs, not only those that are Needed.
	All bool
}

// Manifest says what was copied.
type Manifest struct {
	Major int `json:"major"`
	// Bin is the folder of the programs, relative to the folder that was copied to.
	Bin string `json:"bin,omitempty"`
	// Programs are those that are there, Missing those of Needed that the image does not have.
	Programs []string `json:"programs,omitempty"`
	Missing  []string `json:"missing,omitempty"`
	// Problem is why nothing could be copied.
	Problem string `json:"problem,omitempty"`
}

// Program is the path of a program below the folder; empty if it is not there.
func (m Manifest) Program(folder, name string) string {
	if !slices.Contains(m.Programs, name) {
		return ""
	}
	return filepath.Join(folder, m.Bin, name)
}

// Read is the manifest of what was copied to the folder; nil if nothing was.
func Read(folder string) (*Manifest, error) {
	content, err := os.ReadFile(filepath.Join(folder, manifestFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading what was carried over: %w", err)
	}
	manifest := &Manifest{}
	if err := json.Unmarshal(content, manifest); err != nil {
		return nil, fmt.Errorf("reading what was carried over: %w", err)
	}
	return manifest, nil
}

// Copy copies. What the image lacks is in the manifest, and no error: the upgrade copies tables then, and says why.
func Copy(options Options) (Manifest, error) {
	if err := os.Remove(filepath.Join(options.To, manifestFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return Manifest{}, fmt.Errorf("carrying over: %w", err)
	}
	c := &copier{Options: options, image: image(options.Root), libraries: map[string]bool{}}
	manifest := Manifest{Major: options.Major}
	if err := c.copy(&manifest); err != nil {
		var missing *missingError
		if !errors.As(err, &missing) {
			return Manifest{}, err
		}
		manifest = Manifest{Major: options.Major, Missing: Needed, Problem: missing.Error()}
	}
	content, err := json.Marshal(manifest)
	if err != nil {
		return Manifest{}, fmt.Errorf("carrying over: %w", err)
	}
	if err := os.WriteFile(filepath.Join(options.To, manifestFile), content, 0o644); err != nil { //nolint:gosec // read by another user
		return Manifest{}, fmt.Errorf("carrying over: %w", err)
	}
	return manifest, nil
}

// missingError is that the image does not have what is looked for.
type missingError struct{ what string }

// Error implements error.
func (e *missingError) Error() string { return "the image has no " + e.what }

type copier struct {
	Options
	image image
	// libraries are those that were copied, by name.
	libraries map[string]bool
}

func (c *copier) copy(manifest *Manifest) error {
	bin, err := c.image.find("program postgres", "postgres", c.binFolders()...)
	if err != nil {
		return err
	}
	share, err := c.image.find("postgres.bki", "postgres.bki",
		fmt.Sprintf("/usr/share/postgresql/%d", c.Major), bin+"/../share/postgresql", bin+"/../share")
	if err != nil {
		return err
	}
	lib, err := c.image.find("plpgsql.so", "plpgsql.so", bin+"/../lib", bin+"/../lib/postgresql", bin+"/../lib64/postgresql")
	if err != nil {
		return err
	}
	manifest.Bin = filepath.Join(rootFolder, bin)
	for _, name := range c.programs(bin) {
		switch err := c.program(bin, name); {
		case err == nil:
			manifest.Programs = append(manifest.Programs, name)
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("carrying over %s: %w", name, err)
		}
	}
	for _, name := range Needed {
		if !slices.Contains(manifest.Programs, name) {
			manifest.Missing = append(manifest.Missing, name)
		}
	}
	if err := c.tree(share, func(string) bool { return true }); err != nil {
		return err
	}
	return c.tree(lib, isModule)
}

// isModule leaves out what is for compiling, and just-in-time compilation, which needs all of LLVM.
func isModule(name string) bool {
	return strings.Contains(name, ".so") && !strings.HasPrefix(name, "llvmjit")
}

// binFolders are where the programs of the major may be.
func (c *copier) binFolders() []string {
	folders := []string{
		fmt.Sprintf("/usr/lib/postgresql/%d/bin", c.Major), fmt.Sprintf("/usr/pgsql-%d/bin", c.Major),
		"/usr/local/bin", "/usr/local/pgsql/bin", "/opt/bitnami/postgresql/bin",
	}
	if c.Root == "/" {
		folders = append(folders, filepath.SplitList(os.Getenv("PATH"))...)
	}
	return append(folders, "/usr/bin")
}

func (c *copier) programs(bin string) []string {
	if !c.All {
		return Needed
	}
	var names []string
	entries, _ := os.ReadDir(c.image.path(bin))
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// program copies a program under another name, and puts in its place a script that runs it with its own libraries.
func (c *copier) program(bin, name string) error {
	source, err := c.image.resolve(filepath.Join(bin, name))
	if err != nil {
		return err
	}
	target := filepath.Join(c.To, rootFolder, bin, name)
	needs, err := c.needs(source)
	if err != nil {
		return c.file(source, target, 0o755) // a script of the image
	}
	if err := c.carry(source, needs); err != nil {
		return err
	}
	if needs.loader == "" {
		return c.file(source, target, 0o755)
	}
	if err := c.file(source, target+realSuffix, 0o755); err != nil {
		return err
	}
	script := fmt.Sprintf("#!/bin/sh\nexec %s --library-path %s --argv0 \"$0\" %s \"$@\"\n",
		quote(filepath.Join(c.To, libFolder, filepath.Base(needs.loader))), quote(filepath.Join(c.To, libFolder)), quote(target+realSuffix))
	return os.WriteFile(target, []byte(script), 0o755) //nolint:gosec // a program
}

func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// tree copies the regular files below a folder whose names are wanted, and the libraries that they need.
func (c *copier) tree(folder string, wanted func(name string) bool) error {
	resolved, err := c.image.resolve(folder)
	if err != nil {
		return fmt.Errorf("carrying over %s: %w", folder, err)
	}
	base := c.image.path(resolved)
	err = filepath.WalkDir(base, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative := strings.TrimPrefix(path, base)
		if entry.IsDir() {
			if entry.Name() == "bitcode" || entry.Name() == "pgxs" || entry.Name() == "man" || entry.Name() == "pkgconfig" {
				return filepath.SkipDir
			}
			return nil
		}
		if !wanted(entry.Name()) {
			return nil
		}
		source, err := c.image.resolve(filepath.Join(resolved, relative))
		if err != nil {
			return nil //nolint:nilerr // a link to nowhere
		}
		info, err := os.Stat(c.image.path(source))
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		if err := c.file(source, filepath.Join(c.To, rootFolder, folder, relative), 0o644); err != nil {
			return err
		}
		if strings.Contains(entry.Name(), ".so") {
			if needs, err := c.needs(source); err == nil {
				return c.carry(source, needs)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("carrying over %s: %w", folder, err)
	}
	return nil
}

// file copies one file of the image.
func (c *copier) file(source, target string, mode fs.FileMode) error {
	from, err := os.Open(c.image.path(source))
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil { //nolint:gosec // read by another user
		return err
	}
	to, err := os.OpenFile(target, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, errCopy := io.Copy(to, from)
	return errors.Join(errCopy, to.Chmod(mode), to.Close())
}
