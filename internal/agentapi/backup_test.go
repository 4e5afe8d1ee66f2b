package agentapi_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
)

func TestAnew(t *testing.T) {
	t.Parallel()
	good, left, damaged := backup.Backup{Label: "good"}, backup.Backup{Label: "left", Abandoned: true}, backup.Backup{Label: "damaged", Damaged: true}
	for what, test := range map[string]struct {
		report agentapi.RepositoryReport
		want   int64
	}{
		"nothing is there":         {agentapi.RepositoryReport{Timeline: 2}, 0},
		"one leads there":          {agentapi.RepositoryReport{Timeline: 2, Backups: []backup.Backup{left, good}}, 0},
		"none leads there":         {agentapi.RepositoryReport{Timeline: 2, Backups: []backup.Backup{left, damaged}}, 2},
		"it is not known where":    {agentapi.RepositoryReport{Backups: []backup.Backup{damaged}}, 0},
		"nothing is known of them": {agentapi.RepositoryReport{Backups: []backup.Backup{good}}, 0},
	} {
		assert.Equal(t, test.want, test.report.Anew(), what)
	}
}
