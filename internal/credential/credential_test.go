package credential_test

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/credential"
	"github.com/pgsteward/pgsteward/internal/naming"
)

const (
	day = 24 * time.Hour
	// leafLife and authorityLife are for how long certificates are good.
	leafLife      = 90 * day
	authorityLife = 10 * 365 * day
)

var (
	cluster = credential.Cluster{Name: "prod-db", Namespace: "demo"}
	now     = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
)

func complete(t *testing.T, have credential.Set, at time.Time) (credential.Set, time.Time) {
	t.Helper()
	set, next, err := credential.Complete(have, cluster, at, rand.Reader)
	require.NoError(t, err)
	return set, next
}

func certificate(t *testing.T, pair credential.KeyPair) *x509.Certificate {
	t.Helper()
	block, rest := pem.Decode(pair.Cert)
	require.NotNil(t, block)
	assert.Empty(t, rest)
	c, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	return c
}

// verify checks a certificate as PostgreSQL's clients and the agents do.
func verify(t *testing.T, authority, pair credential.KeyPair, host string, at time.Time, usage x509.ExtKeyUsage) error {
	t.Helper()
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(authority.Cert))
	_, err := certificate(t, pair).Verify(x509.VerifyOptions{
		Roots: roots, DNSName: host, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{usage},
	})
	return err
}

func TestCompleteMakesEverything(t *testing.T) {
	t.Parallel()
	set, next := complete(t, credential.Set{}, now)

	assert.Len(t, set.SuperuserPassword, 32)
	assert.Len(t, set.AppPassword, 32)
	assert.NotEqual(t, set.SuperuserPassword, set.AppPassword)
	assert.Regexp(t, "^[A-Za-z0-9_-]+$", set.AppPassword, "it needs no quoting anywhere")

	ca := certificate(t, set.CA)
	assert.True(t, ca.IsCA)
	assert.Equal(t, "prod-db-ca", ca.Subject.CommonName)
	assert.Equal(t, now.Add(authorityLife), ca.NotAfter)
	assert.Equal(t, naming.ReplicationUser, certificate(t, set.Replication).Subject.CommonName)
	assert.Equal(t, naming.ServerCertificate("prod-db"), certificate(t, set.Server).Subject.CommonName)
	require.NoError(t, verify(t, set.CA, set.Replication, "", now, x509.ExtKeyUsageClientAuth))
	require.NoError(t, verify(t, set.CA, set.Server, "", now, x509.ExtKeyUsageClientAuth), "agents ask each other with it")
	assert.Error(t, verify(t, set.CA, set.Replication, naming.ServiceHost(naming.ServiceRW("prod-db"), "demo"), now, x509.ExtKeyUsageServerAuth),
		"a standby cannot pose as a server")

	leaf := certificate(t, set.Server)
	assert.Equal(t, now.Add(leafLife), leaf.NotAfter)
	assert.True(t, leaf.NotBefore.Before(now), "clocks differ")
	assert.WithinDuration(t, now.Add(leafLife*2/3), next, 10*time.Minute)
}

// TestServerNames: the certificate is good for every name by which anybody calls an instance.
func TestServerNames(t *testing.T) {
	t.Parallel()
	set, _ := complete(t, credential.Set{}, now)
	for _, host := range []string{
		"localhost",
		"prod-db-rw", "prod-db-rw.demo", "prod-db-rw.demo.svc", "prod-db-rw.demo.svc.cluster.local",
		naming.ServiceHost(naming.ServiceRW("prod-db"), "demo"),
		naming.ServiceHost(naming.ServiceRO("prod-db"), "demo"),
		naming.ServiceHost(naming.ServiceR("prod-db"), "demo"),
		naming.InstanceHost("prod-db", "demo", naming.Instance("prod-db", 1)),
		naming.InstanceHost("prod-db", "demo", naming.Instance("prod-db", 9)),
		naming.InstanceHost("prod-db", "demo", naming.Instance("prod-db", 9)) + ".cluster.local",
	} {
		assert.NoError(t, verify(t, set.CA, set.Server, host, now, x509.ExtKeyUsageServerAuth), host)
	}
	for _, host := range []string{"other-rw.demo.svc", "prod-db-rw.other.svc", "prod-db-1-0.other-instances.demo.svc", "example.org"} {
		assert.Error(t, verify(t, set.CA, set.Server, host, now, x509.ExtKeyUsageServerAuth), host)
	}
}

// TestLongNames: a certificate's common name has at most 64 characters, as have a DNS name's labels 63.
func TestLongNames(t *testing.T) {
	t.Parallel()
	long := credential.Cluster{Name: "a2345678901234567890123456789012345678901234567890", Namespace: "demo"}
	set, _, err := credential.Complete(credential.Set{}, long, now, rand.Reader)
	require.NoError(t, err)
	assert.LessOrEqual(t, len(certificate(t, set.CA).Subject.CommonName), 64)
	host := naming.InstanceHost(long.Name, long.Namespace, naming.Instance(long.Name, 9))
	assert.NoError(t, verify(t, set.CA, set.Server, host, now, x509.ExtKeyUsageServerAuth))
}

func TestCompleteKeepsWhatIsGood(t *testing.T) {
	t.Parallel()
	set, next := complete(t, credential.Set{}, now)
	set.AppPassword = "by hand: 'ü"
	again, nextAgain := complete(t, set, now.Add(59*day))
	assert.Equal(t, set, again)
	assert.Equal(t, next, nextAgain)
}

// TestCompleteMendsAPart: each part that is missing or broken is made anew, and nothing else.
func TestCompleteMendsAPart(t *testing.T) {
	t.Parallel()
	whole, _ := complete(t, credential.Set{}, now)
	foreign, _ := complete(t, credential.Set{}, now)
	garbage := credential.KeyPair{Cert: []byte("no PEM"), Key: []byte("at all")}
	brokenDER := credential.KeyPair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte{1, 2, 3}}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte{1, 2, 3}}),
	}
	for name, test := range map[string]struct {
		harm func(*credential.Set)
		// part is what may differ afterwards.
		part func(*credential.Set) any
	}{
		"no superuser password": {
			func(s *credential.Set) { s.SuperuserPassword = "" },
			func(s *credential.Set) any { return &s.SuperuserPassword },
		},
		"no app password":     {func(s *credential.Set) { s.AppPassword = "" }, func(s *credential.Set) any { return &s.AppPassword }},
		"no server Secret":    {func(s *credential.Set) { s.Server = credential.KeyPair{} }, func(s *credential.Set) any { return &s.Server }},
		"no server key":       {func(s *credential.Set) { s.Server.Key = nil }, func(s *credential.Set) any { return &s.Server }},
		"garbage":             {func(s *credential.Set) { s.Server = garbage }, func(s *credential.Set) any { return &s.Server }},
		"PEM of garbage":      {func(s *credential.Set) { s.Replication = brokenDER }, func(s *credential.Set) any { return &s.Replication }},
		"key of another":      {func(s *credential.Set) { s.Server.Key = s.Replication.Key }, func(s *credential.Set) any { return &s.Server }},
		"another authority's": {func(s *credential.Set) { s.Server = foreign.Server }, func(s *credential.Set) any { return &s.Server }},
		"another's name":      {func(s *credential.Set) { s.Replication = s.Server }, func(s *credential.Set) any { return &s.Replication }},
		"without the names":   {func(s *credential.Set) { s.Server = s.Replication }, func(s *credential.Set) any { return &s.Server }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			harmed := whole
			test.harm(&harmed)
			mended, _ := complete(t, harmed, now)
			sound(t, mended)
			compared := mended
			switch part := test.part(&compared).(type) {
			case *string:
				assert.NotEmpty(t, *part)
				*part = *test.part(&whole).(*string)
			case *credential.KeyPair:
				*part = *test.part(&whole).(*credential.KeyPair)
			}
			assert.Equal(t, whole, compared)
		})
	}
}

// sound asserts that all certificates belong together.
func sound(t *testing.T, set credential.Set) {
	t.Helper()
	require.NoError(t, verify(t, set.CA, set.Server, naming.InstanceHost("prod-db", "demo", "prod-db-1"), now, x509.ExtKeyUsageServerAuth))
	require.NoError(t, verify(t, set.CA, set.Replication, "", now, x509.ExtKeyUsageClientAuth))
	assert.Equal(t, naming.ReplicationUser, certificate(t, set.Replication).Subject.CommonName)
}

// TestLostAuthority: a new authority signs everything anew; passwords stay.
func TestLostAuthority(t *testing.T) {
	t.Parallel()
	whole, _ := complete(t, credential.Set{}, now)
	for name, harm := range map[string]func(*credential.Set){
		"missing":               func(s *credential.Set) { s.CA = credential.KeyPair{} },
		"without its key":       func(s *credential.Set) { s.CA.Key = nil },
		"a leaf in its place":   func(s *credential.Set) { s.CA = s.Server },
		"with another's key":    func(s *credential.Set) { s.CA.Key = s.Server.Key },
		"cut off in the middle": func(s *credential.Set) { s.CA.Cert = s.CA.Cert[:100] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			harmed := whole
			harm(&harmed)
			mended, _ := complete(t, harmed, now)
			sound(t, mended)
			assert.NotEqual(t, whole.CA, mended.CA)
			assert.NotEqual(t, whole.Server, mended.Server)
			assert.NotEqual(t, whole.Replication, mended.Replication)
			assert.Equal(t, whole.AppPassword, mended.AppPassword)
		})
	}
}

// TestRenewal: certificates are renewed when a third of their time is left, at the moment that was announced.
func TestRenewal(t *testing.T) {
	t.Parallel()
	set, due := complete(t, credential.Set{}, now)

	before, _ := complete(t, set, due.Add(-time.Second))
	assert.Equal(t, set, before)

	renewed, next := complete(t, set, due)
	assert.Equal(t, set.CA, renewed.CA)
	assert.NotEqual(t, set.Server, renewed.Server)
	assert.NotEqual(t, set.Replication, renewed.Replication)
	assert.Equal(t, due.Add(leafLife), certificate(t, renewed.Server).NotAfter)
	assert.WithinDuration(t, due.Add(leafLife*2/3), next, 10*time.Minute)
	assert.True(t, next.After(due))
	assert.NoError(t, verify(t, set.CA, set.Server, "", due, x509.ExtKeyUsageServerAuth), "Pods that have the old one still work")
}

// TestAuthorityRenewal: the authority keeps its key and its name, so that both of its certificates vouch for old and new leaves.
func TestAuthorityRenewal(t *testing.T) {
	t.Parallel()
	old, _ := complete(t, credential.Set{}, now)
	due := now.Add(authorityLife * 2 / 3)
	// the leaves of that day
	late := due.Add(-time.Hour)
	old, _ = complete(t, old, late)

	renewed, next := complete(t, old, due)
	assert.NotEqual(t, old.CA.Cert, renewed.CA.Cert)
	assert.Equal(t, old.CA.Key, renewed.CA.Key)
	assert.Equal(t, due.Add(authorityLife), certificate(t, renewed.CA).NotAfter)
	assert.Equal(t, old.Server, renewed.Server, "it is still good under the renewed authority")
	assert.True(t, next.After(due))

	fresh, _ := complete(t, renewed, due.Add(leafLife))
	for name, test := range map[string]struct{ authority, leaf credential.KeyPair }{
		"old leaf, new authority": {renewed.CA, old.Server},
		"new leaf, old authority": {old.CA, fresh.Server},
	} {
		at := certificate(t, test.leaf).NotBefore.Add(day)
		assert.NoError(t, verify(t, test.authority, test.leaf, "prod-db-rw.demo.svc", at, x509.ExtKeyUsageServerAuth), name)
	}
}

// TestOperator: the operator's certificate is the authority's, and nothing but a client.
func TestOperator(t *testing.T) {
	t.Parallel()
	set, _ := complete(t, credential.Set{}, now)
	pair, err := credential.Operator(set.CA, now, rand.Reader)
	require.NoError(t, err)
	require.NoError(t, verify(t, set.CA, pair, "", now, x509.ExtKeyUsageClientAuth))
	c := certificate(t, pair)
	assert.Equal(t, naming.OperatorUser, c.Subject.CommonName)
	assert.Empty(t, c.DNSNames)
	assert.False(t, c.IsCA)

	_, err = credential.Operator(credential.KeyPair{Cert: []byte("x")}, now, rand.Reader)
	assert.ErrorContains(t, err, "certificate authority")
}

// TestSerials: no two certificates of an authority have the same number.
func TestSerials(t *testing.T) {
	t.Parallel()
	set, _ := complete(t, credential.Set{}, now)
	serials := map[string]bool{}
	for _, pair := range []credential.KeyPair{set.CA, set.Server, set.Replication} {
		serial := certificate(t, pair).SerialNumber
		assert.Equal(t, 1, serial.Sign())
		serials[serial.String()] = true
	}
	assert.Len(t, serials, 3)
}

// TestNoRandomness: without randomness there are no credentials, rather than weak ones.
func TestNoRandomness(t *testing.T) {
	t.Parallel()
	set, _ := complete(t, credential.Set{}, now)
	broken := iotest.ErrReader(errors.New("no randomness"))
	_, _, err := credential.Complete(credential.Set{}, cluster, now, broken)
	require.ErrorContains(t, err, "password: no randomness")
	set.Server = credential.KeyPair{}
	_, _, err = credential.Complete(set, cluster, now, bytes.NewReader(nil))
	require.Error(t, err)
}
