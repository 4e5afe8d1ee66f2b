package datadir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pgsteward/pgsteward/internal/postgres"
)

// ErrNoRewind is that the image has no pg_rewind.
var ErrNoRewind = errors.New("the image has no pg_rewind")

// Rewind undoes what the data directory has and the server that the connection string names does not, so that it can follow
// that server (https://www.postgresql.org/docs/current/app-pgrewind.html). The data directory's server must not run.
//
// A rewind that cannot be is found out by a trial, which touches nothing. From the moment before it touches the first file
// until all is done a file beside the directory says so (Found.Torn): what a crash leaves must never be started.
func (s *Seeder) Rewind(ctx context.Context, conninfo string) error {
	if s.Programs.Rewind == "" {
		return ErrNoRewind
	}
	volume := s.Volume
	if err := volume.RemovePIDFile(); err != nil {
		return err
	}
	if err := s.recover(ctx); err != nil {
		return err
	}
	args := []string{"--target-pgdata=" + volume.Dir(), "--source-server=" + conninfo}
	if err := s.run(ctx, s.Programs.Rewind, append(args, "--dry-run")...); err != nil {
		return err
	}
	if err := volume.WriteFile(volume.rewinding(), nil); err != nil {
		return err
	}
	if err := s.run(ctx, s.Programs.Rewind, append(args, "--no-ensure-shutdown")...); err != nil {
		return err
	}
	if err := volume.SetStandby(true); err != nil {
		return err
	}
	return volume.whole()
}

// recover brings a directory that was a primary's to the end of its own WAL, if it was not shut down: pg_rewind must know how
// far it came. A standby's is left to a start as a standby: ended by itself it would write to the timeline of its primary.
func (s *Seeder) recover(ctx context.Context) error {
	found, err := s.Volume.Inspect()
	if err != nil {
		return err
	}
	state := found.Control.State
	if state == postgres.StateShutdown || state == postgres.StateShutdownInRecovery {
		return nil
	}
	if found.Standby {
		return errors.New("a standby that was not shut down cannot be rewound")
	}
	if err := s.run(ctx, s.Programs.Postgres, "--single", "-D", s.Volume.Dir(), "template1"); err != nil {
		return fmt.Errorf("recovering before the rewind: %w", err)
	}
	return nil
}

// whole takes note that the data directory can be used.
func (v *Volume) whole() error {
	if err := os.Remove(v.rewinding()); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("taking note that the data is complete: %w", err)
	}
	return syncDirectory(filepath.Dir(v.rewinding()))
}
