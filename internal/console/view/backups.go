package view

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
)

// Measures of the timeline, in its own units.
const (
	lineWidth = 1000
	barY      = 34
	barHeight = 16
)

// Backups is the page of a cluster's backups.
type Backups struct {
	// Configured says whether the spec asks for backups.
	Configured     bool
	Spec           *v1.BackupSpec
	Status         *v1.BackupStatus
	Conditions     []Condition
	From, To, Last *time.Time
	Line           *Line
	List           []v1.PostgresBackup
}

// Line is the time that can be recovered, drawn. Positions are from 0 to Width.
type Line struct {
	Width, BarY, BarHeight int
	// BarX and BarWidth are what can be recovered.
	BarX, BarWidth int
	Begin, End     time.Time
	Marks          []Mark
	// Sentence says the same in words.
	Sentence string
}

// Mark is one backup on the line.
type Mark struct {
	X       int
	Full    bool
	Tone    Tone
	Caption string
}

// BackupsOf is the page of the cluster's backups; list are those of the cluster.
func BackupsOf(c *v1.PostgresCluster, list []v1.PostgresBackup, now time.Time) Backups {
	page := Backups{
		Configured: c.Spec.Backup != nil, Spec: c.Spec.Backup, Status: c.Status.Backup,
		From: timeOf(c.Status.FirstRecoverable), To: timeOf(c.Status.LastArchived), Last: timeOf(c.Status.LastBackup),
		List: slices.Clone(list),
	}
	for _, name := range []string{v1.ConditionBackupHealthy, v1.ConditionContinuousArchiving} {
		if condition := apimeta.FindStatusCondition(c.Status.Conditions, name); condition != nil {
			page.Conditions = append(page.Conditions, conditionOf(*condition))
		}
	}
	slices.SortFunc(page.List, func(a, b v1.PostgresBackup) int {
		return cmp.Or(moment(b).Compare(moment(a)), cmp.Compare(a.Name, b.Name))
	})
	page.Line = lineOf(page, now)
	return page
}

// moment is when a backup ended, or was asked for.
func moment(b v1.PostgresBackup) time.Time {
	if b.Status.FinishedAt != nil {
		return b.Status.FinishedAt.Time
	}
	return b.CreationTimestamp.Time
}

// lineOf is nil as long as nothing can be recovered.
func lineOf(page Backups, now time.Time) *Line {
	if page.From == nil {
		return nil
	}
	end := now
	to := *page.From
	if page.To != nil && page.To.After(to) {
		to = *page.To
	}
	begin := *page.From
	for _, b := range page.List {
		if at := moment(b); b.Status.FinishedAt != nil && at.Before(begin) {
			begin = at
		}
	}
	whole := end.Sub(begin)
	if whole <= 0 {
		return nil
	}
	begin = begin.Add(-whole / 40) // so that the first mark is not cut
	whole = end.Sub(begin)
	x := func(t time.Time) int { return int(lineWidth * t.Sub(begin) / whole) }
	line := &Line{Width: lineWidth, BarY: barY, BarHeight: barHeight, Begin: begin, End: end, BarX: x(*page.From)}
	line.BarWidth = max(2, min(x(to), lineWidth)-line.BarX)
	line.Sentence = fmt.Sprintf("Every moment from %s to %s can be recovered.", stamp(*page.From), stamp(to))
	for _, b := range page.List {
		if b.Status.FinishedAt == nil {
			continue
		}
		mark := Mark{X: x(moment(b)), Full: b.Status.Type == v1.BackupFull, Tone: BackupTone(b.Status.Phase)}
		mark.Caption = fmt.Sprintf("%s: %s %s, %s", b.Name, b.Status.Type, b.Status.Phase, stamp(moment(b)))
		line.Marks = append(line.Marks, mark)
	}
	return line
}

// BackupTone says how good a backup is.
func BackupTone(phase v1.BackupPhase) Tone {
	switch phase {
	case v1.BackupCompleted:
		return ToneGood
	case v1.BackupFailed:
		return ToneBad
	case v1.BackupRunning:
		return ToneBusy
	case v1.BackupPending:
	}
	return ToneIdle
}

// stamp is a time for people, always in UTC.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }
