//go:build e2e

package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/pgsteward/pgsteward/internal/naming"
)

// writer is an application in the client's Pod that writes one row after the other, with a connection for each, and keeps in a file
// which of them were acknowledged.
type writer struct{ cluster cluster }

// writing is its program. $1 says where to connect.
const writing = `rm -f /tmp/stop; : >/tmp/acknowledged; : >/tmp/refused
i=0
while [ ! -e /tmp/stop ]; do
  i=$((i+1))
  if said=$(psql -XAtq -d "$1" -c "INSERT INTO written VALUES ($i)" 2>&1); then echo $i >>/tmp/acknowledged; else echo "$i: $said" >>/tmp/refused; fi
  sleep 0.1
done
touch /tmp/stopped`

// startWriter starts it. The cluster must serve, and the client run.
func startWriter(t *testing.T, c cluster) writer {
	t.Helper()
	c.sql(t, naming.ServiceRW(c.name), "CREATE TABLE written (i integer PRIMARY KEY)")
	secret := &corev1.Secret{}
	require.NoError(t, kube.Get(t.Context(), key(c.namespace, naming.AppSecret(c.name)), secret))
	target := fmt.Sprintf("host=%s user=%s dbname=%s sslmode=require", naming.ServiceHost(naming.ServiceRW(c.name), c.namespace),
		secret.Data[naming.KeyUser], secret.Data[naming.KeyDBName])
	w := writer{c}
	_, err := w.client("env", "PGPASSWORD="+string(secret.Data[naming.KeyPassword]),
		"sh", "-c", `nohup sh -c "$0" writer "$1" </dev/null >/dev/null 2>&1 &`, writing, target)
	require.NoError(t, err)
	return w
}

// client runs a command in the client's Pod.
func (w writer) client(command ...string) (string, error) {
	return inPod(w.cluster.namespace, clientPod, clientPod, "", command...)
}

// lines are those of a file of the writer.
func (w writer) lines(t require.TestingT, file string) []string {
	out, err := w.client("cat", file)
	require.NoError(t, err)
	return strings.FieldsFunc(out, func(r rune) bool { return r == '\n' })
}

// waitWritten waits until so many more rows were acknowledged.
func (w writer) waitWritten(t *testing.T, more int) {
	t.Helper()
	eventually(t, boundSettle, "the application gets its writer going", func(collect *assert.CollectT) {
		_, err := w.client("test", "-e", "/tmp/acknowledged")
		require.NoError(collect, err)
	})
	before := len(w.lines(t, "/tmp/acknowledged"))
	eventually(t, boundSettle, strconv.Itoa(more)+" more rows are written", func(collect *assert.CollectT) {
		require.GreaterOrEqual(collect, len(w.lines(collect, "/tmp/acknowledged")), before+more)
	})
}

// stop ends it, after the row it is at.
func (w writer) stop(t *testing.T) {
	t.Helper()
	_, err := w.client("touch", "/tmp/stop")
	require.NoError(t, err)
	eventually(t, boundSettle, "the writer has ended", func(collect *assert.CollectT) {
		_, err := w.client("test", "-e", "/tmp/stopped")
		require.NoError(collect, err)
	})
}

// requireKept: every row that was acknowledged is there. It returns what was said of those that were refused.
func (w writer) requireKept(t *testing.T) []string {
	t.Helper()
	rows := strings.Fields(w.cluster.sql(t, naming.ServiceRW(w.cluster.name), "SELECT i FROM written"))
	acknowledged, refused := w.lines(t, "/tmp/acknowledged"), w.lines(t, "/tmp/refused")
	require.NotEmpty(t, acknowledged)
	require.Subset(t, rows, acknowledged, "rows that were acknowledged are lost")
	t.Logf("MEASURED: %d rows written meanwhile, %d refused", len(acknowledged), len(refused))
	return refused
}
