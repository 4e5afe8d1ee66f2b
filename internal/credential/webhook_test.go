package credential

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// verify says whether a client that trusts the authority would talk to the server at that time.
func verify(t *testing.T, ca, server KeyPair, host string, at time.Time) error {
	t.Helper()
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(ca.Cert))
	block, _ := pem.Decode(server.Cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	_, err = cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: at})
	return err
}

func TestWebhook(t *testing.T) {
	t.Parallel()
	hosts := []string{"hook.ns.svc", "hook.ns.svc.cluster.local"}
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	first, next, err := Webhook(Serving{}, hosts, now, rand.Reader)
	require.NoError(t, err)
	require.NoError(t, verify(t, first.CA, first.Server, "hook.ns.svc", now))
	require.Error(t, verify(t, first.CA, first.Server, "other.ns.svc", now))
	require.WithinDuration(t, now.Add(60*24*time.Hour), next, time.Hour)

	t.Run("what is good stays", func(t *testing.T) {
		t.Parallel()
		again, sameNext, err := Webhook(first, hosts, next.Add(-time.Minute), rand.Reader)
		require.NoError(t, err)
		require.Equal(t, first, again)
		require.Equal(t, next, sameNext)
	})
	t.Run("it is renewed in time", func(t *testing.T) {
		t.Parallel()
		renewed, _, err := Webhook(first, hosts, next, rand.Reader)
		require.NoError(t, err)
		require.Equal(t, first.CA, renewed.CA)
		require.NotEqual(t, first.Server, renewed.Server)
		require.NoError(t, verify(t, first.CA, renewed.Server, "hook.ns.svc", next.Add(30*24*time.Hour)))
	})
	t.Run("a renewed authority vouches for what the old one signed", func(t *testing.T) {
		t.Parallel()
		late := now.Add(7 * 365 * 24 * time.Hour)
		old, _, err := Webhook(Serving{CA: first.CA}, hosts, late.Add(-365*24*time.Hour), rand.Reader)
		require.NoError(t, err)
		renewed, _, err := Webhook(old, hosts, late, rand.Reader)
		require.NoError(t, err)
		require.NotEqual(t, old.CA.Cert, renewed.CA.Cert)
		soon := late.Add(-364 * 24 * time.Hour)
		require.NoError(t, verify(t, old.CA, old.Server, "hook.ns.svc", soon))
		_, _, err = Webhook(Serving{CA: renewed.CA, Server: old.Server}, hosts, soon, rand.Reader)
		require.NoError(t, err)
		require.NoError(t, verify(t, old.CA, renewed.Server, "hook.ns.svc", late.Add(time.Hour)), "who still trusts the old one")
		require.NoError(t, verify(t, renewed.CA, renewed.Server, "hook.ns.svc", late.Add(time.Hour)))
	})
	t.Run("other hosts, another certificate", func(t *testing.T) {
		t.Parallel()
		moved, _, err := Webhook(first, []string{"hook.other.svc"}, now, rand.Reader)
		require.NoError(t, err)
		require.NoError(t, verify(t, first.CA, moved.Server, "hook.other.svc", now))
	})
	t.Run("what is broken is made anew", func(t *testing.T) {
		t.Parallel()
		broken := Serving{CA: first.CA, Server: KeyPair{Cert: first.Server.Cert, Key: first.CA.Key}}
		mended, _, err := Webhook(broken, hosts, now, rand.Reader)
		require.NoError(t, err)
		require.NoError(t, verify(t, first.CA, mended.Server, "hook.ns.svc", now))
		mended, _, err = Webhook(Serving{CA: KeyPair{Cert: []byte("x")}, Server: first.Server}, hosts, now, rand.Reader)
		require.NoError(t, err)
		require.NoError(t, verify(t, mended.CA, mended.Server, "hook.ns.svc", now))
		require.NotEqual(t, first.Server, mended.Server)
	})
}
