// Package backrest runs pgBackRest: it writes its configuration, runs its commands with a bound and reads what they say. Everything
// that is a matter of the engine is here; what is to be backed up, kept or restored is decided in package backup.
package backrest
