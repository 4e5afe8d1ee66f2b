package agent

import (
	"fmt"
	"strings"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/agentapi"
)

// A full volume: PostgreSQL ends when it cannot write WAL, and cannot recover then, since recovery ends with a checkpoint. The
// reserve is given up for that, once; the server runs again, and transactions are read-only unless their client says otherwise, so
// that what was won is not written full at once: there is room to remove something, and to be grown. A primary stays the primary
// meanwhile, for the standbys have received as much and are as full. When there is room again, the reserve is taken anew.

const reasonDiskFull = "DiskFull"

// disk is what the loop remembers about the volume's room.
type disk struct {
	// full is what PostgreSQL said when it found the volume full; empty: it did not, or there is room again.
	full string
	// heard is up to when PostgreSQL's words were looked at.
	heard time.Time
	free  int64
	size  int64
}

// noRoom are parts of messages that say that a volume is full.
var noRoom = []string{"No space left on device", "Disk quota exceeded"}

func saysNoRoom(message string) bool {
	for _, part := range noRoom {
		if strings.Contains(message, part) {
			return true
		}
	}
	return false
}

// keepReserve looks after the volume's room.
func (a *Agent) keepReserve(w *world) {
	d := &a.disk
	size, free, err := a.volume.Space()
	if err != nil {
		a.log.Warn("The volume's free space is not known", "error", err)
		return
	}
	d.size, d.free = size, free
	for _, word := range a.reader.Words.Since(d.heard) {
		d.heard = word.At
		if word.Ends && saysNoRoom(word.Message) {
			d.full = word.Message
		}
	}
	if a.restarts.failures > 0 && saysNoRoom(a.restarts.message) {
		d.full = a.restarts.message
	}
	if d.full != "" && a.volume.HasReserve() && free < datadir.ReserveSize(size) {
		a.log.Warn("Giving up the reserve, since the volume is full", "free", free, "size", size, "message", d.full)
		if err := a.volume.GiveUpReserve(); err != nil {
			a.log.Error("Giving up the reserve failed", "error", err)
		}
		a.restarts.next = w.now // it is worth a try at once
		return
	}
	if !w.found.Complete || d.full != "" && a.restarts.failures > 0 {
		return // what is being made, or recovers, has precedence
	}
	had := a.volume.HasReserve()
	taken, err := a.volume.TakeReserve()
	switch {
	case err != nil:
		a.log.Warn("Keeping a reserve failed", "error", err)
	case taken && d.full != "":
		d.full = ""
		a.log.Info("There is room on the volume again", "free", free, "size", size)
	case taken && !had:
		a.log.Info("Keeping a reserve on the volume", "free", free, "size", size)
	}
}

// isNearlyFull says whether less is free than a reserve would be.
func (d *disk) isNearlyFull() bool { return d.size > 0 && d.free < datadir.ReserveSize(d.size) }

// diskProblem is that the volume is full, or nearly; nil if it is not.
func (a *Agent) diskProblem() *agentapi.Problem {
	d := &a.disk
	const mebibyte = 1 << 20
	switch {
	case d.full != "":
		return problem(reasonDiskFull, fmt.Sprintf(
			"the volume of %d MiB is full (%s); transactions are read-only by default until %d MiB are free: make spec.storage.size greater, or remove data",
			d.size/mebibyte, d.full, datadir.ReserveRoom(d.size)/mebibyte))
	case d.isNearlyFull():
		return problem(reasonDiskFull, fmt.Sprintf(
			"the volume of %d MiB is nearly full: less than %d MiB are free; make spec.storage.size greater, or remove data",
			d.size/mebibyte, datadir.ReserveSize(d.size)/mebibyte))
	}
	return nil
}
