package credential

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"time"
)

// serialBits is the size of a certificate's serial number (RFC 5280 allows 20 octets).
const serialBits = 128

// authority is a parsed KeyPair; a leaf is one too, it only signs nothing.
type authority struct {
	pair KeyPair
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// leaf is what a certificate that is no authority says.
type leaf struct {
	subject pkix.Name
	names   []string
}

// renewAt is when a third of the certificate's time is left.
func (a authority) renewAt() time.Time {
	return a.cert.NotAfter.Add(-a.cert.NotAfter.Sub(a.cert.NotBefore) / 3)
}

// keepCA keeps a good authority, renews one that is about to expire with the same key and name (so that what it signed stays
// good under both certificates), and makes a new one if there is none.
func keepCA(have KeyPair, c Cluster, now time.Time, random io.Reader) (authority, error) {
	ca, err := parse(have)
	if err == nil && ca.cert.IsCA && now.Before(ca.renewAt()) {
		return ca, nil
	}
	key := ca.key
	if err != nil || !ca.cert.IsCA {
		if key, err = ecdsa.GenerateKey(elliptic.P256(), random); err != nil {
			return authority{}, fmt.Errorf("certificate authority: %w", err)
		}
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: c.Name + "-ca", Organization: []string{"pgsteward"}},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(caValidity),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	return sign(template, template, key, key, random)
}

// keepLeaf keeps a certificate that this authority signed, that says what it should and is not about to expire.
func (a authority) keepLeaf(have KeyPair, want leaf, now time.Time, random io.Reader) (authority, error) {
	got, err := parse(have)
	if err == nil && got.cert.CheckSignatureFrom(a.cert) == nil && now.Before(got.renewAt()) &&
		got.cert.Subject.CommonName == want.subject.CommonName && slices.Equal(got.cert.DNSNames, want.names) {
		return got, nil
	}
	return a.issue(want, now, random)
}

// issue makes a key and a certificate for server and client use.
func (a authority) issue(want leaf, now time.Time, random io.Reader) (authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), random)
	if err != nil {
		return authority{}, fmt.Errorf("certificate of %s: %w", want.subject.CommonName, err)
	}
	template := &x509.Certificate{
		Subject:     want.subject,
		DNSNames:    want.names,
		NotBefore:   now.Add(-clockSkew),
		NotAfter:    now.Add(leafValidity),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	return sign(template, a.cert, key, a.key, random)
}

func sign(template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey, random io.Reader) (authority, error) {
	serial := make([]byte, serialBits/8)
	if _, err := io.ReadFull(random, serial); err != nil {
		return authority{}, fmt.Errorf("certificate of %s: %w", template.Subject.CommonName, err)
	}
	serial[0] &= 0x7f
	template.SerialNumber = new(big.Int).SetBytes(serial)
	der, err := x509.CreateCertificate(random, template, parent, key.Public(), signer)
	if err != nil {
		return authority{}, fmt.Errorf("certificate of %s: %w", template.Subject.CommonName, err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return authority{}, fmt.Errorf("key of %s: %w", template.Subject.CommonName, err)
	}
	return parse(KeyPair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	})
}

// parse reads a pair and checks that key and certificate belong together.
func parse(pair KeyPair) (authority, error) {
	certBlock, _ := pem.Decode(pair.Cert)
	keyBlock, _ := pem.Decode(pair.Key)
	if certBlock == nil || keyBlock == nil {
		return authority{}, errors.New("no PEM block")
	}
	cert, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return authority{}, err
	}
	parsed, err := x509.ParsePKCS8PrivateKey(keyBlock.Bytes)
	if err != nil {
		return authority{}, err
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return authority{}, fmt.Errorf("key is %T, not ECDSA", parsed)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return authority{}, err
	}
	if !bytes.Equal(public, cert.RawSubjectPublicKeyInfo) {
		return authority{}, errors.New("key does not belong to the certificate")
	}
	return authority{pair: pair, cert: cert, key: key}, nil
}
