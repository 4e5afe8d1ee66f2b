package generation

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/agentapi"
)

// Make makes the data directory of the next generation, and returns when it is complete. An *Over is the end of the attempt, and in the
// marker. After any other error it goes on from where it was when it is called again. No server runs here meanwhile but those that it
// starts itself.
func (p *Place) Make(ctx context.Context) error {
	m, err := p.takeUp()
	if err != nil {
		return err
	}
	return p.finally(m, p.makeBy(ctx, m))
}

// IsMade says whether Make is done for the attempt that the configuration names.
func (p *Place) IsMade() (bool, error) {
	m, err := ReadMarker(p.New)
	if err != nil || m == nil || m.ID != p.Upgrade.ID || m.Failed != nil {
		return false, err
	}
	return datadir.MajorOf(p.New.Dir()) == m.To && (m.Method == agentapi.MethodLogical || m.Converted) &&
		(m.Stage == agentapi.SeedCopying || m.Stage == agentapi.SeedJoining || m.Stage == agentapi.SeedFollowing), nil
}

// takeUp is the marker of the attempt that the configuration names. What an earlier one left is removed.
func (p *Place) takeUp() (*Marker, error) {
	from, errFrom := strconv.Atoi(p.Upgrade.From)
	to, errTo := strconv.Atoi(p.Upgrade.To)
	if err := errors.Join(errFrom, errTo); err != nil {
		return nil, fmt.Errorf("reading the majors of the upgrade: %w", err)
	}
	m, err := ReadMarker(p.New)
	if err != nil {
		return nil, err
	}
	if m != nil && m.ID == p.Upgrade.ID && m.From == from && m.To == to {
		return m, p.sameSource(m)
	}
	next := &Marker{
		ID: p.Upgrade.ID, From: from, To: to, Stage: agentapi.SeedPreparing, Since: time.Now(), Source: p.Source,
		UsedUp: m != nil && (m.UsedUp || m.Linked || m.Origin),
	}
	if err := errors.Join(p.New.Prepare(), p.New.Remove()); err != nil {
		return nil, err
	}
	return next, next.Write(p.New)
}

// sameSource makes sure that the attempt is not over, and its source still the primary. A source that was not asked for anything yet
// may be another.
func (p *Place) sameSource(m *Marker) error {
	switch {
	case m.Failed != nil:
		return &Over{Problem: *m.Failed}
	case m.Source == p.Source:
		return nil
	case m.Stage == agentapi.SeedPreparing && m.Position == "":
		m.Source, m.System, m.Timeline = p.Source, "", 0
		return m.Write(p.New)
	}
	return p.finally(m, over(reasonSource, fmt.Sprintf("the primary was %s and is %s now: the slots from which the upgrade follows are gone", m.Source, p.Source)))
}

// finally writes down that the attempt is over, if it is.
func (p *Place) finally(m *Marker, err error) error {
	var end *Over
	if !errors.As(err, &end) || m.Failed != nil {
		return err
	}
	m.Failed, m.Stage, m.Since = &end.Problem, agentapi.SeedFailed, time.Now()
	return errors.Join(err, m.Write(p.New))
}

// enter writes down that a stage begins.
func (p *Place) enter(m *Marker, stage agentapi.SeedStage) error {
	if m.Stage == stage {
		return nil
	}
	p.Log.Info("Upgrading", "stage", string(stage), "method", string(m.Method))
	m.Stage, m.Since = stage, time.Now()
	return m.Write(p.New)
}

func (p *Place) makeBy(ctx context.Context, m *Marker) error {
	if m.Method == agentapi.MethodInPlace && m.Stage != agentapi.SeedPreparing {
		return p.makeInPlace(ctx, m) // the source may have stopped, and can be asked nothing
	}
	if err := p.identify(ctx, m); err != nil {
		return err
	}
	if m.Method == "" {
		method, why, err := p.choose(ctx, m)
		if err != nil {
			return err
		}
		p.Log.Info("Choosing how the next generation is made", "method", string(method), "reason", why)
		m.Method, m.Why = method, why
		if err := m.Write(p.New); err != nil {
			return err
		}
	}
	switch m.Method {
	case agentapi.MethodLogical:
		return p.makeByCopy(ctx, m)
	case agentapi.MethodInPlace:
		return p.makeInPlace(ctx, m)
	case agentapi.MethodPhysical:
	}
	return p.makePhysical(ctx, m)
}

func (p *Place) makeByCopy(ctx context.Context, m *Marker) error {
	if m.Stage == agentapi.SeedPreparing {
		if err := p.prepareSource(ctx, m); err != nil {
			return err
		}
	}
	if err := p.enter(m, agentapi.SeedConverting); err != nil {
		return err
	}
	if err := p.makeLogical(ctx, m); err != nil {
		return err
	}
	return p.enter(m, agentapi.SeedCopying)
}

func (p *Place) makePhysical(ctx context.Context, m *Marker) error {
	if m.Position == "" {
		if err := p.haveOldData(ctx, m); err != nil {
			return err
		}
		if err := p.prepareSource(ctx, m); err != nil {
			return err
		}
	}
	if m.Stage == agentapi.SeedPreparing {
		m.UsedUp = true // in the same write: from here on it is no standby any more
		if err := p.enter(m, agentapi.SeedReplaying); err != nil {
			return err
		}
	}
	return p.makeOf(ctx, m)
}

// makeOf makes the new data of the old as it was at the position.
func (p *Place) makeOf(ctx context.Context, m *Marker) error {
	if m.Stage == agentapi.SeedReplaying {
		if err := p.replay(ctx, m); err != nil {
			return err
		}
		if m.Method == agentapi.MethodPhysical {
			if err := p.advanceSlots(ctx, m); err != nil {
				return err
			}
		}
		if err := p.enter(m, agentapi.SeedConverting); err != nil {
			return err
		}
	}
	if err := p.convert(ctx, m); err != nil {
		return err
	}
	return p.enter(m, agentapi.SeedJoining)
}

// haveOldData makes sure that the old data directory is a standby's of the source, which nothing has used up.
func (p *Place) haveOldData(ctx context.Context, m *Marker) error {
	found, err := p.Old.Inspect()
	if err == nil && found.Complete && found.Standby && !m.UsedUp && found.Control.SystemIdentifier == m.System {
		return nil
	}
	p.Progress("copying the data of " + m.Source + " to begin with")
	seeder := &datadir.Seeder{Children: p.Children, Programs: p.Programs, Volume: p.Old}
	if err := seeder.Clone(ctx, p.Replication(m.Source), p.slot()); err != nil {
		return fmt.Errorf("copying the data of %s: %w", m.Source, err)
	}
	m.UsedUp = false
	return m.Write(p.New)
}
