package generation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgsteward/pgsteward/internal/agentapi"
)

const (
	// offlinePrepare bounds what comes before the pause: most of it is a checkpoint.
	offlinePrepare = 5 * time.Minute
	// offlineEnd bounds the end of clients' sessions.
	offlineEnd = 10 * time.Second
	// offlinePoll is how often the target is asked how far it is.
	offlinePoll = 250 * time.Millisecond
	// offlineSilence is for how long nothing may be heard of it: its agent may be started anew.
	offlineSilence = 3 * time.Minute
)

// Offline moves the writes to a standby that goes through pg_upgrade while PostgreSQL is stopped here, as the package comment says.
type Offline struct {
	Log *slog.Logger
	// Target is the instance that gets the writes.
	Target string
	// MaxPause is how long PostgreSQL may be stopped here before nothing has been given away.
	MaxPause time.Duration
	// Local opens a connection of the superuser to a database here.
	Local func(ctx context.Context, database string) (*pgx.Conn, error)
	// Ask asks the target how far it is, and for the PostgreSQL system that it runs; empty: it does not run. Tell tells it where PostgreSQL
	// has stopped here; as often as one likes.
	Ask  func(ctx context.Context) (seed agentapi.SeedStatus, system string, err error)
	Tell func(ctx context.Context, position string) error
	// Confirm, Close, Stop, Mark and Unmark are as in Switch; Stopped is the beginning of the record of the last checkpoint of the server
	// that was stopped in an orderly way. HandOver makes the target, with that system, the holder of the Lease.
	Confirm      func(ctx context.Context) error
	Close        func(ctx context.Context, closed bool) error
	Stop         func(ctx context.Context) error
	Stopped      func() (string, error)
	Mark, Unmark func() error
	HandOver     func(ctx context.Context, system string) error
}

// Run moves the writes, and says for how long they paused: also if it came to nothing, and the error says why. Nothing is lost then, since
// nothing has changed here.
func (o *Offline) Run(ctx context.Context) (pause time.Duration, err error) {
	c, err := o.Local(ctx, "postgres")
	if err != nil {
		return 0, err
	}
	defer closeConn(c)
	if err := o.prepare(ctx, c); err != nil {
		return 0, err
	}
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, o.MaxPause)
	defer cancel()
	err = o.move(bounded, c)
	if err != nil && !errors.Is(err, ErrUnknown) {
		undoing, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoBound)
		defer cancel()
		if err := errors.Join(o.Unmark(), o.Close(undoing, false)); err != nil {
			o.Log.Warn("Undoing a switchover is not finished", "error", err)
		}
	}
	return time.Since(began), err
}

// prepare looks whether the target could begin at once.
func (o *Offline) prepare(ctx context.Context, c *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, offlinePrepare)
	defer cancel()
	seed, _, err := o.Ask(ctx)
	switch {
	case err != nil:
		return err
	case seed.Stage != agentapi.SeedStreaming || !seed.Streaming || seed.LagBytes == nil || *seed.LagBytes > switchNear:
		return fmt.Errorf("%s does not follow closely", o.Target)
	}
	if err := noPrepared(ctx, c); err != nil {
		return err
	}
	if err := checkpoint(ctx, c); err != nil {
		return err
	}
	return o.confirm(ctx)
}

// confirm looks whether the Lease can be moved, as in Switch.
func (o *Offline) confirm(ctx context.Context) error {
	if err := o.Confirm(ctx); err != nil {
		return fmt.Errorf("the Lease cannot be moved just now: %w", err)
	}
	return nil
}

// noPrepared: pg_upgrade refuses prepared transactions.
func noPrepared(ctx context.Context, c *pgx.Conn) error {
	var prepared int
	if err := c.QueryRow(ctx, "SELECT count(*) FROM pg_prepared_xacts").Scan(&prepared); err != nil {
		return fmt.Errorf("looking for prepared transactions: %w", err)
	}
	if prepared > 0 {
		return fmt.Errorf("there are %d prepared transactions, which cannot be carried over; commit or roll them back (pg_prepared_xacts)", prepared)
	}
	return nil
}

// move stops PostgreSQL here, waits until the target is of the other version, and gives it the Lease. Whoever writes after the last look at
// clients loses nothing: the target has everything up to the last record.
func (o *Offline) move(ctx context.Context, c *pgx.Conn) error {
	if err := o.Close(ctx, true); err != nil {
		return fmt.Errorf("keeping clients out: %w", err)
	}
	if err := o.endClients(ctx, c); err != nil {
		return err
	}
	if err := o.Stop(ctx); err != nil {
		return fmt.Errorf("stopping PostgreSQL: %w", err)
	}
	position, err := o.Stopped()
	if err != nil {
		return err
	}
	o.Log.Info("PostgreSQL is stopped, so that the target can be converted", "target", o.Target, "position", position)
	system, err := o.converted(ctx, position)
	if err != nil {
		return err
	}
	if err := o.Mark(); err != nil {
		return err
	}
	return o.HandOver(ctx, system)
}

// endClients ends all sessions, and looks once more for what pg_upgrade would refuse and the API server, before the server is stopped.
func (o *Offline) endClients(ctx context.Context, c *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, offlineEnd)
	defer cancel()
	clients := &Switch{pairs: []*pair{{name: "postgres", from: c}}}
	if err := clients.endClients(ctx); err != nil {
		return err
	}
	if err := noPrepared(ctx, c); err != nil {
		return err
	}
	return o.confirm(ctx)
}

// converted waits until the target is made of what there was at the position, and says which system it runs then.
func (o *Offline) converted(ctx context.Context, position string) (string, error) {
	var why string
	heard := time.Now()
	for {
		seed, system, err := o.Ask(ctx)
		if err == nil {
			heard = time.Now()
		}
		switch {
		case err != nil && time.Since(heard) > offlineSilence:
			return "", fmt.Errorf("nothing was heard of %s for %s: %w", o.Target, offlineSilence, err)
		case err != nil:
			why = err.Error()
		case seed.Stage == agentapi.SeedFailed && seed.Problem != nil:
			return "", fmt.Errorf("%s: %s", o.Target, seed.Problem.Message)
		case seed.Stage == agentapi.SeedFailed:
			return "", fmt.Errorf("%s has failed", o.Target)
		case seed.Position != "" && seed.Position != position:
			return "", fmt.Errorf("%s was made of what there was at %s, while PostgreSQL has stopped at %s", o.Target, seed.Position, position)
		case seed.Stage == agentapi.SeedStreaming:
			why = "it was not told"
			if err := o.Tell(ctx, position); err != nil {
				why = err.Error()
			}
		case seed.Stage == agentapi.SeedFollowing && seed.Position == position && system != "":
			return system, nil
		default:
			why = string(seed.Stage) + " " + seed.Step
		}
		if err := wait(ctx, offlinePoll); err != nil {
			return "", fmt.Errorf("%s was not converted within %s, for which PostgreSQL may be stopped: %s", o.Target, o.MaxPause, why)
		}
	}
}
