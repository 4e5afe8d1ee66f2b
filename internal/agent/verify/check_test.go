package verify

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/agent/supervise"
)

// newVerification is one of a new PostgreSQL system.
func newVerification(t *testing.T, checksums bool) (*verification, string) {
	t.Helper()
	major := 0
	for _, m := range []int{18, 17, 16, 15} {
		if _, err := os.Stat(fmt.Sprintf("/usr/lib/postgresql/%d/bin/pg_checksums", m)); err == nil {
			major = m
			break
		}
	}
	if major == 0 {
		t.Skip("no PostgreSQL with pg_checksums in /usr/lib/postgresql: apt-get install postgresql")
	}
	folder, err := os.MkdirTemp("/tmp", "pgs")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	children := &supervise.Children{}
	if os.Getuid() == 0 { // initdb refuses to run as root
		postgres, err := user.Lookup("postgres")
		require.NoError(t, err)
		uid, _ := strconv.Atoi(postgres.Uid)
		gid, _ := strconv.Atoi(postgres.Gid)
		children.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		require.NoError(t, os.Chown(folder, uid, gid))
	}
	programs, err := datadir.FindPrograms(t.Context(), children, major)
	require.NoError(t, err)
	v := &verification{
		log: slog.New(slog.NewTextHandler(io.Discard, nil)), children: children, seeder: &datadir.Seeder{Children: children, Programs: programs},
	}
	data := filepath.Join(folder, "data")
	options := []string{"--pgdata=" + data, "--no-sync"}
	switch {
	case checksums:
		options = append(options, "--data-checksums")
	case major >= 18: // where they are the default
		options = append(options, "--no-data-checksums")
	}
	require.NoError(t, v.seeder.Run(t.Context(), programs.InitDB, options...))
	return v, data
}

// TestCheckPages: a page that is not as PostgreSQL wrote it is found, and that nothing could be found is said.
func TestCheckPages(t *testing.T) {
	t.Parallel()
	v, data := newVerification(t, true)
	require.NoError(t, v.checkPages(t.Context(), data))
	assert.Equal(t, []string{pages}, v.result.Checked)

	catalogue := filepath.Join(data, "base", "1", "1259") // pg_class
	file, err := os.OpenFile(catalogue, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.WriteAt(bytes.Repeat([]byte{0xff}, 16), 8192+4096)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	require.ErrorContains(t, v.checkPages(t.Context(), data), "did not pass the check of page checksums: pg_checksums")
}

// TestCheckPagesWithout: data without checksums is none the worse for it.
func TestCheckPagesWithout(t *testing.T) {
	t.Parallel()
	v, data := newVerification(t, false)
	require.NoError(t, v.checkPages(t.Context(), data))
	assert.Empty(t, v.result.Checked)
	assert.Equal(t, []string{noChecksums}, v.result.Skipped)
}

// TestParameters: PostgreSQL of every version that is here knows all of them, since it refuses a session, or to start, for one that it does not.
func TestParameters(t *testing.T) {
	t.Parallel()
	assert.NotContains(t, sessionOptions(16), "transaction_timeout")
	assert.Contains(t, sessionOptions(17), "-c transaction_timeout=0")
	for major := 15; major <= 18; major++ {
		postgres := fmt.Sprintf("/usr/lib/postgresql/%d/bin/postgres", major)
		if _, err := os.Stat(postgres); err != nil {
			continue
		}
		said, err := exec.CommandContext(t.Context(), postgres, "--describe-config").Output()
		require.NoError(t, err)
		for name := range apart() {
			assert.Contains(t, "\n"+string(said), "\n"+name+"\t")
		}
		for option := range strings.SplitSeq(sessionOptions(major), "-c ") {
			name, _, _ := strings.Cut(option, "=")
			assert.Contains(t, "\n"+string(said), "\n"+name)
		}
	}
}
