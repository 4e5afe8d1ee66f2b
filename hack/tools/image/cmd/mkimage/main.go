// Command mkimage makes a container image without a container engine: layers from tar files and one
// layer from single files, on nothing or on the image of a tarball. It writes a tarball (for "ctr images
// import" and "crane push") and pushes to a registry. The same input gives the same digest, always: times
// are fixed, entries are sorted, owners are root.
//
// It prints the image's digest, and nothing else, on standard output.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// options is the command line.
type options struct {
	tag    string
	out    string
	push   bool
	recipe recipe
}

func main() {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err == nil {
		err = run(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mkimage: "+err.Error())
		os.Exit(1)
	}
}

// words is a flag that may be repeated.
type words []string

func (w *words) String() string     { return strings.Join(*w, ",") }
func (w *words) Set(s string) error { *w = append(*w, s); return nil }

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("mkimage", flag.ContinueOnError)
	flags.StringVar(&o.tag, "tag", "", "the image's `NAME:TAG`, needed by -o and -push")
	flags.StringVar(&o.out, "o", "", "write a tarball to this `FILE`")
	flags.BoolVar(&o.push, "push", false, "push to the registry in the name (plain http on the loopback)")

	r := &o.recipe
	flags.StringVar(&r.base, "base", "", "start from the image in this tarball `FILE`, not from scratch")
	flags.StringVar(&r.user, "user", "", "`UID[:GID]` the image runs as")
	flags.StringVar(&r.workdir, "workdir", "", "working `DIR`ectory")
	flags.StringVar(&r.arch, "arch", "amd64", "architecture (GOARCH)")
	flags.Var((*words)(&r.tars), "tar", "a layer: a tar `FILE` (plain or gzip) with a root file system (repeat)")
	flags.Var((*words)(&r.files), "add", "`SRC=DST`, a file with its permission bits; all of them are one layer (repeat)")
	flags.Var((*words)(&r.links), "link", "`NAME=TARGET`, a symbolic link in the same layer (repeat)")
	flags.Var((*words)(&r.dirs), "mkdir", "`DIR[=MODE]`, a directory in the same layer, mode 755 if none is given (repeat)")
	flags.Var((*words)(&r.entrypoint), "entrypoint", "one `WORD` of the entry point (repeat)")
	flags.Var((*words)(&r.cmd), "cmd", "one `WORD` of the command (repeat)")
	flags.Var((*words)(&r.env), "env", "`NAME=VALUE` (repeat)")
	flags.Var((*words)(&r.labels), "label", "`NAME=VALUE` (repeat)")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("what is %q? everything is a flag", flags.Arg(0))
	}
	if o.tag == "" && (o.out != "" || o.push) {
		return o, errors.New("-o and -push need -tag")
	}
	return o, nil
}

func run(o options) error {
	img, err := o.recipe.image()
	if err != nil {
		return err
	}
	digest, err := img.Digest()
	if err != nil {
		return err
	}
	if o.tag != "" {
		if err := deliver(img, o); err != nil {
			return err
		}
	}
	fmt.Println(digest)
	return nil
}

// deliver writes the tarball and pushes, as asked.
func deliver(img v1.Image, o options) error {
	tag, err := name.NewTag(o.tag)
	if err != nil {
		return err
	}
	if o.out != "" {
		if err := writeTarball(o.out, tag, img); err != nil {
			return err
		}
	}
	if o.push {
		return remote.Write(tag, img, remote.WithAuthFromKeychain(authn.DefaultKeychain))
	}
	return nil
}

// writeTarball writes beside the target and renames, so that a half-written file is never taken for an image.
func writeTarball(file string, tag name.Tag, img v1.Image) error {
	partial := file + ".partial"
	if err := tarball.WriteToFile(partial, tag, img); err != nil {
		return errors.Join(err, os.Remove(partial))
	}
	return os.Rename(partial, file)
}
