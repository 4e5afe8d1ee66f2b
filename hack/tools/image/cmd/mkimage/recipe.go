package main

import (
	"fmt"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// recipe says what an image is made of.
type recipe struct {
	base  string   // tarball of the image to start from; scratch if empty
	tars  []string // one layer each, in this order
	files []string // SRC=DST
	links []string // NAME=TARGET
	dirs  []string // DIR[=MODE]

	arch, user, workdir string
	entrypoint, cmd     []string
	env, labels         []string // NAME=VALUE
}

// image assembles it: base, layers, configuration.
func (r recipe) image() (v1.Image, error) {
	img, err := r.start()
	if err != nil {
		return nil, err
	}
	layers, err := r.layers()
	if err != nil {
		return nil, err
	}
	if img, err = mutate.AppendLayers(img, layers...); err != nil {
		return nil, err
	}
	return r.configure(img)
}

func (r recipe) start() (v1.Image, error) {
	if r.base == "" {
		return empty.Image, nil
	}
	img, err := tarball.ImageFromPath(r.base, nil)
	if err != nil {
		return nil, fmt.Errorf("base image: %w", err)
	}
	return img, nil
}

// layers returns the layers of the tar files and, last, the one of the single files.
func (r recipe) layers() ([]v1.Layer, error) {
	var layers []v1.Layer
	for _, file := range r.tars {
		layer, err := tarball.LayerFromFile(file, tarball.WithCompressedCaching)
		if err != nil {
			return nil, fmt.Errorf("layer %s: %w", file, err)
		}
		layers = append(layers, layer)
	}
	entries, err := r.entries()
	if err != nil || len(entries) == 0 {
		return layers, err
	}
	layer, err := fileLayer(entries)
	if err != nil {
		return nil, err
	}
	return append(layers, layer), nil
}

// configure sets what a container is started with; what the recipe does not name stays as the base has it.
func (r recipe) configure(img v1.Image) (v1.Image, error) {
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", r.arch
	c := &file.Config
	if len(r.entrypoint) > 0 {
		// A new entry point makes the base's command meaningless, as in a Dockerfile.
		c.Entrypoint, c.Cmd = r.entrypoint, nil
	}
	if len(r.cmd) > 0 {
		c.Cmd = r.cmd
	}
	if r.user != "" {
		c.User = r.user
	}
	if r.workdir != "" {
		c.WorkingDir = r.workdir
	}
	if c.Env, err = mergeEnv(c.Env, r.env); err != nil {
		return nil, err
	}
	if c.Labels, err = mergeLabels(c.Labels, r.labels); err != nil {
		return nil, err
	}
	return mutate.ConfigFile(img, file)
}

// mergeEnv sets variables in an environment, in place where it has them already.
func mergeEnv(env, settings []string) ([]string, error) {
	env = slices.Clone(env)
	for _, s := range settings {
		key, _, ok := strings.Cut(s, "=")
		if !ok {
			return nil, fmt.Errorf("-env %q: want NAME=VALUE", s)
		}
		at := slices.IndexFunc(env, func(have string) bool { return strings.HasPrefix(have, key+"=") })
		if at < 0 {
			env = append(env, s)
		} else {
			env[at] = s
		}
	}
	return env, nil
}

func mergeLabels(labels map[string]string, settings []string) (map[string]string, error) {
	for _, s := range settings {
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, fmt.Errorf("-label %q: want NAME=VALUE", s)
		}
		if labels == nil {
			labels = map[string]string{}
		}
		labels[key] = value
	}
	return labels, nil
}
