package backup

import "github.com/pgsteward/pgsteward/internal/postgres"

// Line is a timeline that a recovery follows, and how it came to be. The zero one is not known.
type Line struct {
	Timeline int64
	History  postgres.History
}

// Abandons says whether no recovery along the line can begin with the backup: it ended on a timeline that does not lead there, or on one
// that does, after that was left; PostgreSQL refuses both
// (https://www.postgresql.org/docs/current/continuous-archiving.html#BACKUP-TIMELINES). What is not known is not abandoned.
func (l Line) Abandons(b Backup) bool {
	if l.Timeline == 0 || b.Timeline == 0 || b.Timeline == l.Timeline {
		return false
	}
	left, leads := l.History.End(b.Timeline)
	if !leads {
		return true
	}
	stop, err := postgres.ParseLSN(b.StopLSN)
	return err == nil && stop > left
}

// Follow is the contents as they are to a recovery along the line.
func (c Contents) Follow(line Line) Contents {
	c.Line = line
	backups := make([]Backup, 0, len(c.Backups))
	for _, b := range c.Backups {
		b.Abandoned = line.Abandons(b)
		backups = append(backups, b)
	}
	c.Backups = backups
	return c
}
