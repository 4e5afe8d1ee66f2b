package backup

import (
	"slices"
	"time"
)

// Covers says whether every moment within the period can be recovered from the backups of a stanza, and the WAL since the first of them. Not, if
// there is no period.
func Covers(all []Backup, period time.Duration, now time.Time) bool {
	return period > 0 && slices.ContainsFunc(all, func(b Backup) bool { return b.Type == Full && b.Good() && !b.Stopped.After(now.Add(-period)) })
}

// Outlived are the stanzas that hold nothing from within the period any more, of all that a cluster has in its repository: those of its earlier
// generations, from before a major upgrade, and of earlier clusters of its name. The present one is never among them, and as long as it does not
// cover the whole period itself, none is: what was written after another's last backup is only in that one.
func Outlived(all []Contents, present string, period time.Duration, now time.Time) []string {
	i := slices.IndexFunc(all, func(c Contents) bool { return c.Stanza == present })
	if i < 0 || !Covers(all[i].Backups, period, now) {
		return nil
	}
	within := func(b Backup) bool { return b.Stopped.After(now.Add(-period)) }
	var names []string
	for _, c := range all {
		if _, _, ours := ParseStanza(c.Stanza); ours && c.Stanza != present && !slices.ContainsFunc(c.Backups, within) {
			names = append(names, c.Stanza)
		}
	}
	return names
}
