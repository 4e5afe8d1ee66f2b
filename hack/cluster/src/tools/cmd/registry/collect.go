package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// references is what an image or an index names.
type references struct {
	Config    struct{ Digest string }
	Layers    []struct{ Digest string }
	Manifests []struct{ Digest string }
}

// uploading is how long a blob may wait for the manifest that needs it.
const uploading = time.Hour

// collect removes the manifests that were last used before a time, and the blobs that none of the others needs. It runs
// before the registry serves, so that nothing is half-way in. Images of an index are kept with the index.
func collect(dir string, before time.Time) error {
	manifests := filepath.Join(dir, "manifests")
	files, err := filepath.Glob(filepath.Join(manifests, "*"))
	if err != nil {
		return err
	}
	all, err := readManifests(manifests)
	if err != nil {
		return err
	}
	indexed := map[string]bool{}
	for _, m := range all {
		for _, image := range m.references().Manifests {
			indexed[image.Digest] = true
		}
	}
	named := map[string]manifest{}
	s := store{dir: manifests}
	for _, m := range all {
		named[s.file(m.Path)] = m
	}
	needed := map[string]bool{}
	for _, file := range files {
		m, known := named[file]
		reference := m.Path[strings.LastIndex(m.Path, "/")+1:]
		if info, err := os.Stat(file); err == nil && info.ModTime().Before(before) && (!known || !indexed[reference]) {
			if err := os.Remove(file); err != nil {
				return err
			}
			continue
		}
		r := m.references()
		needed[r.Config.Digest] = true
		for _, layer := range r.Layers {
			needed[layer.Digest] = true
		}
	}
	return removeBlobs(filepath.Join(dir, "sha256"), needed)
}

func (m manifest) references() references {
	var r references
	_ = json.Unmarshal(m.Body, &r) // what is no manifest needs nothing
	return r
}

func removeBlobs(dir string, needed map[string]bool) error {
	blobs, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil
	} else if err != nil {
		return err
	}
	for _, blob := range blobs {
		info, err := blob.Info()
		if err != nil || needed["sha256:"+blob.Name()] || time.Since(info.ModTime()) < uploading {
			continue
		}
		if err := os.Remove(filepath.Join(dir, blob.Name())); err != nil {
			return err
		}
	}
	return nil
}
