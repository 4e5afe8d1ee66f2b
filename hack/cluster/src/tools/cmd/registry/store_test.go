package main

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/google/go-containerregistry/pkg/registry"
)

// serve starts a registry on dir and returns its host and port, and a function that ends it.
func serve(t *testing.T, dir string) (string, func()) {
	t.Helper()
	manifests := filepath.Join(dir, "manifests")
	if err := os.MkdirAll(manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	s := &store{dir: manifests, next: registry.New(registry.WithBlobHandler(registry.NewDiskBlobHandler(dir)))}
	if err := s.replay(); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.Handler(s))
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host, server.Close
}

func tag(t *testing.T, s string) name.Tag {
	t.Helper()
	ref, err := name.NewTag(s)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func TestImagesSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	host, stop := serve(t, dir)
	image, err := random.Image(1024, 2)
	if err != nil {
		t.Fatal(err)
	}
	index, err := random.Index(1024, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(tag(t, host+"/image:1"), image); err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(tag(t, host+"/index:1"), index); err != nil {
		t.Fatal(err)
	}
	stop()

	host, stop = serve(t, dir)
	defer stop()
	got, err := remote.Image(tag(t, host+"/image:1"))
	if err != nil {
		t.Fatal(err)
	}
	requireSame(t, image, got)
	if _, err := got.Layers(); err != nil {
		t.Fatal(err)
	}
	gotIndex, err := remote.Index(tag(t, host+"/index:1"))
	if err != nil {
		t.Fatal(err)
	}
	requireSame(t, index, gotIndex)
}

func TestCollectForgetsWhatNobodyAskedFor(t *testing.T) {
	dir := t.TempDir()
	host, stop := serve(t, dir)
	old, err := random.Image(1024, 1)
	if err != nil {
		t.Fatal(err)
	}
	recent, err := random.Image(1024, 1)
	if err != nil {
		t.Fatal(err)
	}
	for ref, image := range map[string]v1.Image{"/old:1": old, "/recent:1": recent} {
		if err := remote.Write(tag(t, host+ref), image); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	makeOld(t, filepath.Join(dir, "*", "*"))
	host, stop = serve(t, dir)
	if _, err := remote.Head(tag(t, host+"/recent:1")); err != nil { // asked for
		t.Fatal(err)
	}
	stop()

	if err := collect(dir, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	host, stop = serve(t, dir)
	defer stop()
	if _, err := remote.Head(tag(t, host+"/old:1")); err == nil {
		t.Error("the old image is still there")
	}
	got, err := remote.Image(tag(t, host+"/recent:1"))
	if err != nil {
		t.Fatal(err)
	}
	requireSame(t, recent, got)
	blobs, err := filepath.Glob(filepath.Join(dir, "sha256", "*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(blobs) != 2 {
		t.Errorf("%d blobs are left, want the configuration and the layer of one image", len(blobs))
	}
}

func makeOld(t *testing.T, pattern string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		then := time.Now().Add(-48 * time.Hour)
		if err := os.Chtimes(file, then, then); err != nil {
			t.Fatal(err)
		}
	}
}

func requireSame(t *testing.T, want, got interface{ Digest() (v1.Hash, error) }) {
	t.Helper()
	a, err := want.Digest()
	if err != nil {
		t.Fatal(err)
	}
	b, err := got.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if a != b {
		t.Fatalf("digest %s, want %s", b, a)
	}
}
