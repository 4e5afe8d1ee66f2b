package backup

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pgsteward/pgsteward/internal/postgres"
)

// Stanza is the name, in a repository, of what belongs to one PostgreSQL system. It has the system's identifier, so that the WAL of one
// system can never be taken for that of another, and each generation of a cluster has its own.
func Stanza(major int, systemIdentifier string) string {
	return fmt.Sprintf("pg%d-%s", major, systemIdentifier)
}

// ParseStanza is the reverse; false if it is no name of ours.
func ParseStanza(name string) (major int, systemIdentifier string, ok bool) {
	version, systemIdentifier, ok := strings.Cut(strings.TrimPrefix(name, "pg"), "-")
	major, err := strconv.Atoi(version)
	if !ok || err != nil || !strings.HasPrefix(name, "pg") || systemIdentifier == "" {
		return 0, "", false
	}
	return major, systemIdentifier, true
}

// Contents are the backups of one stanza.
type Contents struct {
	Stanza  string
	Backups []Backup
	// Archive is the folder of its WAL; empty: none was archived.
	Archive string
	// Line is what a recovery follows; the zero one: that is not known, and Backup.Abandoned of no backup says anything.
	Line Line
	// Gap is WAL that it would miss after the newest good backup; nil: none is known of.
	Gap *Gap
}

// Target is up to where to recover. At most one of Time, LSN and Name is set; without one it is the end of the WAL.
type Target struct {
	// Backup is the label of the backup to begin with, or the name of the PostgresBackup that it was made for; empty: the best one.
	Backup string     `json:"backup,omitempty"`
	Time   *time.Time `json:"time,omitempty"`
	LSN    string     `json:"lsn,omitempty"`
	Name   string     `json:"name,omitempty"`
	// Timeline to follow; 0: the latest.
	Timeline int64 `json:"timeline,omitempty"`
	// Exclusive stops just before the target, not just after it.
	Exclusive bool `json:"exclusive,omitempty"`
	// Immediate stops as soon as the data is consistent: the state at the end of the backup.
	Immediate bool `json:"immediate,omitempty"`
}

// Source is what a recovery begins with.
type Source struct {
	Stanza string
	Backup Backup
}

// Choose finds the backup to begin with among what a repository has, for a cluster of that major. The contents are as they are to a
// recovery along the target's timeline.
func Choose(contents []Contents, major int, target Target, now time.Time) (Source, error) {
	var candidates []Source
	others := map[int]bool{}
	for _, c := range contents {
		version, _, ok := ParseStanza(c.Stanza)
		if !ok {
			continue
		}
		for _, b := range c.Backups {
			if version != major {
				others[version] = true
				continue
			}
			candidates = append(candidates, Source{Stanza: c.Stanza, Backup: b})
		}
	}
	if len(candidates) == 0 {
		return Source{}, noneOf(others, major)
	}
	slices.SortFunc(candidates, func(a, b Source) int { return newestFirst(a.Backup, b.Backup) })
	if target.Backup != "" {
		return named(candidates, target)
	}
	if err := oneSystem(candidates); err != nil {
		return Source{}, err
	}
	good := slices.DeleteFunc(slices.Clone(candidates), func(s Source) bool { return !s.Backup.Good() })
	if len(good) == 0 {
		return Source{}, noneGood(candidates, target)
	}
	if target.Time == nil && target.LSN == "" {
		return good[0], nil
	}
	if target.Time != nil && target.Time.After(now) {
		return Source{}, fmt.Errorf("targetTime %s is in the future: give a time that has passed", target.Time.Format(time.RFC3339))
	}
	for _, s := range good {
		if target.Time != nil && !s.Backup.Stopped.After(*target.Time) || target.LSN != "" && reaches(s.Backup.StopLSN, target.LSN) {
			return s, nil
		}
	}
	oldest := good[len(good)-1].Backup
	if target.Time != nil {
		return Source{}, fmt.Errorf("targetTime %s is before the first backup, %s, which ended at %s: give that time or a later one",
			target.Time.UTC().Format(time.RFC3339), oldest.Label, oldest.Stopped.UTC().Format(time.RFC3339))
	}
	return Source{}, fmt.Errorf("targetLSN %s is before the end of the first backup, %s, at %s: give that position or a later one",
		target.LSN, oldest.Label, oldest.StopLSN)
}

// oneSystem refuses to choose among backups of several PostgreSQL systems: the newest may be of a cluster that somebody made by mistake under the name
// of the one that was lost.
func oneSystem(candidates []Source) error {
	var newest []Source // of each
	for _, s := range candidates {
		if !slices.ContainsFunc(newest, func(n Source) bool { return n.Stanza == s.Stanza }) {
			newest = append(newest, s)
		}
	}
	if len(newest) < 2 {
		return nil
	}
	var texts []string
	for _, s := range newest {
		_, system, _ := ParseStanza(s.Stanza)
		texts = append(texts, fmt.Sprintf("%s, which ended at %s with %d bytes of data, of system %s",
			cmp.Or(s.Backup.Name, s.Backup.Label), s.Backup.Stopped.UTC().Format(time.RFC3339), s.Backup.Size, system))
	}
	return fmt.Errorf("the repository has backups of %d PostgreSQL systems, of which the newest are: %s. Create the cluster anew with the one to begin with as backup; a target may be given beside it",
		len(newest), strings.Join(texts, "; "))
}

// noneOf says why there is nothing to begin with.
func noneOf(others map[int]bool, major int) error {
	if len(others) == 0 {
		return fmt.Errorf("the repository has no backup")
	}
	var versions []string
	for version := range others {
		versions = append(versions, strconv.Itoa(version))
	}
	slices.Sort(versions)
	return fmt.Errorf("the repository has backups of PostgreSQL %s only, and spec.version is %d: a backup can only be restored by its own major version",
		strings.Join(versions, ", "), major)
}

// noneGood says why all are of no use.
func noneGood(candidates []Source, target Target) error {
	sound := slices.IndexFunc(candidates, func(s Source) bool { return !s.Backup.Damaged })
	switch {
	case sound < 0:
		return fmt.Errorf("all backups in the repository were made of damaged data (wrong page checksums): name one in backup to recover it all the same")
	case target.Timeline > 0:
		return fmt.Errorf("no good backup in the repository leads to targetTimeline %d: give another one, or none", target.Timeline)
	}
	newest := candidates[sound].Backup
	return fmt.Errorf("no good backup in the repository leads to its newest timeline: give targetTimeline; that of the newest backup, %s, is %d",
		cmp.Or(newest.Name, newest.Label), newest.Timeline)
}

// named is the backup of that label or name.
func named(candidates []Source, target Target) (Source, error) {
	for _, s := range candidates {
		b := s.Backup
		if b.Label != target.Backup && (b.Name == "" || b.Name != target.Backup) {
			continue
		}
		if b.Abandoned {
			return Source{}, fmt.Errorf("backup %s ended on timeline %d at %s, which does not lead to %s: name another backup, or give targetTimeline %d",
				target.Backup, b.Timeline, b.StopLSN, follows(target), b.Timeline)
		}
		if target.Time != nil && b.Stopped.After(*target.Time) {
			return Source{}, fmt.Errorf("backup %s ended at %s, after targetTime %s: name an earlier one, or none",
				target.Backup, b.Stopped.UTC().Format(time.RFC3339), target.Time.UTC().Format(time.RFC3339))
		}
		if target.LSN != "" && !reaches(b.StopLSN, target.LSN) {
			return Source{}, fmt.Errorf("backup %s ended at %s, after targetLSN %s: name an earlier one, or none", target.Backup, b.StopLSN, target.LSN)
		}
		return s, nil
	}
	newest := candidates[0].Backup
	return Source{}, fmt.Errorf("the repository has no backup %q; the newest of its %d is %s", target.Backup, len(candidates), cmp.Or(newest.Name, newest.Label))
}

// follows says which timeline a recovery follows.
func follows(target Target) string {
	if target.Timeline > 0 {
		return fmt.Sprintf("targetTimeline %d", target.Timeline)
	}
	return "the newest timeline"
}

// reaches says whether LSN a is not after b. What cannot be read is not.
func reaches(a, b string) bool {
	x, errX := postgres.ParseLSN(a)
	y, errY := postgres.ParseLSN(b)
	return errX == nil && errY == nil && x <= y
}

// ParseTime understands a time with a time zone, with T or a blank between date and time.
func ParseTime(text string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00"} {
		if at, err := time.Parse(layout, strings.ToUpper(text)); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no time with a time zone, such as 2026-03-01T12:00:00Z", text)
}
