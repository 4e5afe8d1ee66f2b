package observe

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
)

// TestFirstBackup: one is due when there is none, and again, under a name of its own, when the newest cannot be recovered from those that there
// are, or the cluster has moved to another repository.
func TestFirstBackup(t *testing.T) {
	t.Parallel()
	report := func(timeline int64, backups ...backup.Backup) agentapi.RepositoryReport {
		return agentapi.RepositoryReport{Stanza: "pg16-1", Known: true, Timeline: timeline, Backups: backups}
	}
	good, left := backup.Backup{Label: "good"}, backup.Backup{Label: "left", Abandoned: true}
	gap := report(0, good)
	gap.Gap = &backup.Gap{WAL: "00000001000000000000000A"}
	record := func(name, location string) v1.PostgresBackup {
		return v1.PostgresBackup{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.PostgresBackupStatus{Location: location}}
	}
	wanted := Wanted{Repository: "abcd", InRepository: func(location string) bool { return strings.HasPrefix(location, "s3://now/") }}
	for what, test := range map[string]struct {
		report agentapi.RepositoryReport
		all    []v1.PostgresBackup
		want   string
	}{
		"none is there":                        {report(0), nil, "db-pg16-1"},
		"none, but it was asked for":           {report(0), []v1.PostgresBackup{record("db-pg16-1", "")}, ""},
		"none, and the first was removed":      {report(0), []v1.PostgresBackup{record("db-pg16-1", "s3://now/x")}, ""},
		"none, and the first is elsewhere":     {report(0), []v1.PostgresBackup{record("db-pg16-1", "s3://before/x")}, "db-pg16-1-abcd"},
		"that was asked for, too":              {report(0), []v1.PostgresBackup{record("db-pg16-1", "s3://before/x"), record("db-pg16-1-abcd", "")}, ""},
		"one is there":                         {report(0, good), nil, ""},
		"one leads there":                      {report(2, good, left), nil, ""},
		"none leads there":                     {report(2, left), nil, "db-pg16-1-2"},
		"none, but that was asked":             {report(2, left), []v1.PostgresBackup{record("db-pg16-1-2", "")}, ""},
		"WAL is missing":                       {gap, nil, "db-pg16-1-00000001000000000000000a"},
		"WAL is missing, and it was asked for": {gap, []v1.PostgresBackup{record("db-pg16-1-00000001000000000000000a", "")}, ""},
		"nothing is known":                     {agentapi.RepositoryReport{Stanza: "pg16-1"}, nil, ""},
	} {
		name, due := firstBackup("db", test.report, test.all, wanted)
		if !due {
			name = ""
		}
		assert.Equal(t, test.want, name, what)
	}
}
