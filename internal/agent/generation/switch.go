package generation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgsteward/pgsteward/internal/naming"
)

const (
	// switchNear is how far a subscription may be behind when writes are paused.
	switchNear = 16 << 20
	// drainPoll is how often it is looked whether everything has arrived.
	drainPoll = 10 * time.Millisecond
	// undoBound bounds putting right on the target what a switch that came to nothing did there.
	undoBound = 10 * time.Second
)

// Switch moves the writes from the server that runs here to the detached one of the other generation, as the package comment says.
type Switch struct {
	Log *slog.Logger
	// ID is the upgrade's. Target is the instance that gets the writes.
	ID, Target string
	// Reverse keeps the way back: slots are made on the target.
	Reverse bool
	// Announce tells the target that the writes come, when nothing but the pause is left to do, and says when writes may be paused.
	Announce func(ctx context.Context) time.Time
	// MaxPause is how long writes may pause before nothing has been given away.
	MaxPause time.Duration
	// Local and Remote open connections of superusers here and on the target.
	Local, Remote func(ctx context.Context, database string) (*pgx.Conn, error)
	// Confirm says whether the Lease can be given away: that the API server has renewed it just now.
	Confirm func(ctx context.Context) error
	// Close keeps clients out, or lets them in again, and returns when that is in force.
	Close func(ctx context.Context, closed bool) error
	// Stop stops PostgreSQL here; it stays stopped until Run returns. HandOver makes the target the holder of the Lease.
	Stop     func(ctx context.Context) error
	HandOver func(ctx context.Context) error
	// NextXID is the next transaction, as the server that is stopped here has noted it.
	NextXID func() (uint64, error)
	// Mark writes to the volume that this server is the origin, with the slots that the target has for it; Unmark that it is not.
	Mark   func(reverse map[string]string) error
	Unmark func() error

	pairs []*pair
	// last is the transaction of which everything before it has arrived.
	last uint64
	// began is when writes were paused, and steps are what was done since, each with when it was.
	began time.Time
	steps []any
}

// ErrUnknown is that of HandOver when nobody says whether it came to pass. Then nothing is undone: the other server may have the writes,
// and what is only prepared there its own agent takes back (Join).
var ErrUnknown = errors.New("whether the lease was given away is not known")

// pair is one database on both sides.
type pair struct {
	name     string
	oid      uint32
	from, to *pgx.Conn
	// reverse is the position of the slot for the way back.
	reverse string
}

// Run moves the writes, and says for how long they paused: also if it came to nothing, and the error says why. Nothing is lost then.
func (s *Switch) Run(ctx context.Context) (pause time.Duration, err error) {
	defer s.disconnect()
	if err := s.prepare(ctx); err != nil {
		return 0, err
	}
	if err := wait(ctx, time.Until(s.Announce(ctx))); err != nil {
		return 0, err
	}
	if err := s.confirm(ctx); err != nil {
		return 0, err
	}
	s.began = time.Now()
	defer func() { s.Log.Info("Writes were paused", append([]any{"for", pause.String()}, s.steps...)...) }()
	bounded, cancel := context.WithDeadline(ctx, s.began.Add(s.MaxPause))
	defer cancel()
	if err := s.move(bounded); err != nil {
		s.undo(ctx)
		if bounded.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("not done within %s, for which writes may pause: %w", s.MaxPause, err)
		}
		return time.Since(s.began), err
	}
	// From here on the bound does not count: nobody can write here any more, and all that was written has arrived.
	if err := s.give(ctx); err != nil {
		if !errors.Is(err, ErrUnknown) {
			s.undo(ctx)
		}
		return time.Since(s.began), err
	}
	return time.Since(s.began), nil
}

// did takes note of a step of the pause.
func (s *Switch) did(step string) {
	s.steps = append(s.steps, step, time.Since(s.began).Round(time.Millisecond).String())
}

// move keeps clients out, waits until everything has arrived, and makes the target ready.
func (s *Switch) move(ctx context.Context) error {
	if err := s.Close(ctx, true); err != nil {
		return fmt.Errorf("keeping clients out: %w", err)
	}
	s.did("closed")
	if err := s.endClients(ctx); err != nil {
		return err
	}
	s.did("ended")
	if err := s.drain(ctx); err != nil {
		return err
	}
	s.did("drained")
	if err := s.compareAgain(ctx); err != nil {
		return err
	}
	s.did("compared")
	if err := s.each(ctx, s.moveDatabase); err != nil {
		return err
	}
	s.did("moved")
	left, err := s.clients(ctx)
	if err == nil && left > 0 {
		err = fmt.Errorf("%d clients came in between", left)
	}
	if err != nil {
		return err
	}
	if err := s.endSenders(ctx); err != nil {
		return err
	}
	s.did("sent")
	if err := s.confirm(ctx); err != nil {
		return err
	}
	s.did("confirmed")
	return nil
}

// confirm looks whether the Lease can be moved. Without the API server it cannot, and this server would stay closed, or stopped, until that
// is back. It is asked before writes are paused, and once more before the server is stopped, which takes longer to take back.
func (s *Switch) confirm(ctx context.Context) error {
	if err := s.Confirm(ctx); err != nil {
		return fmt.Errorf("the Lease cannot be moved just now: %w", err)
	}
	return nil
}

// moveDatabase ends the way there, sets the sequences, and begins the way back.
func (s *Switch) moveDatabase(ctx context.Context, p *pair) error {
	if err := noLargeObjects(ctx, p); err != nil { // again: no client is left that could make one
		return err
	}
	subscription := pgx.Identifier{naming.UpgradeSlot(s.ID, p.oid)}.Sanitize()
	if _, err := p.to.Exec(ctx, "ALTER SUBSCRIPTION "+subscription+" DISABLE"); err != nil {
		return fmt.Errorf("database %s: ending the subscription: %w", p.name, err)
	}
	if err := CopySequences(ctx, p.from, p.to); err != nil {
		return fmt.Errorf("database %s: %w", p.name, err)
	}
	if !s.Reverse {
		return nil
	}
	var oid uint32
	if err := p.to.QueryRow(ctx, "SELECT oid FROM pg_database WHERE datname = current_database()").Scan(&oid); err != nil {
		return fmt.Errorf("database %s: %w", p.name, err)
	}
	err := p.to.QueryRow(ctx, "SELECT lsn::text FROM pg_create_logical_replication_slot($1, 'pgoutput')", naming.UpgradeSlot(s.ID, oid)).Scan(&p.reverse)
	if err != nil {
		return fmt.Errorf("database %s: making the slot for the way back: %w", p.name, err)
	}
	return nil
}

// give stops PostgreSQL here and gives the Lease to the target.
func (s *Switch) give(ctx context.Context) error {
	if err := s.Stop(ctx); err != nil {
		return fmt.Errorf("stopping PostgreSQL: %w", err)
	}
	s.did("stopped")
	if err := s.nothingCame(); err != nil {
		return err
	}
	reverse := map[string]string{}
	for _, p := range s.pairs {
		if p.reverse != "" {
			reverse[p.name] = p.reverse
		}
	}
	if err := s.Mark(reverse); err != nil {
		return err
	}
	err := s.HandOver(ctx)
	if err != nil && !errors.Is(err, ErrUnknown) {
		err = errors.Join(err, s.Unmark())
	}
	return err
}

// undo lets clients in again, and puts the target right as far as that can be done from here; the rest its own agent does.
func (s *Switch) undo(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoBound)
	defer cancel()
	opened := make(chan error, 1)
	go func() { opened <- s.Close(ctx, false) }()
	err := s.each(ctx, func(ctx context.Context, p *pair) error {
		c, err := s.Remote(ctx, p.name) // the one in use may have been broken by the bound
		if err != nil {
			return err
		}
		defer func() { _ = c.Close(ctx) }()
		_, err = c.Exec(ctx, "ALTER SUBSCRIPTION "+pgx.Identifier{naming.UpgradeSlot(s.ID, p.oid)}.Sanitize()+" ENABLE")
		_, dropped := c.Exec(ctx, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
			WHERE slot_name = (SELECT $1 || oid FROM pg_database WHERE datname = current_database()) AND NOT active`, naming.UpgradeSlots(s.ID))
		return errors.Join(err, dropped)
	})
	if err = errors.Join(err, <-opened); err != nil {
		s.Log.Warn("Undoing a switchover is not finished", "error", err)
	}
}

// each does something for every database, all at once.
func (s *Switch) each(ctx context.Context, do func(context.Context, *pair) error) error {
	errs := make([]error, len(s.pairs))
	var group sync.WaitGroup
	for n, p := range s.pairs {
		group.Go(func() { errs[n] = do(ctx, p) })
	}
	group.Wait()
	return errors.Join(errs...)
}

func (s *Switch) disconnect() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, p := range s.pairs {
		for _, c := range []*pgx.Conn{p.from, p.to} {
			if c != nil {
				_ = c.Close(ctx)
			}
		}
	}
}
