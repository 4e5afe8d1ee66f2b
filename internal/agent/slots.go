package agent

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/sql"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// Every standby has a slot for every other member, as the primary has: if it becomes primary, it has the WAL that the others
// need. On the primary the standbys themselves move their slots. On a standby the agent does:
//
//   - the slot of another standby to where the primary's slot for it is, which the primary's agent says; no further than this
//     standby has replayed. What is older than that the other has.
//   - the slot of the primary to where recovery of this standby would begin: there is the last checkpoint that both have, from
//     which the primary's data starts again if it comes back as a standby, even if it must be rewound.
//
// A slot that is not moved for a while only keeps more WAL, up to max_slot_wal_keep_size.

// slotsInterval is how often slots are moved; the one question that a standby asks at rest.
const slotsInterval = 10 * time.Second

// keepSlots makes a standby's slots and moves them, beside the loop.
func (a *Agent) keepSlots(ctx context.Context, w *world, upstream string) {
	if w.state == nil || upstream == "" {
		return
	}
	if err, isNew := a.slots.result(); isNew && err != nil && !errors.Is(err, context.Canceled) {
		a.log.Warn("Keeping replication slots failed", "error", err)
	}
	status := a.askUpstream(ctx, w.now, upstream, slotsInterval)
	if !a.setup.isDone() || !a.slots.isDone() || w.now.Before(a.slotsNext) {
		return
	}
	a.slotsNext = w.now.Add(slotsInterval)
	wanted := a.slotsOfOthers()
	positions := map[string]postgres.LSN{}
	for _, member := range a.config.Members {
		switch {
		case member.Name == a.options.Instance:
		case member.Name == upstream:
			positions[naming.SlotName(member.Name)] = w.found.Control.Redo
		case status != nil:
			if position, err := postgres.ParseLSN(status.Slots[member.Name]); err == nil {
				positions[naming.SlotName(member.Name)] = position
			}
		}
	}
	a.slots = a.begin(ctx, "slots", func(ctx context.Context) error {
		err := a.admin.EnsureSlots(ctx, wanted)
		if sql.OnlySlotsInUse(err) { // somebody cascades from here; it goes by itself
			err = nil
		}
		return errors.Join(err, a.admin.AdvanceSlots(ctx, positions))
	})
}

// slotsOfOthers are the slots of all other members of this instance's version; on the live side also that of the seed of a major upgrade,
// which streams before it is converted.
func (a *Agent) slotsOfOthers() []string {
	var slots []string
	for _, member := range a.config.Members {
		if member.Name == a.options.Instance {
			continue
		}
		isSeed := a.config.Upgrade != nil && !a.outside && a.config.Upgrade.Seed == member.Name
		if a.versionOf(member.Name) == strconv.Itoa(a.major) || isSeed {
			slots = append(slots, naming.SlotName(member.Name))
		}
	}
	return slots
}
