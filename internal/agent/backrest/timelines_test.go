package backrest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agent/supervise"
	"github.com/pgsteward/pgsteward/internal/backup"
)

// TestToolFollow: the line is that of the histories in the archive.
func TestToolFollow(t *testing.T) {
	t.Parallel()
	const (
		second   = "1\t0/3000148\tno recovery target specified\n"
		third    = second + "2\t0/5000000\tno recovery target specified\n"
		reserved = second + "2\t0/1000000\treserved\n"
	)
	for name, test := range map[string]struct {
		histories map[string]string
		wanted    int64
		timeline  int64
		abandoned []string
		err       string
	}{
		"the first timeline":                {nil, 0, 0, nil, ""},
		"the second":                        {map[string]string{"00000002": second}, 0, 2, []string{"late"}, ""},
		"the newest of many":                {map[string]string{"00000002": second, "0000000A": third}, 0, 10, []string{"late", "two"}, ""},
		"one that is skipped just now":      {map[string]string{"00000002": second, "00000003": reserved}, 0, 2, []string{"late"}, ""},
		"one that was skipped":              {map[string]string{"00000002": second, "00000003": reserved, "00000004": third}, 0, 4, []string{"late", "two"}, ""},
		"the first is wanted":               {map[string]string{"00000002": second}, 1, 1, []string{"two"}, ""},
		"an earlier one is wanted":          {map[string]string{"00000002": second, "00000003": third}, 2, 2, []string{"late"}, ""},
		"one is wanted that is not there":   {map[string]string{"00000002": second}, 7, 7, []string{"early", "late", "two"}, ""},
		"a history that is no history":      {map[string]string{"00000002": "what"}, 0, 0, nil, "reading the history of timeline 2 in the repository"},
		"a repository that does not answer": {map[string]string{"fail": ""}, 0, 0, nil, "pgbackrest repo-ls: unable to connect"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			archive := filepath.Join(folder, "archive", "pg17-1", "17-1")
			require.NoError(t, os.MkdirAll(archive, 0o755))
			for file, content := range test.histories {
				require.NoError(t, os.WriteFile(filepath.Join(archive, file+".history"), []byte(content), 0o600))
			}
			script(t, filepath.Join(folder, "pgbackrest"), `cd $(dirname $0)
for path; do :; done
case "$*" in
*repo-ls*) test -e $path/fail.history && { echo "ERROR: [049]: unable to connect" >&2; exit 49; }; ls $path;;
*repo-get*) cat $path;;
esac`)
			tool := &Tool{Children: &supervise.Children{}, Program: filepath.Join(folder, "pgbackrest"), Work: folder}
			contents := backup.Contents{Stanza: "pg17-1", Archive: "17-1", Backups: []backup.Backup{
				{Label: "early", Timeline: 1, StopLSN: "0/2000100"}, {Label: "late", Timeline: 1, StopLSN: "0/4000000"},
			}}
			if len(test.histories) > 0 {
				contents.Backups = append(contents.Backups, backup.Backup{Label: "two", Timeline: 2, StopLSN: "0/6000000"})
			}
			contents, err := tool.Follow(t.Context(), HostConfiguration, contents, test.wanted)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.timeline, contents.Line.Timeline)
			var abandoned []string
			for _, b := range contents.Backups {
				if b.Abandoned {
					abandoned = append(abandoned, b.Label)
				}
			}
			assert.Equal(t, test.abandoned, abandoned)
		})
	}
}

// TestHistoriesLost: of a repository without the history of a backup's timeline it is not known what was abandoned.
func TestHistoriesLost(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	script(t, filepath.Join(folder, "pgbackrest"), `case "$*" in *repo-ls*) echo 00000002.history;; *) printf '1\t0/3000148\twhy\n';; esac`)
	tool := &Tool{Children: &supervise.Children{}, Program: filepath.Join(folder, "pgbackrest"), Work: folder}
	contents, err := tool.Follow(t.Context(), HostConfiguration, backup.Contents{Stanza: "pg17-1", Archive: "17-1", Backups: []backup.Backup{
		{Label: "late", Timeline: 1, StopLSN: "0/4000000"}, {Label: "three", Timeline: 3, StopLSN: "0/6000000"},
	}}, 0)
	require.NoError(t, err)
	assert.False(t, contents.Backups[0].Abandoned)
	assert.Zero(t, contents.Line.Timeline)
}
