package carry

import (
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// image is the root of an image's files. Links in it mean paths of the image, also where it lies below another root.
type image string

// path is where a path of the image is.
func (i image) path(name string) string { return filepath.Join(string(i), name) }

// linksAtMost bounds how many links are followed.
const linksAtMost = 40

// resolve follows links to the path of a file of the image that is none.
func (i image) resolve(name string) (string, error) {
	rest := strings.Split(path.Clean("/"+name), "/")
	done := "/"
	for links := 0; len(rest) > 0; {
		next := path.Join(done, rest[0])
		rest = rest[1:]
		info, err := os.Lstat(i.path(next))
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			done = next
			continue
		}
		if links++; links > linksAtMost {
			return "", fmt.Errorf("too many links: %s", name)
		}
		target, err := os.Readlink(i.path(next))
		if err != nil {
			return "", err
		}
		if !path.IsAbs(target) {
			target = path.Join(done, target)
		}
		rest, done = append(strings.Split(path.Clean(target), "/"), rest...), "/"
	}
	return done, nil
}

// find is the first of the folders that has a file of that name; what is for people.
func (i image) find(what, name string, folders ...string) (string, error) {
	for _, folder := range folders {
		folder = path.Clean(folder)
		if _, err := i.resolve(path.Join(folder, name)); err == nil {
			return folder, nil
		}
	}
	return "", &missingError{what: what + " in any of " + strings.Join(folders, ", ")}
}

// needs are what a program or library needs to be loaded.
type needs struct {
	libraries []string
	folders   []string
	loader    string
}

func (c *copier) needs(name string) (needs, error) {
	file, err := elf.Open(c.image.path(name))
	if err != nil {
		return needs{}, err
	}
	defer func() { _ = file.Close() }()
	var found needs
	if found.libraries, err = file.ImportedLibraries(); err != nil {
		return needs{}, err
	}
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
		texts, err := file.DynString(tag)
		if err != nil {
			return needs{}, err
		}
		for _, text := range texts {
			for folder := range strings.SplitSeq(text, ":") {
				folder = strings.NewReplacer("$ORIGIN", path.Dir(name), "${ORIGIN}", path.Dir(name)).Replace(folder)
				found.folders = append(found.folders, folder)
			}
		}
	}
	for _, program := range file.Progs {
		if program.Type == elf.PT_INTERP {
			text := make([]byte, program.Filesz)
			if _, err := program.ReadAt(text, 0); err != nil {
				return needs{}, err
			}
			found.loader = strings.TrimRight(string(text), "\x00")
		}
	}
	return found, nil
}

// nameService is loaded by C libraries before 2.34 to look up users, without being named anywhere.
const nameService = "libnss_files.so.2"

// carry copies the libraries that a file needs, and those that they need. One that the image does not have is left out: PostgreSQL has
// modules whose libraries are no part of its packages.
func (c *copier) carry(name string, of needs) error {
	wanted := of.libraries
	if of.loader != "" {
		wanted = append(wanted, of.loader, nameService)
	}
	for _, library := range wanted {
		base := path.Base(library)
		if c.libraries[base] {
			continue
		}
		c.libraries[base] = true
		source, err := c.library(library, of.folders)
		if err != nil {
			continue
		}
		if err := c.file(source, filepath.Join(c.To, libFolder, base), 0o755); err != nil {
			return fmt.Errorf("carrying over %s, which %s needs: %w", library, name, err)
		}
		if more, err := c.needs(source); err == nil {
			more.folders = append(more.folders, of.folders...)
			if err := c.carry(source, more); err != nil {
				return err
			}
		}
	}
	return nil
}

// library is the path of a library in the image.
func (c *copier) library(name string, folders []string) (string, error) {
	if path.IsAbs(name) {
		return c.image.resolve(name)
	}
	for _, folder := range append(folders, c.folders()...) {
		if found, err := c.image.resolve(path.Join(folder, name)); err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, fs.ErrNotExist)
}

// folders are where the loader looks by itself.
func (c *copier) folders() []string {
	found := []string{
		"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
		"/lib64", "/usr/lib64", "/usr/local/lib", "/lib", "/usr/lib",
	}
	files, _ := filepath.Glob(c.image.path("/etc/ld.so.conf.d/*.conf"))
	for _, name := range append(files, c.image.path("/etc/ld.so.conf")) {
		content, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(content)) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "/") {
				found = append(found, line)
			}
		}
	}
	return found
}
