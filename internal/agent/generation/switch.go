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
	// MaxPause is how long writes may pause before nothing has been given away.
	MaxPause time.Duration
	// Local and Remote open connections of superusers here and on the target.
	Local, Remote func(ctx context.Context, database string) (*pgx.Conn, error)
	// Close keeps clients out, or lets them in again, and returns when that is in force.
	Close func(ctx context.Context, closed bool) error
	// Stop stops PostgreSQL here; it stays stopped until Run returns. HandOver makes the target the holder of the Lease.
	Stop     func(ctx context.Context) error
	HandOver func(ctx context.Context) error
	// Mark writes to the volume that this server is the origin, with the slots that the target has for it; Unmark that it is not.
	Mark   func(reverse map[string]string) error
	Unmark func() error

	pairs []*pair
}

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
	began := time.Now()
	bounded, cancel := context.WithDeadline(ctx, began.Add(s.MaxPause))
	defer cancel()
	if err := s.move(bounded); err != nil {
		s.undo(ctx)
		if bounded.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("not done within %s, for which writes may pause: %w", s.MaxPause, err)
		}
		return time.Since(began), err
	}
	// From here on the bound does not count: nobody can write here any more, and all that was written has arrived.
	if err := s.give(ctx); err != nil {
		s.undo(ctx)
		return time.Since(began), err
	}
	return time.Since(began), nil
}

// prepare does what needs no pause, and looks whether the rest will go well.
func (s *Switch) prepare(ctx context.Context) error {
	first, err := s.Local(ctx, "postgres")
	if err != nil {
		return err
	}
	defer func() { _ = first.Close(context.WithoutCancel(ctx)) }()
	if err := s.connect(ctx, first); err != nil {
		return err
	}
	var prepared int
	if err := first.QueryRow(ctx, "SELECT count(*) FROM pg_prepared_xacts").Scan(&prepared); err != nil {
		return fmt.Errorf("looking for prepared transactions: %w", err)
	}
	if prepared > 0 {
		return fmt.Errorf("there are %d prepared transactions, which would be lost; commit or roll them back (pg_prepared_xacts)", prepared)
	}
	if err := s.behind(ctx, first, switchNear); err != nil {
		return err
	}
	if err := s.each(ctx, s.prepareDatabase); err != nil {
		return err
	}
	if missing, err := GlobalDifferences(ctx, s.pairs[0].from, s.pairs[0].to); err != nil || len(missing) > 0 {
		return errors.Join(err, differ("", missing))
	}
	if _, err := first.Exec(ctx, "CHECKPOINT"); err != nil { // so that the shutdown has little to write
		return fmt.Errorf("writing a checkpoint: %w", err)
	}
	return nil
}

// connect opens the connections that are used in the pause, to every database that is carried over.
func (s *Switch) connect(ctx context.Context, first *pgx.Conn) error {
	rows, err := first.Query(ctx, "SELECT datname, oid FROM pg_database WHERE NOT datistemplate AND datallowconn ORDER BY 1")
	if err != nil {
		return fmt.Errorf("looking for databases: %w", err)
	}
	s.pairs, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (*pair, error) {
		p := &pair{}
		return p, row.Scan(&p.name, &p.oid)
	})
	if err != nil {
		return fmt.Errorf("looking for databases: %w", err)
	}
	return s.each(ctx, func(ctx context.Context, p *pair) (err error) {
		if p.from, err = s.Local(ctx, p.name); err != nil {
			return err
		}
		if p.to, err = s.Remote(ctx, p.name); err != nil {
			return fmt.Errorf("connecting to %s, database %s: %w", s.Target, p.name, err)
		}
		return nil
	})
}

// prepareDatabase looks whether both sides have the same, and prepares the way back on the target.
func (s *Switch) prepareDatabase(ctx context.Context, p *pair) error {
	missing, err := Differences(ctx, p.from, p.to)
	if err != nil || len(missing) > 0 {
		return errors.Join(err, differ(p.name, missing))
	}
	if !s.Reverse {
		return nil
	}
	if err := InstallDDLGuard(ctx, p.to); err != nil { // what is changed there now would be missing on the way back
		return err
	}
	if err := FixIdentities(ctx, p.to); err != nil {
		return err
	}
	return ensurePublication(ctx, p.to)
}

func differ(database string, missing []string) error {
	if len(missing) == 0 {
		return nil
	}
	where := "the new server"
	if database != "" {
		where += ", database " + database + ","
	}
	return fmt.Errorf("%s lacks what was made since it was: %v; remove it, or make it there too", where, missing[:min(len(missing), 10)])
}

// behind says which subscription is not active, or too far behind.
func (s *Switch) behind(ctx context.Context, c *pgx.Conn, near int64) error {
	for _, p := range s.pairs {
		var active bool
		var lag int64
		err := c.QueryRow(ctx, `SELECT active, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), confirmed_flush_lsn)::bigint
			FROM pg_replication_slots WHERE slot_name = $1`, naming.UpgradeSlot(s.ID, p.oid)).Scan(&active, &lag)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return fmt.Errorf("database %s has no replication slot %s", p.name, naming.UpgradeSlot(s.ID, p.oid))
		case err != nil:
			return fmt.Errorf("looking at the replication slots: %w", err)
		case !active:
			return fmt.Errorf("%s does not follow database %s", s.Target, p.name)
		case lag > near:
			return fmt.Errorf("%s is %d bytes behind in database %s", s.Target, lag, p.name)
		}
	}
	return nil
}

// move keeps clients out, waits until everything has arrived, and makes the target ready.
func (s *Switch) move(ctx context.Context) error {
	if err := s.Close(ctx, true); err != nil {
		return fmt.Errorf("keeping clients out: %w", err)
	}
	if err := s.endClients(ctx); err != nil {
		return err
	}
	if err := s.drain(ctx); err != nil {
		return err
	}
	if err := s.each(ctx, s.moveDatabase); err != nil {
		return err
	}
	left, err := s.clients(ctx)
	if err == nil && left > 0 {
		err = fmt.Errorf("%d clients came in between", left)
	}
	return err
}

// others are the sessions that may write: all but those of the agents.
const others = `FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
	AND usename IS DISTINCT FROM '` + naming.UpgradeUser + `' AND NOT (application_name LIKE 'pgsteward%' AND client_addr IS NULL)`

func (s *Switch) clients(ctx context.Context) (left int, err error) {
	if err := s.pairs[0].from.QueryRow(ctx, "SELECT count(*) "+others).Scan(&left); err != nil {
		return 0, fmt.Errorf("looking for clients: %w", err)
	}
	return left, nil
}

// endClients ends all clients' sessions; none comes any more.
func (s *Switch) endClients(ctx context.Context) error {
	for quiet := 0; quiet < 2; {
		var ended int
		if err := s.pairs[0].from.QueryRow(ctx, "SELECT count(pg_terminate_backend(pid)) "+others).Scan(&ended); err != nil {
			return fmt.Errorf("ending clients' sessions: %w", err)
		}
		if quiet++; ended > 0 {
			quiet = 0
		}
		if err := wait(ctx, drainPoll); err != nil {
			return errors.New("clients' sessions did not end")
		}
	}
	return nil
}

// drain waits until everything that was ever committed here has arrived there.
func (s *Switch) drain(ctx context.Context) error {
	c := s.pairs[0].from
	// its commit flushes all that was committed before
	if _, err := c.Exec(ctx, "SELECT pg_logical_emit_message(true, 'pgsteward', 'switchover')"); err != nil {
		return fmt.Errorf("writing the last record: %w", err)
	}
	var end string
	if err := c.QueryRow(ctx, "SELECT pg_current_wal_flush_lsn()::text").Scan(&end); err != nil {
		return fmt.Errorf("asking for the last position: %w", err)
	}
	var names []string
	for _, p := range s.pairs {
		names = append(names, naming.UpgradeSlot(s.ID, p.oid))
	}
	for {
		var arrived int
		err := c.QueryRow(ctx, "SELECT count(*) FROM pg_replication_slots WHERE slot_name = ANY($1) AND confirmed_flush_lsn >= $2::pg_lsn",
			names, end).Scan(&arrived)
		if err != nil {
			return fmt.Errorf("waiting until everything has arrived: %w", err)
		}
		if arrived == len(names) {
			return nil
		}
		// a subscription commits without waiting for its disk, and confirms what is there: this commit makes it be
		if _, err := s.pairs[0].to.Exec(ctx, "SELECT pg_logical_emit_message(true, 'pgsteward', 'switchover')"); err != nil {
			return fmt.Errorf("waiting until everything has arrived: %w", err)
		}
		if err := wait(ctx, drainPoll); err != nil {
			return fmt.Errorf("%s did not receive everything in time", s.Target)
		}
	}
}

// moveDatabase ends the way there, sets the sequences, and begins the way back.
func (s *Switch) moveDatabase(ctx context.Context, p *pair) error {
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
	reverse := map[string]string{}
	for _, p := range s.pairs {
		if p.reverse != "" {
			reverse[p.name] = p.reverse
		}
	}
	if err := s.Mark(reverse); err != nil {
		return err
	}
	if err := s.HandOver(ctx); err != nil {
		return errors.Join(err, s.Unmark())
	}
	return nil
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

// DropForward drops the subscriptions by which the server that runs here got its writes, when it has them all: their source is stopped.
func DropForward(ctx context.Context, local func(ctx context.Context, database string) (*pgx.Conn, error), id string) error {
	first, err := local(ctx, "postgres")
	if err != nil {
		return err
	}
	defer func() { _ = first.Close(context.WithoutCancel(ctx)) }()
	rows, err := first.Query(ctx, `SELECT d.datname, s.subname FROM pg_subscription s JOIN pg_database d ON d.oid = s.subdbid
		WHERE starts_with(s.subname, $1)`, naming.UpgradeSlots(id))
	if err != nil {
		return fmt.Errorf("looking for subscriptions: %w", err)
	}
	type subscription struct{ Datname, Subname string }
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[subscription])
	if err != nil {
		return fmt.Errorf("looking for subscriptions: %w", err)
	}
	for _, f := range found {
		if err := dropSubscription(ctx, local, f.Datname, f.Subname); err != nil {
			return err
		}
	}
	return nil
}

func dropSubscription(ctx context.Context, local func(ctx context.Context, database string) (*pgx.Conn, error), database, subscription string) error {
	c, err := local(ctx, database)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	name := pgx.Identifier{subscription}.Sanitize()
	for _, statement := range []string{" DISABLE", " SET (slot_name = NONE)"} {
		if _, err := c.Exec(ctx, "ALTER SUBSCRIPTION "+name+statement); err != nil {
			return fmt.Errorf("database %s: dropping the subscription: %w", database, err)
		}
	}
	if _, err := c.Exec(ctx, "DROP SUBSCRIPTION "+name); err != nil {
		return fmt.Errorf("database %s: dropping the subscription: %w", database, err)
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
