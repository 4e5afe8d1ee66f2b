package generation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

const (
	// streamPoll is how often it is looked whether the source has stopped.
	streamPoll = 100 * time.Millisecond
	// receiveBound is how long the replay of what the source sent before it stopped may make no progress.
	receiveBound = 30 * time.Second
	// statisticsBound is how long coarse statistics may take while nobody can write. Finer ones follow in any case.
	statisticsBound = time.Minute
)

// makeInPlace streams until the source has stopped, and makes the new data of everything that there is then. Whatever needs the source is
// done before it streams: once it does, the source may stop at any moment, and this may have to go on without it.
func (p *Place) makeInPlace(ctx context.Context, m *Marker) error {
	if m.Stage == agentapi.SeedPreparing {
		if err := p.haveOldData(ctx, m); err != nil {
			return err
		}
		if err := p.makeEmpty(ctx, m); err != nil {
			return err
		}
		if err := p.haveRoom(ctx, m); err != nil {
			return err
		}
	}
	if m.Position == "" {
		position, err := p.stream(ctx, m)
		if err != nil {
			return err
		}
		m.Position, m.UsedUp = position, true // in the same write: from here on it is no standby any more
		if err := p.enter(m, agentapi.SeedReplaying); err != nil {
			return err
		}
	}
	return p.makeOf(ctx, m)
}

// haveRoom looks, while the source serves, whether pg_upgrade will have the room that it needs.
func (p *Place) haveRoom(ctx context.Context, m *Marker) error {
	source, err := p.Remote(ctx, m.Source, "postgres")
	if err != nil {
		return err
	}
	defer closeConn(source)
	if m.Databases, err = readDatabases(ctx, source); err != nil {
		return err
	}
	return p.roomToConvert(m)
}

// stream runs the old server as a standby until the source has stopped, and says where. By then everything from before is here. First
// pg_upgrade has a look at the standby, so that what it refuses costs no time without writes.
func (p *Place) stream(ctx context.Context, m *Marker) (string, error) {
	found, err := p.Old.Inspect()
	if err != nil {
		return "", err
	}
	settings := postgres.Parameters{
		"hot_standby": "on", "recovery_target_timeline": "latest", "restart_after_crash": "off", "autovacuum": "off", "synchronous_standby_names": "",
		"hot_standby_feedback": "off", "max_standby_streaming_delay": "0", // nobody's questions may hold up the replay
	}
	for name, least := range found.Control.Minimums {
		settings[name] = fmt.Sprint(least)
	}
	if err := p.writeOld(m, settings); err != nil {
		return "", err
	}
	position := ""
	err = p.withOld(ctx, func() { p.Progress("starting as a standby") }, func(ctx context.Context, c *pgx.Conn) error {
		if m.Stage == agentapi.SeedPreparing {
			if err := p.checkStandby(ctx); err != nil {
				return err
			}
			if err := p.enter(m, agentapi.SeedStreaming); err != nil {
				return err
			}
		}
		p.Progress("streaming until " + m.Source + " stops")
		for ; position == ""; position = p.Stopped() {
			if err := errors.Join(c.Ping(ctx), wait(ctx, streamPoll)); err != nil {
				return err
			}
		}
		p.Progress("receiving everything up to " + position)
		return received(ctx, c, m, position)
	})
	return position, err
}

// received waits until the record at the position is replayed, which is the last one of a source that was stopped in an orderly way: so it is
// here, and the old server has nothing to replay again when it starts to be promoted. The source is stopped meanwhile, so a replay that does not
// get on is not waited for.
func received(ctx context.Context, c *pgx.Conn, m *Marker, position string) error {
	last, since := "", time.Now()
	for {
		var replayed bool
		var at string
		err := c.QueryRow(ctx, `SELECT coalesce(pg_last_wal_replay_lsn(), '0/0') > $1::pg_lsn, coalesce(pg_last_wal_replay_lsn(), '0/0')::text`, position).Scan(&replayed, &at)
		switch {
		case err != nil:
			return fmt.Errorf("asking what was replayed: %w", err)
		case replayed:
			return nil
		case at != last:
			last, since = at, time.Now()
		case time.Since(since) > receiveBound:
			return over(reasonReplay, fmt.Sprintf("not everything that %s wrote before it stopped at %s has come, or is replayed: only up to %s", m.Source, position, at))
		}
		if err := wait(ctx, streamPoll); err != nil {
			return err
		}
	}
}

// lookStreaming says how far the old server is behind the source. The source does not answer once it has stopped.
func (p *Place) lookStreaming(ctx context.Context, m *Marker, status *agentapi.SeedStatus) error {
	c, err := p.dialOld(ctx)
	if err != nil {
		return nil // it has not started yet
	}
	defer closeConn(c)
	var replayed string
	err = c.QueryRow(ctx, `SELECT coalesce(pg_last_wal_replay_lsn(), '0/0')::text,
		pg_get_wal_replay_pause_state() = 'not paused' AND EXISTS (SELECT FROM pg_stat_wal_receiver WHERE status = 'streaming')`).Scan(&replayed, &status.Streaming)
	if err != nil {
		return fmt.Errorf("asking the old server how far it is: %w", err)
	}
	source, err := p.Remote(ctx, m.Source, "postgres")
	if err != nil {
		return nil // it may have stopped already: nothing is wrong with that
	}
	defer closeConn(source)
	var lag int64
	if err := source.QueryRow(ctx, "SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), $1::pg_lsn)::bigint", replayed).Scan(&lag); err != nil {
		return fmt.Errorf("asking %s for its position: %w", m.Source, err)
	}
	lag = max(lag, 0)
	status.LagBytes = &lag
	return nil
}

// finishInPlace does what clients should not come before: extensions are updated, and coarse statistics made, while nobody can write. A
// table whose statistics cannot be made is no reason to keep everybody out for longer. AnalyzeAll makes the rest.
func (p *Place) finishInPlace(ctx context.Context, m *Marker) error {
	local, err := p.Local(ctx, "postgres")
	if err != nil {
		return err
	}
	m.Databases, err = readDatabases(ctx, local)
	closeConn(local)
	if err != nil {
		return err
	}
	if !m.Analyzed {
		end := time.Now().Add(statisticsBound)
		err := p.inEach(ctx, m, func(c *pgx.Conn, database string) error {
			p.Progress("updating extensions and making statistics of " + database)
			if _, err := c.Exec(ctx, "SET statement_timeout = 0"); err != nil {
				return err
			}
			if err := p.updateExtensions(ctx, c, database); err != nil || m.To >= 18 { // to which pg_upgrade brings statistics along
				return err
			}
			left := time.Until(end)
			if left < time.Second {
				p.Log.Warn("Statistics are left for later, since there are many tables", "database", database)
				return nil
			}
			if err := analyze(ctx, c, "1", left); err != nil {
				if ctx.Err() != nil || c.IsClosed() {
					return err
				}
				p.Log.Warn("Statistics could not be made", "database", database, "error", err)
			}
			return nil
		})
		if err != nil {
			return err
		}
		m.Analyzed = true
		if err := m.Write(p.New); err != nil {
			return err
		}
	}
	return p.enter(m, agentapi.SeedFollowing)
}

// analyze makes the statistics of a database, with that target, within so much time; 0: whatever it takes. What was made by then stays.
func analyze(ctx context.Context, c *pgx.Conn, target string, within time.Duration) error {
	for _, statement := range []string{fmt.Sprintf("SET statement_timeout = %d", within.Milliseconds()), "SET default_statistics_target TO " + target, "ANALYZE"} {
		if _, err := c.Exec(ctx, statement); err != nil {
			return fmt.Errorf("making statistics: %w", err)
		}
	}
	return nil
}

// AnalyzeAll makes the statistics of all databases of the server that runs here, after an upgrade in place; clients use it meanwhile.
func AnalyzeAll(ctx context.Context, local opener) error {
	first, err := local(ctx, "postgres")
	if err != nil {
		return err
	}
	databases, err := readDatabases(ctx, first)
	closeConn(first)
	if err != nil {
		return err
	}
	var problems []error
	for _, database := range slices.Sorted(maps.Keys(databases)) {
		c, err := local(ctx, database)
		if err == nil {
			err = errors.Join(analyze(ctx, c, "10", 0), analyze(ctx, c, "default", 0))
			closeConn(c)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("database %s: %w", database, err))
		}
	}
	return errors.Join(problems...)
}
