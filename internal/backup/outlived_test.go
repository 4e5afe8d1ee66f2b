package backup

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestOutlived(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	now := time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC)
	stanza := func(name string, ages ...int) Contents {
		c := Contents{Stanza: name}
		for _, age := range ages {
			c.Backups = append(c.Backups, Backup{Label: "x", Type: Full, Stopped: now.Add(-time.Duration(age) * day)})
		}
		return c
	}
	abandoned, incremental := stanza("pg17-2", 40), stanza("pg17-2", 40, 1)
	abandoned.Backups[0].Abandoned, incremental.Backups[0].Type = true, Incremental
	for name, test := range map[string]struct {
		all  []Contents
		want []string
	}{
		"an earlier generation":                       {[]Contents{stanza("pg16-1", 90, 45), stanza("pg17-2", 40, 10)}, []string{"pg16-1"}},
		"the present one covers half of the period":   {[]Contents{stanza("pg16-1", 90, 45), stanza("pg17-2", 29, 10)}, nil},
		"a backup within the period":                  {[]Contents{stanza("pg16-1", 90, 29), stanza("pg17-2", 40)}, nil},
		"a way back that was gone: 17 is the earlier": {[]Contents{stanza("pg16-1", 90, 1), stanza("pg17-2", 3)}, nil},
		"one without any backup":                      {[]Contents{stanza("pg15-1"), stanza("pg17-2", 40)}, []string{"pg15-1"}},
		"the present one is unknown":                  {[]Contents{stanza("pg16-1", 90)}, nil},
		"it has none that is good":                    {[]Contents{stanza("pg16-1", 90), abandoned}, nil},
		"its full one is not there":                   {[]Contents{stanza("pg16-1", 90), incremental}, nil},
		"of somebody else":                            {[]Contents{stanza("main", 90), stanza("pg17-2", 40)}, nil},
	} {
		present := "pg17-2"
		if name == "a way back that was gone: 17 is the earlier" {
			present = "pg16-1"
		}
		assert.Equal(t, test.want, Outlived(test.all, present, 30*day, now), name)
	}
	assert.Empty(t, Outlived([]Contents{stanza("pg16-1", 90), stanza("pg17-2", 40)}, "pg17-2", 0, now), "everything is kept")
}
