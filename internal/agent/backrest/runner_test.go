package backrest

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agent/supervise"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
)

// runnerOf is a Runner whose engine is a script, which is called with the commands that are then in the file calls.
func runnerOf(t *testing.T, text string) (runner *Runner, look func(remote string) *agentapi.RepositoryReport, calls func() string) {
	t.Helper()
	folder := t.TempDir()
	script(t, filepath.Join(folder, "pgbackrest"), `case "$*" in *stanza-create*) echo create;; *info*) echo info;; esac >>`+folder+"/calls\n"+text)
	changed := make(chan struct{}, 8)
	runner = &Runner{
		Tool: &Tool{Children: &supervise.Children{}, Program: filepath.Join(folder, "pgbackrest"), Work: folder},
		Log:  slog.New(slog.DiscardHandler), Changed: func() { changed <- struct{}{} },
	}
	look = func(remote string) *agentapi.RepositoryReport {
		t.Helper()
		runner.Doubt()
		runner.Keep(t.Context(), "pg17-1", remote, time.Now())
		select {
		case <-changed:
		case <-time.After(time.Minute):
			require.Fail(t, "nothing is told of the repository")
		}
		return runner.Report()
	}
	calls = func() string {
		content, _ := os.ReadFile(filepath.Join(folder, "calls"))
		return strings.Join(strings.Fields(string(content)), " ")
	}
	return runner, look, calls
}

// TestRunnerMakesStanzaOnce: what is there is not made again, which would take a lock that an archiver in trouble has.
func TestRunnerMakesStanzaOnce(t *testing.T) {
	t.Parallel()
	_, look, calls := runnerOf(t, `cd $(dirname $0)
case "$*" in
*stanza-create*) touch made;;
*info*)
	if test -e made; then echo '[{"name":"pg17-1","backup":[],"status":{"code":2,"message":"no valid backups"}}]'
	else echo '[{"name":"pg17-1","backup":[],"status":{"code":1,"message":"missing stanza path"}}]'; fi;;
esac`)
	report := look("")
	require.True(t, report.Ready, report.Error)
	require.Equal(t, "info create info", calls())
}

// TestRunnerAfterFailure: a repository that did not answer once is read again, and nothing is made there.
func TestRunnerAfterFailure(t *testing.T) {
	t.Parallel()
	_, look, calls := runnerOf(t, `cd $(dirname $0)
test -e answers || { touch answers; echo "ERROR: [049]: unable to connect to 's3'" >&2; exit 49; }
echo '[{"name":"pg17-1","backup":[],"status":{"code":0,"message":"ok"}}]'`)
	report := look("")
	require.False(t, report.Ready)
	require.Equal(t, "pgbackrest info: unable to connect to 's3'", report.Error)
	report = look("")
	require.True(t, report.Ready, report.Error)
	require.Empty(t, report.Error)
	require.Equal(t, "info info", calls())
}

// TestRunnerOutOfReach: an address that takes no connection is told by name, and the engine is not asked.
func TestRunnerOutOfReach(t *testing.T) {
	t.Parallel()
	_, look, calls := runnerOf(t, "exit 1")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	remote := listener.Addr().String()
	require.NoError(t, listener.Close())
	report := look(remote)
	require.Contains(t, report.Error, "the repository at "+remote+" is out of reach: ")
	require.Contains(t, report.Error, "connection refused")
	require.Empty(t, calls())
}

// TestRemote is what is connected to.
func TestRemote(t *testing.T) {
	t.Parallel()
	for want, repository := range map[string]agentapi.Repository{
		"":                                {Kind: agentapi.RepositoryFolder, Path: "/backups"},
		"db-repository.ns.svc:8432":       {Kind: agentapi.RepositoryHost, Host: "db-repository.ns.svc"},
		"minio.storage.svc:9000":          {Kind: agentapi.RepositoryS3, Endpoint: "https://minio.storage.svc:9000"},
		"s3.eu-central-1.example.com:443": {Kind: agentapi.RepositoryS3, Endpoint: "https://s3.eu-central-1.example.com"},
		"storage.googleapis.com:443":      {Kind: agentapi.RepositoryGCS, Endpoint: "https://storage.googleapis.com"},
		"shop.blob.core.windows.net:443":  {Kind: agentapi.RepositoryAzure, Account: "shop", Endpoint: "https://blob.core.windows.net"},
		"azurite.storage.svc:10000":       {Kind: agentapi.RepositoryAzure, Account: "shop", PathStyle: true, Endpoint: "https://azurite.storage.svc:10000"},
	} {
		require.Equal(t, want, settings(repository).Remote())
	}
}

// TestLasting: what is missing for a moment, while files are pushed beside each other, is no gap.
func TestLasting(t *testing.T) {
	t.Parallel()
	r := &Runner{}
	one, other := &backup.Gap{WAL: "1"}, &backup.Gap{WAL: "2"}
	require.Nil(t, r.lasting(nil))
	require.Nil(t, r.lasting(one))
	require.WithinDuration(t, time.Now().Add(gapInterval), r.next, time.Minute/2, "it is looked at again soon")
	r.gapSeen = r.gapSeen.Add(-gapPatience)
	require.Equal(t, one, r.lasting(one))
	require.Nil(t, r.lasting(other))
	require.Nil(t, r.lasting(nil))
	require.Nil(t, r.lasting(one))
}

// TestRunnerListLast: what is left is looked up after a backup that was called off, but not if this process ends, which must not wait for it.
func TestRunnerListLast(t *testing.T) {
	t.Parallel()
	runner, _, calls := runnerOf(t, `echo '[{"name":"pg17-1","backup":[],"status":{"code":2,"message":"no valid backups"}}]'`)
	ended := func(why error) context.Context {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		return ctx
	}
	_, err := runner.listLast(ended(ErrLost), "pg17-1")
	require.ErrorIs(t, err, ErrLost)
	require.Empty(t, calls())
	_, err = runner.listLast(ended(ErrCancelled), "pg17-1")
	require.NoError(t, err)
	require.Equal(t, "info", calls())
}
