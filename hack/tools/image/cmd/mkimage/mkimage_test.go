package main

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

func write(t *testing.T, content string, mode os.FileMode) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	return file
}

func build(t *testing.T, args ...string) v1.Image {
	t.Helper()
	o, err := parse(args)
	if err != nil {
		t.Fatal(err)
	}
	img, err := o.recipe.image()
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func digest(t *testing.T, img v1.Image) string {
	t.Helper()
	d, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

// content returns the headers of the files in the image.
func content(t *testing.T, img v1.Image) []tar.Header {
	t.Helper()
	files := mutate.Extract(img)
	defer files.Close()
	var headers []tar.Header
	for r := tar.NewReader(files); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return headers
		}
		if err != nil {
			t.Fatal(err)
		}
		headers = append(headers, *h)
	}
}

func TestSameInputSameDigest(t *testing.T) {
	one, two := write(t, "x", 0o755), write(t, "x", 0o755)
	if err := os.Chtimes(two, epoch, epoch); err != nil {
		t.Fatal(err)
	}
	a := build(t, "-add", one+"=/bin/x", "-add", one+"=/a", "-label", "l=1", "-label", "m=2")
	b := build(t, "-label", "m=2", "-add", two+"=a", "-label", "l=1", "-add", two+"=bin/x")
	if digest(t, a) != digest(t, b) {
		t.Error("order of flags or time of a file changed the digest")
	}
	if digest(t, a) == digest(t, build(t, "-add", one+"=/bin/x")) {
		t.Error("different content, same digest")
	}
}

func TestFileLayer(t *testing.T) {
	img := build(t, "-add", write(t, "hello", 0o644)+"=/etc/motd", "-link", "/bin/sh=/busybox", "-mkdir", "/tmp=1777", "-mkdir", "/tmp/in")
	var got []string
	for _, h := range content(t, img) {
		got = append(got, h.FileInfo().Mode().String()+" "+h.Name)
		if h.Uid != 0 || h.Gid != 0 || !h.ModTime.Equal(epoch) {
			t.Errorf("%s: owner or time is not fixed", h.Name)
		}
	}
	want := []string{"drwxr-xr-x bin", "Lrwxrwxrwx bin/sh", "drwxr-xr-x etc", "-rw-r--r-- etc/motd", "dtrwxrwxrwx tmp", "drwxr-xr-x tmp/in"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestConfiguration(t *testing.T) {
	tag, err := name.NewTag("127.0.0.1:5000/base:1")
	if err != nil {
		t.Fatal(err)
	}
	base := filepath.Join(t.TempDir(), "base.tar")
	first := build(t, "-add", write(t, "b", 0o644)+"=/b", "-env", "PATH=/bin", "-env", "A=1", "-cmd", "old", "-user", "1:1", "-label", "l=1")
	if err := writeTarball(base, tag, first); err != nil {
		t.Fatal(err)
	}
	img := build(t, "-base", base, "-env", "PATH=/usr/bin", "-entrypoint", "/x", "-label", "m=2", "-workdir", "/w")
	file, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := file.Config
	if !slices.Equal(c.Env, []string{"PATH=/usr/bin", "A=1"}) || c.User != "1:1" || c.WorkingDir != "/w" ||
		!slices.Equal(c.Entrypoint, []string{"/x"}) || c.Cmd != nil || c.Labels["l"] != "1" || c.Labels["m"] != "2" {
		t.Errorf("configuration: %+v", c)
	}
	if file.OS != "linux" || file.Architecture != "amd64" || len(file.RootFS.DiffIDs) != 1 {
		t.Errorf("platform or layers: %s/%s, %d layers", file.OS, file.Architecture, len(file.RootFS.DiffIDs))
	}
}

func TestBadInput(t *testing.T) {
	for _, args := range [][]string{
		{"-push"}, {"-o", "x.tar"}, {"stray"},
		{"-add", "nothing"}, {"-add", "/does/not/exist=/x"}, {"-add", "/tmp=/x"}, {"-link", "x"}, {"-mkdir", "x=9"},
		{"-tar", "/does/not/exist"}, {"-base", "/does/not/exist"}, {"-env", "x"}, {"-label", "x"},
	} {
		o, err := parse(args)
		if err == nil {
			_, err = o.recipe.image()
		}
		if err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}
