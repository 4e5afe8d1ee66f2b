package generation

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/agentapi"
)

// reasonGivenAway is why a server that gave the writes away is not followed by anybody.
const reasonGivenAway = "UpgradeRolledBack"

// MarkOrigin writes that the writes were given away from here: this server is the way back, if there is one.
func (p *Place) MarkOrigin(m *Marker, wayBack bool, reverse map[string]string) error {
	have, err := ReadMarker(p.New)
	if err != nil {
		return err
	}
	if have == nil || have.ID != m.ID {
		from, errFrom := strconv.Atoi(p.Upgrade.From)
		to, errTo := strconv.Atoi(p.Upgrade.To)
		if err := errors.Join(errFrom, errTo); err != nil {
			return fmt.Errorf("reading the majors of the upgrade: %w", err)
		}
		have = &Marker{ID: m.ID, From: from, To: to, Since: time.Now()}
	}
	have.Origin, have.Reverse, have.Switching = true, reverse, ""
	if !wayBack { // rolled back: what is here is not followed any more
		have.Stage, have.Failed = agentapi.SeedFailed, &agentapi.Problem{Reason: reasonGivenAway, Message: "the writes were moved to the other version, without a way back"}
	}
	return have.Write(p.New)
}

// UnmarkOrigin takes that back: this server has the writes.
func UnmarkOrigin(volume *datadir.Volume) error {
	m, err := ReadMarker(volume)
	if err != nil || m == nil || !m.Origin && m.Switching == "" {
		return err
	}
	m.Origin, m.Switching, m.Reverse = false, "", nil
	if m.GaveAway() {
		m.Stage, m.Failed = agentapi.SeedFollowing, nil
	}
	return m.Write(volume)
}

// GaveAway says that the server had the writes, and gave them away without a way back.
func (m *Marker) GaveAway() bool { return m.Failed != nil && m.Failed.Reason == reasonGivenAway }
