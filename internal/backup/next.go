package backup

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

const (
	// Attempts is how often a backup is begun at most.
	Attempts = 3
	// retryPause is the pause before the second attempt; it grows with each.
	retryPause = 30 * time.Second
	// waitBound is how long a backup waits until it can begin.
	waitBound = time.Hour
	// runBound is how long an attempt may take.
	runBound = 24 * time.Hour
	// silenceBound is how long who makes a backup may be silent until the attempt counts as lost. It is long, since another attempt
	// elsewhere must not meet the first.
	silenceBound = 5 * time.Minute
	// followRecheck and waitRecheck are when to look again, should no news come.
	followRecheck = time.Minute
	waitRecheck   = 15 * time.Second
)

// Attempt is a run of a backup as who makes it tells it.
type Attempt struct {
	ID    string
	Ended bool
	// Error is why it failed; Result is what there is if it did not.
	Error  string
	Result *Backup
}

// Runner is somebody who can make backups.
type Runner struct {
	Name string
	// Heard says whether it is heard; if not, Silent is for how long.
	Heard  bool
	Silent time.Duration
	// Ready says that it can begin one; Error is why not.
	Ready bool
	Error string
	// Attempt is what it makes, or made last; nil: nothing since its process began.
	Attempt *Attempt
}

// Wish is a backup that was asked for, and all that matters for it.
type Wish struct {
	Now time.Time
	// ID is that of the wish; attempts are named after it.
	ID      string
	Created time.Time
	// Watched is since when somebody sees to it that it begins: what was created before has not waited for the cluster until then.
	Watched time.Time

	// Attempts is how often it was begun, Running whether the last attempt is not known to have ended, Runner whose it is.
	Attempts int
	Running  bool
	Runner   string
	Started  time.Time
	// Failed is when the last attempt failed; zero: none did.
	Failed time.Time

	// Obstacle is why the cluster cannot be backed up now; empty: it can. Hopeless says that it never will.
	Obstacle string
	Hopeless bool
	// Before are the names of backups that come first.
	Before []string
	// Host is who makes all backups; empty: the instance whose data is read does.
	Host      string
	Instances []Instance
	Runners   []Runner
}

// AttemptID is the name of the wish's attempt of that number.
func (w *Wish) AttemptID(number int) string { return fmt.Sprintf("%s/%d", w.ID, number) }

// Step is what to do next.
type Step int

// The steps.
const (
	// Wait does nothing yet.
	Wait Step = iota
	// Begin asks the runner for an attempt.
	Begin
	// Follow waits for the end of the attempt.
	Follow
	// Cancel asks the runner to end the attempt, which has taken too long.
	Cancel
	// Retry takes note that the attempt failed.
	Retry
	// Complete takes note that the backup is there.
	Complete
	// GiveUp takes note that there will be none.
	GiveUp
)

// Decision is the next step for a wish.
type Decision struct {
	Step    Step
	Runner  string
	Place   Place
	Result  *Backup
	Message string
	// Others says that it waits for other backups.
	Others bool
	// Recheck is when to look again, should no news come.
	Recheck time.Duration
}

// Next decides what to do for a wish. An attempt whose runner has lost it, or is silent for long, has failed; a wish is given up after a
// number of attempts, or if it could not begin for long.
func Next(w Wish) Decision {
	if w.Running {
		return follow(w)
	}
	waited := w.Now.Sub(latest(latest(w.Created, w.Watched), w.Failed))
	wait := func(message string) Decision {
		if waited > waitBound {
			return Decision{Step: GiveUp, Message: fmt.Sprintf("could not begin for %s: %s", waitBound, message)}
		}
		return Decision{Step: Wait, Message: message, Recheck: waitRecheck}
	}
	switch {
	case w.Hopeless:
		return Decision{Step: GiveUp, Message: w.Obstacle}
	case w.Obstacle != "":
		return wait(w.Obstacle)
	case len(w.Before) > 0: // its bound is that of the others
		return Decision{Step: Wait, Message: "waits for " + slices.Min(w.Before), Others: true, Recheck: waitRecheck}
	}
	// One that was begun for a wish that is gone, or whose maker was silent for long, may still be under way. Two must not write to one stanza.
	if i := slices.IndexFunc(w.Runners, func(r Runner) bool {
		return r.Attempt != nil && !r.Attempt.Ended && (r.Heard || r.Silent <= silenceBound)
	}); i >= 0 {
		return Decision{Step: Wait, Message: fmt.Sprintf("waits for a backup that %s still makes", w.Runners[i].Name), Others: true, Recheck: waitRecheck}
	}
	if pause := retryPause * time.Duration(w.Attempts); w.Attempts > 0 && w.Now.Sub(w.Failed) < pause {
		return Decision{Step: Wait, Message: "tries again in a moment", Recheck: pause - w.Now.Sub(w.Failed)}
	}
	place, err := FindPlace(w.Instances)
	if err != nil {
		return wait(err.Error())
	}
	name := cmp.Or(w.Host, place.Standby, place.Primary)
	runner, ok := w.runner(name)
	if !ok || !runner.Heard {
		return wait(name + " is not heard")
	}
	if !runner.Ready {
		return wait(cmp.Or(runner.Error, "the repository is being prepared"))
	}
	return Decision{Step: Begin, Runner: name, Place: place, Recheck: followRecheck}
}

// follow is the decision on an attempt that was begun.
func follow(w Wish) Decision {
	failed := func(message string) Decision {
		if w.Attempts >= Attempts {
			return Decision{Step: GiveUp, Message: fmt.Sprintf("%s (attempt %d, the last)", message, w.Attempts)}
		}
		return Decision{Step: Retry, Message: message, Recheck: retryPause * time.Duration(w.Attempts)}
	}
	runner, ok := w.runner(w.Runner)
	if !ok || !runner.Heard {
		silent := max(runner.Silent, 0)
		if !ok { // its Pod is gone
			silent = w.Now.Sub(w.Started)
		}
		if silent > silenceBound {
			return failed(fmt.Sprintf("%s, which made the backup, is not heard any more", w.Runner))
		}
		return Decision{Step: Follow, Runner: w.Runner, Message: w.Runner + " is not heard", Recheck: waitRecheck}
	}
	attempt := runner.Attempt
	switch {
	case attempt == nil || attempt.ID != w.AttemptID(w.Attempts):
		if w.Now.Sub(w.Started) < waitRecheck { // it was asked a moment ago
			return Decision{Step: Follow, Runner: w.Runner, Recheck: waitRecheck}
		}
		return failed(fmt.Sprintf("%s did not begin the backup, or was restarted while it made it", w.Runner))
	case !attempt.Ended && w.Now.Sub(w.Started) > runBound:
		return Decision{Step: Cancel, Runner: w.Runner, Message: fmt.Sprintf("took longer than %s", runBound), Recheck: waitRecheck}
	case !attempt.Ended:
		return Decision{Step: Follow, Runner: w.Runner, Recheck: followRecheck}
	case attempt.Error != "" || attempt.Result == nil:
		return failed(cmp.Or(attempt.Error, "it ended without a result"))
	}
	return Decision{Step: Complete, Runner: w.Runner, Result: attempt.Result}
}

func (w *Wish) runner(name string) (Runner, bool) {
	i := slices.IndexFunc(w.Runners, func(r Runner) bool { return r.Name == name })
	if i < 0 {
		return Runner{}, false
	}
	return w.Runners[i], true
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
