package sql

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/testing/servers"
)

// Clients choose the names of databases, and a server may be set to take backslashes in strings for escapes. What is quoted stays one string.
func TestClient_Open_quoting(t *testing.T) {
	t.Parallel()
	server := servers.NewServer(t, 15)
	server.Exec("postgres", "ALTER ROLE postgres SET standard_conforming_strings = off")
	client := NewClient(server.Run, server.Port)
	c, err := client.Open(t.Context(), "postgres")
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close(t.Context()) })
	const name = `x\'; DROP TABLE t; --`
	var said string
	require.NoError(t, c.QueryRow(t.Context(), "SELECT "+literal(name)+" || ''").Scan(&said))
	assert.Equal(t, name, said)
}
