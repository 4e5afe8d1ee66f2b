package datadir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pgsteward/pgsteward/internal/postgres"
)

// A recovery in place makes data beside the present, which goes on meanwhile (RecoverBeside), and then puts it in its place (ReplaceInPlace). What was
// there before is kept until a server has run on the recovered data (DropBefore), so that there is a way back (GoBack). At each moment, and
// after a crash in each step (RemoveLeftovers), the data directory is the one or the other, and its file tells which.

// recoveredFile has, in a data directory, the name of the recovery in place that has made it.
const recoveredFile = "pgsteward.recovered"

func (v *Volume) beside() string   { return v.Dir() + ".recovered" }
func (v *Volume) before() string   { return v.Dir() + ".before" }
func (v *Volume) dropping() string { return v.Dir() + ".dropping" }

func wrapped(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// RecoverBeside makes the data of the recovery in place of that name.
func (s *Seeder) RecoverBeside(ctx context.Context, name string, r Recovery) error {
	volume := s.Volume
	target := volume.beside()
	if err := os.RemoveAll(target); err != nil {
		return fmt.Errorf("removing an unfinished data directory: %w", err)
	}
	if err := s.recoverTo(ctx, target, r); err != nil {
		return err
	}
	return volume.WriteFile(filepath.Join(target, recoveredFile), []byte(name))
}

// Beside is the data that RecoverBeside has made: for which recovery, and its control file. An empty name: there is none, or it is not complete.
func (v *Volume) Beside() (string, postgres.Control, error) {
	name, err := recoveredBy(v.beside())
	if err != nil || name == "" {
		return "", postgres.Control{}, err
	}
	content, err := os.ReadFile(filepath.Join(v.beside(), postgres.ControlFile))
	if err != nil {
		return "", postgres.Control{}, fmt.Errorf("reading the control file of the recovered data: %w", err)
	}
	control, err := postgres.ParseControl(content)
	return name, control, err
}

// RecoveredBy is the name of the recovery in place that has made the data directory; empty: none has.
func (v *Volume) RecoveredBy() (string, error) { return recoveredBy(v.Dir()) }

func recoveredBy(directory string) (string, error) {
	content, err := os.ReadFile(filepath.Join(directory, recoveredFile))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return string(content), wrapped("reading which recovery has made the data", err)
}

// HasBefore says whether the data is kept that was replaced, HasBeside whether there is any beside the present.
func (v *Volume) HasBefore() (bool, error) { return exists(v.before()) }

// HasBeside says whether there is data beside the present, complete or not, or the rest of what was being removed.
func (v *Volume) HasBeside() (bool, error) {
	beside, err := exists(v.beside())
	dropping, errDropping := exists(v.dropping())
	return beside || dropping, errors.Join(err, errDropping)
}

// ReplaceInPlace puts the recovered data in the place of the present, which is kept. No server runs on either.
func (v *Volume) ReplaceInPlace() error {
	if kept, err := v.HasBefore(); err != nil || kept {
		return errors.Join(err, errors.New("replacing the data directory: what was replaced before is still kept"))
	}
	if err := os.Rename(v.Dir(), v.before()); err != nil {
		return fmt.Errorf("replacing the data directory: %w", err)
	}
	if err := os.Rename(v.beside(), v.Dir()); err != nil {
		return fmt.Errorf("replacing the data directory: %w", err)
	}
	return syncDirectory(v.root())
}

// GoBack puts back what was there before. No server runs on either, and none has on the recovered data.
func (v *Volume) GoBack() error {
	if err := os.RemoveAll(v.dropping()); err != nil {
		return fmt.Errorf("putting back the data directory: %w", err)
	}
	if err := os.Rename(v.Dir(), v.dropping()); err != nil {
		return fmt.Errorf("putting back the data directory: %w", err)
	}
	if err := os.Rename(v.before(), v.Dir()); err != nil {
		return fmt.Errorf("putting back the data directory: %w", err)
	}
	return syncDirectory(v.root())
}

// DropBefore removes what was replaced, DropBeside what is beside the present. Both may take long.
func (v *Volume) DropBefore() error { return v.drop(v.before()) }

// DropBeside removes what is beside the present.
func (v *Volume) DropBeside() error { return v.drop(v.beside()) }

// drop removes a directory, of which a crash leaves nothing that could be taken for one that is whole.
func (v *Volume) drop(path string) error {
	if err := os.RemoveAll(v.dropping()); err != nil {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	if err := os.Rename(path, v.dropping()); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("removing %s: %w", path, err)
	}
	if err := syncDirectory(v.root()); err != nil {
		return err
	}
	return wrapped("removing "+path, os.RemoveAll(v.dropping()))
}
