package backup

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// removalBound is for how long a backup that cannot be removed is tried again, until it is left where it is.
	removalBound = 30 * time.Minute
	// removalPause is the pause after a failure, heldRecheck when to look again at a backup that must stay, should no news come.
	removalPause = time.Minute
	heldRecheck  = 10 * time.Minute
)

// Deletion is a backup that somebody does not want any more, and all that matters for whether it can be removed.
type Deletion struct {
	Now time.Time
	// ID is that of the wish; attempts are named after it and Attempts, which is how often it was begun.
	ID       string
	Attempts int
	// Begun is when the last attempt was; zero: none was. Running says that it is not known to have ended, Runner whose it is.
	Begun   time.Time
	Running bool
	Runner  string
	// Failing is since when it cannot be removed; zero: nothing is known to hinder it.
	Failing time.Time

	// Label is the backup's name in the repository.
	Label string
	// Leave is why the backup is to stay in the repository, as somebody wishes; Lost is why it can never be removed from there. Empty: it
	// may be removed.
	Leave, Lost string
	// Known says that All are the backups in the repository, the newest word of it being later than the backup.
	Known bool
	All   []Backup
	// Obstacle is why nothing can be removed now; empty: it can. Before is the name of a backup that is being made.
	Obstacle string
	Before   string
	// Host is who removes backups; empty: the instance that would make them.
	Host      string
	Instances []Instance
	Runners   []Remover
}

// Remover is somebody who can remove backups.
type Remover struct {
	Runner
	// Removal is the one that runs there, or ran last; nil: none did since its process began.
	Removal *Attempt
}

// RemovalID is the name of the attempt of that number.
func (d *Deletion) RemovalID(number int) string { return fmt.Sprintf("%s/remove-%d", d.ID, number) }

// Removal is what becomes of a backup that is not wanted any more.
type Removal int

// What may become of it.
const (
	// Removed: it is not in the repository any more.
	Removed Removal = iota
	// Left: it stays there, and nobody looks after it any more but the retention.
	Left
	// Held: it must stay, since others need it or nothing else could be recovered from.
	Held
	// Queued: a backup is being made, which comes first.
	Queued
	// Removing: an attempt goes on.
	Removing
	// Remove: an attempt is to begin.
	Remove
	// Hindered: it cannot be removed just now.
	Hindered
)

// Verdict is what becomes of a backup that is not wanted any more, why, and when to look again.
type Verdict struct {
	Removal Removal
	// Message is why; empty: nothing new.
	Message string
	// Wished says that it is Left because somebody said so.
	Wished  bool
	Runner  string
	Recheck time.Duration
}

// Holds is why the backup must stay among all of its stanza; empty: it may be removed.
func Holds(label string, all []Backup) string {
	i := slices.IndexFunc(all, func(b Backup) bool { return b.Label == label })
	if i < 0 {
		return ""
	}
	var needed []string
	for _, b := range ByAge(all) {
		if b.Label != label && (slices.Contains(b.Needs, label) || b.FullLabel() == label) {
			name := b.Label
			if b.Name != "" {
				name = b.Name + " (" + b.Label + ")"
			}
			needed = append(needed, name)
		}
	}
	if len(needed) > 0 {
		return "other backups need it: " + strings.Join(needed, ", ")
	}
	if all[i].Type != Full {
		return ""
	}
	for _, b := range fullBackups(all) {
		if b.Label != label && (b.Good() || !all[i].Good()) {
			return ""
		}
	}
	return "it is the last good full one: without it nothing could be recovered"
}

// Decide says what becomes of a backup that is not wanted any more. What must stay is held for as long as that is so; what cannot be
// removed is left where it is after a time, so that nothing waits for ever.
func (d *Deletion) Decide() Verdict {
	listed := slices.ContainsFunc(d.All, func(b Backup) bool { return b.Label == d.Label })
	switch {
	case d.Leave != "":
		return Verdict{Removal: Left, Wished: true, Message: d.Leave}
	case d.Lost != "":
		return Verdict{Removal: Left, Message: d.Lost}
	case d.Known && !listed:
		return Verdict{Removal: Removed}
	case d.Running:
		return d.follow()
	}
	if why := Holds(d.Label, d.All); why != "" && d.Known {
		return Verdict{Removal: Held, Message: why, Recheck: heldRecheck}
	}
	if d.Before != "" { // it has a bound of its own
		return Verdict{Removal: Queued, Message: "waits for " + d.Before, Recheck: waitRecheck}
	}
	if d.Obstacle != "" {
		return d.hindered(d.Obstacle)
	}
	if pause := removalPause - d.Now.Sub(d.Begun); !d.Failing.IsZero() && d.Attempts > 0 && pause > 0 {
		return Verdict{Removal: Hindered, Recheck: pause}
	}
	name := d.Host
	if name == "" {
		place, err := FindPlace(d.Instances)
		if err != nil {
			return d.hindered(err.Error())
		}
		name = cmp.Or(place.Standby, place.Primary)
	}
	runner, ok := d.runner(name)
	switch {
	case !ok || !runner.Heard:
		return d.hindered(name + " is not heard")
	case !runner.Ready:
		return d.hindered(cmp.Or(runner.Error, "the repository is being prepared"))
	case !d.Known:
		return d.hindered("it is not known yet what is in the repository")
	case runner.Attempt != nil && !runner.Attempt.Ended:
		return Verdict{Removal: Queued, Message: "waits for a backup", Recheck: waitRecheck}
	}
	return Verdict{Removal: Remove, Runner: name, Recheck: waitRecheck}
}

// follow is the verdict on an attempt that was begun.
func (d *Deletion) follow() Verdict {
	runner, ok := d.runner(d.Runner)
	since := d.Now.Sub(d.Begun)
	switch attempt := runner.Removal; {
	case !ok || !runner.Heard:
		if since > silenceBound {
			return d.hindered(d.Runner + ", which removes the backup, is not heard any more")
		}
		return Verdict{Removal: Removing, Runner: d.Runner, Message: d.Runner + " is not heard", Recheck: waitRecheck}
	case attempt == nil || attempt.ID != d.RemovalID(d.Attempts):
		if since < waitRecheck {
			return Verdict{Removal: Removing, Runner: d.Runner, Recheck: waitRecheck}
		}
		return d.hindered(d.Runner + " did not begin to remove the backup, or was restarted meanwhile")
	case !attempt.Ended && since < removalBound:
		return Verdict{Removal: Removing, Runner: d.Runner, Recheck: waitRecheck}
	case !attempt.Ended:
		return d.hindered(fmt.Sprintf("%s has not removed the backup within %s", d.Runner, removalBound))
	case attempt.Error != "":
		return d.hindered(attempt.Error)
	}
	// it is not there any more: the list says so in a moment
	if since < removalBound {
		return Verdict{Removal: Removing, Runner: d.Runner, Recheck: waitRecheck}
	}
	return d.hindered("it was removed, and is listed all the same")
}

// Failed is the verdict if the attempt that was decided could not even begin.
func (d *Deletion) Failed(why string) Verdict { return d.hindered(why) }

// hindered is the verdict on a backup that cannot be removed just now, or could not for too long.
func (d *Deletion) hindered(why string) Verdict {
	if !d.Failing.IsZero() && d.Now.Sub(d.Failing) > removalBound {
		return Verdict{Removal: Left, Message: fmt.Sprintf("it could not be removed for %s: %s", removalBound, why)}
	}
	return Verdict{Removal: Hindered, Message: why, Recheck: removalPause}
}

func (d *Deletion) runner(name string) (Remover, bool) {
	i := slices.IndexFunc(d.Runners, func(r Remover) bool { return r.Name == name })
	if i < 0 {
		return Remover{}, false
	}
	return d.Runners[i], true
}
