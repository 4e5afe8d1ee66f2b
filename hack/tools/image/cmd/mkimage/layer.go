package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// epoch is the time of every file we write: the same content must give the same digest on every day.
var epoch = time.Unix(0, 0)

// entry is one thing in a layer; what it is, the type in the header says.
type entry struct {
	header tar.Header
	source string // the file on disk with the content of a regular file
}

// entries reads the single files, links and directories of the recipe, with the directories that lead
// to them, sorted by path so that a directory comes before what is in it.
func (r recipe) entries() ([]entry, error) {
	byPath := map[string]entry{}
	put := func(e entry) {
		for dir := path.Dir(e.header.Name); dir != "."; dir = path.Dir(dir) {
			if _, ok := byPath[dir]; !ok {
				byPath[dir] = directory(dir, 0o755)
			}
		}
		byPath[strings.TrimSuffix(e.header.Name, "/")] = e
	}
	for _, read := range []struct {
		args  []string
		parse func(string) (entry, error)
	}{
		{r.dirs, parseDir}, {r.files, parseFile}, {r.links, parseLink},
	} {
		for _, arg := range read.args {
			e, err := read.parse(arg)
			if err != nil {
				return nil, err
			}
			put(e)
		}
	}
	var sorted []entry
	for _, p := range slices.Sorted(maps.Keys(byPath)) {
		sorted = append(sorted, byPath[p])
	}
	return sorted, nil
}

func directory(dir string, mode int64) entry {
	return entry{header: tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: mode}}
}

// parseDir reads DIR[=MODE].
func parseDir(arg string) (entry, error) {
	dir, octal, given := strings.Cut(arg, "=")
	mode := int64(0o755)
	if given {
		var err error
		if mode, err = strconv.ParseInt(octal, 8, 16); err != nil {
			return entry{}, fmt.Errorf("-mkdir %q: %q is not an octal mode", arg, octal)
		}
	}
	return directory(inImage(dir), mode), nil
}

// parseFile reads SRC=DST.
func parseFile(arg string) (entry, error) {
	src, dst, ok := strings.Cut(arg, "=")
	if !ok || dst == "" {
		return entry{}, fmt.Errorf("-add %q: want SRC=DST", arg)
	}
	info, err := os.Stat(src)
	if err != nil {
		return entry{}, err
	}
	if !info.Mode().IsRegular() {
		return entry{}, fmt.Errorf("-add %q: %s is not a file", arg, src)
	}
	return entry{source: src, header: tar.Header{
		Name: inImage(dst), Typeflag: tar.TypeReg, Mode: int64(info.Mode().Perm()), Size: info.Size(),
	}}, nil
}

// parseLink reads NAME=TARGET.
func parseLink(arg string) (entry, error) {
	link, target, ok := strings.Cut(arg, "=")
	if !ok || target == "" {
		return entry{}, fmt.Errorf("-link %q: want NAME=TARGET", arg)
	}
	return entry{header: tar.Header{Name: inImage(link), Typeflag: tar.TypeSymlink, Linkname: target, Mode: 0o777}}, nil
}

// inImage returns a path as layers have it: relative to the root, clean.
func inImage(p string) string { return strings.TrimPrefix(path.Clean("/"+p), "/") }

// fileLayer makes the layer in memory: its content is read several times (digest, tarball, push).
func fileLayer(entries []entry) (v1.Layer, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		if err := writeEntry(w, e); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	opener := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil }
	return tarball.LayerFromOpener(opener, tarball.WithCompressedCaching)
}

func writeEntry(w *tar.Writer, e entry) error {
	e.header.ModTime = epoch
	if err := w.WriteHeader(&e.header); err != nil || e.source == "" {
		return err
	}
	f, err := os.Open(e.source)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}
