package logs

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// keptWords is how many of the last words are kept.
const keptWords = 8

// Word is something grave that PostgreSQL said.
type Word struct {
	At       time.Time
	Severity string
	Message  string
	// Ends says whether the server itself ends with it, and not only one of its processes, such as a WAL receiver.
	Ends bool
	// follows says whether it is about following the upstream, by a process that does.
	follows bool
}

// Words are PostgreSQL's last grave words.
type Words struct {
	mu    sync.Mutex
	words []Word
}

// harmless are messages of severity FATAL that say nothing about the server itself: a client that was refused or sent away.
var harmless = []string{
	"the database system is", "terminating connection", "password authentication failed", "no pg_hba.conf entry",
	"pg_hba.conf rejects", "role \"", "database \"", "sorry, too many clients", "remaining connection slots",
	"connection to client lost", "connection requires a valid client certificate", "certificate authentication failed",
	"terminating walreceiver", "terminating background worker", "canceling authentication", "unsupported frontend protocol",
	"terminating logical replication",
}

// endsServer says whether the server ends after a message of that severity by that kind of process. Plain text comes from the
// first process, before the log is set up.
func endsServer(severity, process string) bool {
	return severity == "PANIC" || severity == "FATAL" && (process == "" || process == "postmaster" || process == "startup")
}

// isFollower says whether that kind of process follows the upstream. Only what such a one says may have the data cloned again:
// a client puts any text it likes into the log, by RAISE LOG or in the name of a parameter. Plain text, of which the process is
// not known, does not count: PostgreSQL starts its log collector before the first of these processes.
func isFollower(process string) bool { return process == "walreceiver" || process == "startup" }

// add takes a message of a process of that kind (pg_stat_activity.backend_type).
func (w *Words) add(severity, process, message string) {
	follows := isFollower(process) && isAboutFollowing(message)
	if severity != "FATAL" && severity != "PANIC" && (severity != "LOG" || !follows) {
		return
	}
	for _, prefix := range harmless {
		if strings.HasPrefix(message, prefix) {
			return
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.words = append(w.words, Word{
		At: time.Now(), Severity: severity, Message: message, Ends: endsServer(severity, process), follows: follows,
	})
	if len(w.words) > keptWords {
		w.words = w.words[1:]
	}
}

// Since are the words that were said after the moment.
func (w *Words) Since(moment time.Time) []Word {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []Word
	for _, word := range w.words {
		if word.At.After(moment) {
			found = append(found, word)
		}
	}
	return found
}

// Ended is the last message after the moment with which the server itself ended; empty if there is none.
func (w *Words) Ended(moment time.Time) string {
	words := w.Since(moment)
	for i := len(words) - 1; i >= 0; i-- {
		if words[i].Ends {
			return words[i].Message
		}
	}
	return ""
}

// Last is the message of the last FATAL or PANIC after the moment; empty if there is none.
func (w *Words) Last(moment time.Time) string {
	words := w.Since(moment)
	for i := len(words) - 1; i >= 0; i-- {
		if words[i].Severity != "LOG" {
			return words[i].Message
		}
	}
	return ""
}

// cannotFollow are parts of what a standby says when its upstream will never give it what it needs, so that it must be cloned
// again.
var cannotFollow = []string{
	"has already been removed",                        // requested WAL segment ...
	"is not in this server's history",                 // requested timeline ..., or starting point ...
	"does not contain minimum recovery point",         // requested timeline ...
	"forked off current database system timeline",     // new timeline ...
	"is behind recovery timeline",                     // highest timeline of the primary ...
	"database system identifier differs",              // ... between the primary and standby
	"cannot read from physical replication slot",      // invalidated, up to 16
	"can no longer access replication slot",           // invalidated, from 17 on
	"can no longer get changes from replication slot", // invalidated
	"WAL ends before end of online backup",
	"is not a child of this server's history",
}

// forks are those parts of cannotFollow from which follows that the data has gone another way than the upstream's, so that it
// may be rewound.
var forks = []string{
	"is not in this server's history", "does not contain minimum recovery point", "forked off current database system timeline",
	"is behind recovery timeline", "is not a child of this server's history",
}

// IsFork says whether a message from CannotFollow says that the data went another way than the upstream's.
func IsFork(message string) bool { return containsAny(message, forks) }

// damaged are parts of what a server says when it ends because its own files are damaged, and not because of what is around
// them: no room, no rights, no memory.
var damaged = []string{
	"could not locate a valid checkpoint record", "invalid checkpoint record", "could not locate required checkpoint record",
	"could not find redo location", "control file contains invalid", "incorrect checksum in control file",
	"WAL ends before consistent recovery point", "WAL contains references to invalid pages", "invalid page in block",
	"could not access status of transaction", "invalid magic number in", "requested WAL segment is corrupt",
	"invalid data in file", "is not a valid data directory", "missing from data directory", "could not read block",
	"read only 0 of", "unexpected data beyond EOF", "incorrect resource manager data checksum",
	// The server's own files are named as seen from the data directory; those of configuration and extensions are not.
	`file "base/`, `file "global/`, `file "pg_xact`, `file "pg_multixact`, `file "pg_wal`, `file "pg_filenode.map`, `file "pg_tblspc`,
}

// around are parts of such messages that speak against damage.
var around = []string{
	"No space left on device", "Permission denied", "Too many open files", "Cannot allocate memory", "Disk quota exceeded",
	"Stale file handle", "Transport endpoint", "Interrupted system call",
}

// IsDamage says whether the message, with which a server ended, says that its data is damaged.
func IsDamage(message string) bool {
	return containsAny(message, damaged) && !containsAny(message, around)
}

func isAboutFollowing(message string) bool {
	return containsAny(message, cannotFollow)
}

func containsAny(message string, parts []string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(message, part) })
}

// CannotFollow is what a standby said after the moment from which follows that it must be cloned again; empty if it did not.
func (w *Words) CannotFollow(moment time.Time) string {
	for _, word := range w.Since(moment) {
		if word.follows {
			return word.Message
		}
	}
	return ""
}
