// Package repository is the repository host: the process in the Pod that has the volume with backups and WAL. It serves them to the
// instances by pgBackRest's own server, makes backups when the operator asks for one, and tells what there is, by the same API as an
// agent. It knows nothing of who is primary: pgBackRest finds out.
package repository
