package main

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"testing"
)

func TestRoots(t *testing.T) {
	t.Parallel()
	var first, second bytes.Buffer
	for _, out := range []*bytes.Buffer{&first, &second} {
		if err := run(out); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two runs print different files")
	}
	count := 0
	for rest := first.Bytes(); ; count++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if !cert.IsCA {
			t.Errorf("%s is not an authority", cert.Subject)
		}
	}
	if count < 100 {
		t.Errorf("%d authorities; Mozilla trusts more than a hundred", count)
	}
}
