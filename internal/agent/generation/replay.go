package generation

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

const (
	// advanceBound is how long a slot may take to come to the position: it reads all WAL up to there.
	advanceBound = 10 * time.Minute
	// pageHeader is how much of a page of WAL no record is in, at most (SizeOfXLogLongPHD).
	pageHeader = 40
	// lastRecord is how long the record of a checkpoint is, at most: 114 bytes up to now.
	lastRecord = 128
)

// replay lets the old server replay to exactly the position, and promotes it: then the old data directory is a primary's that was shut
// down, with everything that was committed before the position and nothing else.
func (p *Place) replay(ctx context.Context, m *Marker) error {
	found, err := p.Old.Inspect()
	if err != nil {
		return err
	}
	if !found.Complete {
		return over(reasonReplay, "the data directory that was replaying is gone")
	}
	if !found.Standby && found.Control.StoppedCleanly() && found.Control.Position.Timeline > m.Timeline {
		return p.checkReplayed(m, found.Control.Position.Timeline)
	}
	if err := p.configureOld(m, found.Control.Minimums); err != nil {
		return err
	}
	var timeline int64
	said := time.Time{}
	err = p.withOld(ctx, func() {
		if m.Method == agentapi.MethodInPlace {
			p.promoteOld(ctx)
		}
		if time.Since(said) < time.Second {
			return
		}
		said = time.Now()
		if found, err := p.Old.Inspect(); err == nil {
			p.Progress(fmt.Sprintf("replaying to %s, at %s", m.Position, found.Control.Position.LSN))
		}
	}, func(ctx context.Context, c *pgx.Conn) error {
		// Recovery has ended, or nobody could connect.
		err := c.QueryRow(ctx, "SELECT ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int").Scan(&timeline)
		if err != nil {
			return err
		}
		_, err = c.Exec(ctx, "CHECKPOINT")
		return err
	})
	if err != nil {
		return fmt.Errorf("replaying to %s: %w", m.Position, err)
	}
	return p.checkReplayed(m, timeline)
}

// checkReplayed makes sure that the new timeline begins where the slots go on. A record begins behind the header of its page, the one
// before it ends in front of that.
func (p *Place) checkReplayed(m *Marker, timeline int64) error {
	position, err := postgres.ParseLSN(m.Position)
	if err != nil {
		return err
	}
	history, err := p.Old.History(timeline)
	if err != nil {
		return err
	}
	end := history.Start()
	exact := end <= position && position-end <= pageHeader
	if m.Method == agentapi.MethodInPlace { // the record at the position is the last that the source wrote, and is replayed as well
		exact = end > position && end-position <= lastRecord+pageHeader
	}
	if !exact {
		return over(reasonReplay, fmt.Sprintf("the copy was replayed to %s and not to %s", end, position))
	}
	p.Log.Info("The copy has replayed to the position", "position", m.Position, "timeline", timeline)
	return nil
}

// promoteOld asks the old server to become a primary when it has replayed all that is here. One that has just started, or was asked before,
// refuses; it is asked again.
func (p *Place) promoteOld(ctx context.Context) {
	program, err := p.oldProgram("pg_ctl")
	if err != nil {
		return // the server was found beside it
	}
	_ = p.Children.Run(p.Children.Command(ctx, program, "promote", "--no-wait", "--silent", "--pgdata="+p.Old.Dir()))
}
