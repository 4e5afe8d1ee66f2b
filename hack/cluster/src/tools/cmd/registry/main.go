// Command registry is a plain-http OCI registry on one or more addresses that keeps what it was given: blobs and manifests
// lie on disk. When it starts it forgets the images that nobody asked for in a while.
package main

import (
	"flag"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

func main() {
	addrs := flag.String("listen", "127.0.0.1:5000", "comma-separated `ADDRESSES`")
	dir := flag.String("dir", "", "`DIR` for blobs and manifests")
	keep := flag.Duration("keep", 14*24*time.Hour, "forget images that nobody asked for in this `TIME`")
	flag.Parse()
	manifests := filepath.Join(*dir, "manifests")
	if err := os.MkdirAll(manifests, 0o755); err != nil {
		log.Fatal(err)
	}
	if err := collect(*dir, time.Now().Add(-*keep)); err != nil {
		log.Printf("cannot collect old images: %v", err)
	}
	store := &store{dir: manifests, next: registry.New(registry.WithBlobHandler(registry.NewDiskBlobHandler(*dir)))}
	if err := store.replay(); err != nil {
		log.Fatal(err)
	}
	errs := make(chan error)
	for _, addr := range strings.Split(*addrs, ",") {
		go func() { errs <- http.ListenAndServe(addr, store) }()
	}
	log.Fatal(<-errs)
}
