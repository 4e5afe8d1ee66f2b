package agent

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/pgsteward/pgsteward/internal/naming"
)

// fakeLease is a Lease with compare-and-swap, whose API server can be cut off.
type fakeLease struct {
	mu      sync.Mutex
	lease   *coordinationv1.Lease
	version int
	changed chan struct{}
	out     bool
	hang    bool
}

func newFakeLease() *fakeLease {
	f := &fakeLease{changed: make(chan struct{})}
	f.set(&coordinationv1.Lease{})
	return f
}

func (f *fakeLease) set(l *coordinationv1.Lease) {
	f.version++
	l.ResourceVersion = strconv.Itoa(f.version)
	f.lease = l
	close(f.changed)
	f.changed = make(chan struct{})
}

// recreate is a Lease that was deleted and made anew.
func (f *fakeLease) recreate() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.set(&coordinationv1.Lease{})
}

// give is another instance taking the Lease.
func (f *fakeLease) give(holder string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.lease.DeepCopy()
	l.Spec.HolderIdentity = &holder
	delete(l.Annotations, naming.AnnotationHolderPod)
	f.set(l)
}

func (f *fakeLease) cut(out, hang bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.out, f.hang = out, hang
}

func (f *fakeLease) holder() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return ptr.Deref(f.lease.Spec.HolderIdentity, "")
}

func (f *fakeLease) annotation(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lease.Annotations[name]
}

func (f *fakeLease) reach(ctx context.Context) error {
	f.mu.Lock()
	out, hang := f.out, f.hang
	f.mu.Unlock()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	if out {
		return errors.New("connection refused")
	}
	return nil
}

func (f *fakeLease) Get(ctx context.Context) (*coordinationv1.Lease, error) {
	if err := f.reach(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lease.DeepCopy(), nil
}

func (f *fakeLease) Update(ctx context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if err := f.reach(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.ResourceVersion != f.lease.ResourceVersion {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, "db-primary", errors.New("changed"))
	}
	f.set(l.DeepCopy())
	return f.lease.DeepCopy(), nil
}

func (f *fakeLease) Watch(ctx context.Context, _ string, receive func(*coordinationv1.Lease)) error {
	for {
		f.mu.Lock()
		changed, out := f.changed, f.out || f.hang
		current := f.lease.DeepCopy()
		f.mu.Unlock()
		if out {
			return errors.New("watch broke")
		}
		receive(current)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// fakeAccess is one agent's access to the Lease, which can be cut off by itself.
type fakeAccess struct {
	*fakeLease
	cutOff atomic.Bool
	// denied is what the API server says to a Pod that it does not know any more.
	denied atomic.Bool
}

var errCutOff = errors.New("no route to host")

func (f *fakeAccess) Get(ctx context.Context) (*coordinationv1.Lease, error) {
	if f.cutOff.Load() {
		return nil, errCutOff
	}
	return f.fakeLease.Get(ctx)
}

func (f *fakeAccess) Update(ctx context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if f.cutOff.Load() {
		return nil, errCutOff
	}
	if f.denied.Load() {
		return nil, apierrors.NewUnauthorized("Unauthorized")
	}
	return f.fakeLease.Update(ctx, l)
}

func (f *fakeAccess) Watch(ctx context.Context, version string, receive func(*coordinationv1.Lease)) error {
	if f.cutOff.Load() {
		return errCutOff
	}
	return f.fakeLease.Watch(ctx, version, func(l *coordinationv1.Lease) {
		if !f.cutOff.Load() {
			receive(l)
		}
	})
}

type fakeLabeler struct {
	mu    sync.Mutex
	roles map[string]string
	// changes are the roles that were put on, in order, as POD=ROLE.
	changes []string
}

func (f *fakeLabeler) Label(_ context.Context, pod, _, role string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if before, ok := f.roles[pod]; !ok || before != role {
		f.changes = append(f.changes, pod+"="+role)
	}
	f.roles[pod] = role
	return nil
}

// since are the changes after the first so many.
func (f *fakeLabeler) since(count int) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.changes[count:])
}

func (f *fakeLabeler) role(pod string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.roles[pod]
}

// testCA issues certificates.
type testCA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func newTestCA(t *testing.T) *testCA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test-ca"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &testCA{cert: cert, key: key, pem: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}
}

// issue is a certificate and its key in PEM.
func (c *testCA) issue(t *testing.T, name string, ip net.IP) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if ip != nil {
		template.IPAddresses = []net.IP{ip}
		template.DNSNames = append(template.DNSNames, ip.String()) // pgBackRest knows no addresses
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.cert, &private.PublicKey, c.key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
}
