// Command roots prints the certificate authorities that Mozilla trusts, as PEM. They come with a Go module, pinned in go.mod: an
// image that has them does not depend on what the machine that builds it has in /etc/ssl.
package main

import (
	"bufio"
	"encoding/pem"
	"fmt"
	"io"
	"os"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "roots: "+err.Error())
		os.Exit(1)
	}
}

// run leaves out the roots that are trusted only for certificates of before some day: a file of PEM cannot say so.
func run(w io.Writer) error {
	out := bufio.NewWriter(w)
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return err
		}
	}
	return out.Flush()
}
