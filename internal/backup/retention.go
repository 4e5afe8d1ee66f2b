package backup

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Type is what a backup has: everything, or what has changed since another.
type Type string

// The types of backups.
const (
	// Full has everything.
	Full Type = "full"
	// Differential has what has changed since the last full one.
	Differential Type = "differential"
	// Incremental has what has changed since the last one of any type.
	Incremental Type = "incremental"
)

// Backup is one in a repository.
type Backup struct {
	// Label is its name in the repository. A differential or incremental one's begins with that of its full one and "_".
	Label string `json:"label"`
	Type  Type   `json:"type"`
	// Needs are the labels of the others that a restore of it needs.
	Needs []string `json:"needs,omitempty"`
	// Name is that of the PostgresBackup that it was made for.
	Name    string    `json:"name,omitempty"`
	Started time.Time `json:"started"`
	// Stopped is from when on it can be recovered to.
	Stopped  time.Time `json:"stopped"`
	StartLSN string    `json:"startLSN,omitempty"`
	StopLSN  string    `json:"stopLSN,omitempty"`
	// Timeline on which it ended.
	Timeline int64 `json:"timeline,omitempty"`
	// Size is that of the data, RepositorySize what it takes in the repository, without what others have already.
	Size           int64 `json:"size,omitempty"`
	RepositorySize int64 `json:"repositorySize,omitempty"`
	// Damaged says that pages with wrong checksums were found.
	Damaged bool `json:"damaged,omitempty"`
	// Abandoned says that its timeline, or the end of it, was left by a failover or a recovery: it leads nowhere that the cluster is.
	Abandoned bool `json:"abandoned,omitempty"`
}

// Good says whether a recovery can begin with it.
func (b Backup) Good() bool { return !b.Damaged && !b.Abandoned }

// FullLabel is the label of the full backup that it needs; its own if it is one.
func (b Backup) FullLabel() string {
	full, _, _ := strings.Cut(b.Label, "_")
	return full
}

// ParsePeriod understands 30d and 4w.
func ParsePeriod(text string) (time.Duration, error) {
	const right = "give a number of days or weeks from 1d to 3650d, such as 30d or 4w"
	if len(text) < 2 {
		return 0, errors.New(right)
	}
	days, err := strconv.Atoi(text[:len(text)-1])
	if err != nil {
		return 0, errors.New(right)
	}
	switch text[len(text)-1] {
	case 'd':
	case 'w':
		if days > 1000 {
			return 0, errors.New(right)
		}
		days *= 7
	default:
		return 0, errors.New(right)
	}
	if days < 1 || days > 3650 {
		return 0, fmt.Errorf("%s is out of range: %s", text, right)
	}
	return time.Duration(days) * 24 * time.Hour, nil
}

// Retention is what to keep.
type Retention struct {
	// KeepFull is how many full backups are kept, the newest ones, with all that need them; never less than 1.
	KeepFull int
	// Remove are the labels of the backups that go.
	Remove []string
	// Keep are those that stay, the oldest first.
	Keep []Backup
}

// Retain decides which of the backups of one stanza stay, so that every time within the period can be recovered. Those that stay are
// the newest full ones and what needs them, which is also how the engine counts.
func Retain(all []Backup, period time.Duration, now time.Time) Retention {
	fulls := fullBackups(all)
	needed := len(fulls) // how many of the newest full ones are needed
	for n, full := range fulls {
		if full.Good() && !full.Stopped.After(now.Add(-period)) {
			needed = n + 1
			break
		}
	}
	kept := map[string]bool{}
	for _, full := range fulls[:needed] {
		kept[full.Label] = true
	}
	r := Retention{KeepFull: max(needed, 1)}
	for _, b := range ByAge(all) {
		if kept[b.FullLabel()] {
			r.Keep = append(r.Keep, b)
		} else if slices.ContainsFunc(fulls, func(full Backup) bool { return full.Label == b.FullLabel() }) {
			r.Remove = append(r.Remove, b.Label)
		}
	}
	return r
}

// fullBackups are the full ones, the newest first.
func fullBackups(all []Backup) []Backup {
	var fulls []Backup
	for _, b := range all {
		if b.Type == Full {
			fulls = append(fulls, b)
		}
	}
	slices.SortFunc(fulls, func(a, b Backup) int { return newestFirst(a, b) })
	return fulls
}

func newestFirst(a, b Backup) int {
	return cmp.Or(b.Stopped.Compare(a.Stopped), cmp.Compare(b.Label, a.Label))
}

// ByAge are the backups, the oldest first.
func ByAge(all []Backup) []Backup {
	return slices.SortedFunc(slices.Values(all), func(a, b Backup) int { return newestFirst(b, a) })
}

// Newest is the newest good one; false if there is none.
func Newest(all []Backup) (Backup, bool) {
	for _, b := range slices.Backward(ByAge(all)) {
		if b.Good() {
			return b, true
		}
	}
	return Backup{}, false
}

// FirstRecoverable is the earliest time that can be recovered to; zero if there is none.
func FirstRecoverable(all []Backup) time.Time {
	for _, b := range ByAge(all) {
		if b.Good() {
			return b.Stopped
		}
	}
	return time.Time{}
}

// TypeDue is what the next scheduled backup has to be: by the method, and a full one when the last full one is that old.
func TypeDue(method Type, all []Backup, fullEvery time.Duration, now time.Time) Type {
	fulls := fullBackups(all)
	const slack = time.Hour // a schedule of every 7 days finds the last one a little younger than 7 days
	if method == Full || method == "" || len(fulls) == 0 || !fulls[0].Good() || now.Sub(fulls[0].Started) > fullEvery-slack {
		return Full
	}
	return method
}
