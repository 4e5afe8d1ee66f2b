package generation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/pgsteward/pgsteward/internal/naming"
)

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
	if err := checkpoint(ctx, first); err != nil {
		return err
	}
	return s.sendersFollow(ctx, first)
}

// checkpoint writes one, so that the shutdown has little to write. It may take minutes: only the context bounds it.
func checkpoint(ctx context.Context, c *pgx.Conn) error {
	for _, statement := range []string{"SET statement_timeout = 0", "CHECKPOINT"} {
		if _, err := c.Exec(ctx, statement); err != nil {
			return fmt.Errorf("writing a checkpoint: %w", err)
		}
	}
	return nil
}

// connect opens the connections that are used in the pause, to every database that is carried over.
func (s *Switch) connect(ctx context.Context, first *pgx.Conn) error {
	databases, err := readDatabases(ctx, first)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(databases)) {
		s.pairs = append(s.pairs, &pair{name: name, oid: databases[name]})
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

// compareAgain looks for what was made or changed since prepare compared, and before clients were ended: databases and roles, with their passwords.
func (s *Switch) compareAgain(ctx context.Context) error {
	c := s.pairs[0].from
	databases, err := readDatabases(ctx, c)
	if err != nil {
		return err
	}
	for _, p := range s.pairs {
		if databases[p.name] != p.oid {
			return fmt.Errorf("database %s was dropped, or made anew, meanwhile", p.name)
		}
		delete(databases, p.name)
	}
	if made := slices.Sorted(maps.Keys(databases)); len(made) > 0 {
		return fmt.Errorf("database %s was made meanwhile, and is not followed; drop it, and make it after the upgrade", made[0])
	}
	missing, err := GlobalDifferences(ctx, c, s.pairs[0].to)
	return errors.Join(err, differ("", missing))
}

// prepareDatabase looks whether both sides have the same, and prepares the way back on the target.
func (s *Switch) prepareDatabase(ctx context.Context, p *pair) error {
	missing, err := Differences(ctx, p.from, p.to)
	if err != nil || len(missing) > 0 {
		return errors.Join(err, differ(p.name, missing))
	}
	if err := s.follows(ctx, p); err != nil {
		return err
	}
	if err := noLargeObjects(ctx, p); err != nil {
		return err
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
