package build_test

import (
	"encoding/base64"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/build"
)

// secret is the data of a Secret, in clear.
func secret(t *testing.T, in build.Input, name string) map[string]string {
	t.Helper()
	data, ok := find(t, in, "Secret", name).Object["data"].(map[string]any)
	require.True(t, ok)
	clear := map[string]string{}
	for key, value := range data {
		text, err := base64.StdEncoding.DecodeString(value.(string))
		require.NoError(t, err)
		clear[key] = string(text)
	}
	return clear
}

func TestConnectionSecrets(t *testing.T) {
	t.Parallel()
	in := input(t, minimal)
	assert.Equal(t, map[string]string{
		"user": "app", "password": "app-secret", "dbname": "app", "host": "prod-db-rw.demo.svc", "port": "5432",
		"uri":      "postgresql://app:app-secret@prod-db-rw.demo.svc:5432/app?sslmode=require",
		"jdbc-uri": "jdbc:postgresql://prod-db-rw.demo.svc:5432/app?password=app-secret&sslmode=require&user=app",
		"pgpass":   "prod-db-rw.demo.svc:5432:app:app:app-secret\n",
	}, secret(t, in, "prod-db-app"))
	assert.Equal(t, map[string]string{
		"user": "postgres", "password": "root-secret", "dbname": "postgres", "host": "prod-db-rw.demo.svc", "port": "5432",
		"uri":      "postgresql://postgres:root-secret@prod-db-rw.demo.svc:5432/postgres?sslmode=require",
		"jdbc-uri": "jdbc:postgresql://prod-db-rw.demo.svc:5432/postgres?password=root-secret&sslmode=require&user=postgres",
		"pgpass":   "prod-db-rw.demo.svc:5432:postgres:postgres:root-secret\n",
	}, secret(t, in, "prod-db-superuser"))

	named := secret(t, input(t, full), "prod-db-app")
	assert.Equal(t, "clerk", named["user"])
	assert.Equal(t, "shop", named["dbname"])
}

func TestCertificateSecrets(t *testing.T) {
	t.Parallel()
	in := input(t, minimal)
	assert.Equal(t, map[string]string{"tls.crt": "ca-cert", "tls.key": "ca-key", "ca.crt": "ca-cert"}, secret(t, in, "prod-db-ca"))
	assert.Equal(t, map[string]string{"tls.crt": "server-cert", "tls.key": "server-key", "ca.crt": "ca-cert"}, secret(t, in, "prod-db-server"))
	assert.Equal(t, map[string]string{"tls.crt": "replication-cert", "tls.key": "replication-key", "ca.crt": "ca-cert"}, secret(t, in, "prod-db-replication"))
	assert.Equal(t, "kubernetes.io/tls", find(t, in, "Secret", "prod-db-server").Object["type"])
}

// TestPasswords: a password that somebody chose comes through every form as it is, whatever its characters.
func TestPasswords(t *testing.T) {
	t.Parallel()
	for _, password := range []string{
		`simple`, `sp ace`, `co:lon`, `back\slash`, `both\:`, `at@sign`, `sla/sh`, `quest?ion`, `ha#sh`, `per%cent`, `%41`, `plus+plus`, `and&and=`, `[brackets]`,
		`quote'quote"`, `ümläut`, `密码`, `dollar$`, `semi;colon,comma`, `tilde~^|<>{}`, "`backtick`",
	} {
		t.Run(password, func(t *testing.T) {
			t.Parallel()
			in := input(t, minimal)
			in.Credentials.AppPassword = password
			data := secret(t, in, "prod-db-app")
			assert.Equal(t, password, data["password"])

			config, err := pgx.ParseConfig(data["uri"])
			require.NoError(t, err)
			assert.Equal(t, password, config.Password, "uri")
			assert.Equal(t, "app", config.User)
			assert.Equal(t, "app", config.Database)
			assert.Equal(t, "prod-db-rw.demo.svc", config.Host)

			jdbc, err := url.Parse(strings.TrimPrefix(data["jdbc-uri"], "jdbc:"))
			require.NoError(t, err)
			assert.Equal(t, password, jdbc.Query().Get("password"), "jdbc-uri")

			fields := pgpassFields(data["pgpass"])
			assert.Equal(t, []string{"prod-db-rw.demo.svc", "5432", "app", "app", password}, fields, "pgpass")
		})
	}
}

// pgpassFields reads a line as libpq does (https://www.postgresql.org/docs/current/libpq-pgpass.html).
func pgpassFields(line string) []string {
	fields, escaped := []string{""}, false
	for _, r := range strings.TrimSuffix(line, "\n") {
		switch {
		case escaped:
			fields[len(fields)-1] += string(r)
			escaped = false
		case r == '\\':
			escaped = true
		case r == ':':
			fields = append(fields, "")
		default:
			fields[len(fields)-1] += string(r)
		}
	}
	return fields
}
