package generation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/agent/supervise"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// convertSpace is what pg_upgrade needs beside the old data for the system itself, and for the catalogs of each database.
const (
	convertSpace         = 256 << 20
	convertSpaceDatabase = 16 << 20
)

// convert runs pg_upgrade (https://www.postgresql.org/docs/current/pgupgrade.html) with hard links, and puts the new data directory in its place.
func (p *Place) convert(ctx context.Context, m *Marker) error {
	if !m.Converted {
		if err := p.readyToConvert(ctx, m); err != nil {
			return err
		}
		if err := p.runConversion(ctx, m); err != nil {
			return err
		}
		m.Converted = true
		if err := m.Write(p.New); err != nil {
			return err
		}
	}
	if datadir.MajorOf(p.New.Seeding()) == m.To {
		if err := p.seeder().Adopt(); err != nil {
			return err
		}
	}
	if datadir.MajorOf(p.New.Dir()) != m.To {
		return over(reasonConvert, "the converted data directory is gone")
	}
	// The old one shares its files with the new: it can never be started again.
	return p.Old.Remove()
}

// readyToConvert looks at what an earlier run has left, and for room.
func (p *Place) readyToConvert(ctx context.Context, m *Marker) error {
	if m.Linked {
		if p.isLinked() || m.Method == agentapi.MethodInPlace { // a source that is stopped cannot be asked what to begin again with
			return over(reasonConvert, "pg_upgrade was interrupted when it had begun to link the data files; the data is copied anew")
		}
		if err := os.RemoveAll(p.New.Seeding()); err != nil {
			return fmt.Errorf("removing what pg_upgrade left: %w", err)
		}
		m.Linked = false
		if err := m.Write(p.New); err != nil {
			return err
		}
	}
	if err := p.roomToConvert(m); err != nil {
		return err
	}
	if err := p.makeAlone(); err != nil {
		return err
	}
	return p.makeEmpty(ctx, m)
}

// roomToConvert says, in figures, that there is no room for pg_upgrade.
func (p *Place) roomToConvert(m *Marker) error {
	_, free, err := p.New.Space()
	if err != nil {
		return err
	}
	if need := int64(convertSpace + convertSpaceDatabase*len(m.Databases)); free < need {
		return over(reasonSpace, fmt.Sprintf("pg_upgrade needs %d MiB free on the volume of %s, which has %d MiB: raise spec.storage.size",
			need>>20, p.Instance, free>>20))
	}
	return nil
}

// isLinked says whether pg_upgrade has begun to link: it takes the old control file away before.
func (p *Place) isLinked() bool {
	_, err := os.Stat(filepath.Join(p.Old.Dir(), postgres.ControlFile))
	return err != nil
}

func (p *Place) runConversion(ctx context.Context, m *Marker) error {
	if err := p.trustAlone(); err != nil {
		return err
	}
	if m.Method != agentapi.MethodInPlace { // of which the standby was checked: pg_upgrade itself looks again before it links
		p.Progress("checking with pg_upgrade")
		if err := p.pgUpgrade(ctx, "--check"); err != nil {
			return err
		}
	}
	m.Linked = true
	if err := m.Write(p.New); err != nil {
		return err
	}
	p.Progress("converting with pg_upgrade")
	return p.pgUpgrade(ctx)
}

// trustAlone lets pg_upgrade into the new system.
func (p *Place) trustAlone() error {
	return p.New.WriteFile(filepath.Join(p.New.Seeding(), "pg_hba.conf"), []byte(localTrust))
}

// checkStandby has pg_upgrade look at the old server, which runs as a standby: of a server that runs it needs nothing but answers.
func (p *Place) checkStandby(ctx context.Context) error {
	if err := p.trustAlone(); err != nil {
		return err
	}
	p.Progress("checking with pg_upgrade")
	defer supervise.EndIn(p.New.Seeding(), stopOldBound) // which it starts, and leaves behind when it is ended
	return p.runPgUpgrade(ctx, "--check", fmt.Sprintf("--new-port=%d", p.Port+1))
}

// pgUpgrade runs it while no server works on either data directory.
func (p *Place) pgUpgrade(ctx context.Context, more ...string) error {
	if err := p.endAll(); err != nil {
		return err
	}
	err := p.runPgUpgrade(ctx, more...)
	if ctx.Err() != nil {
		return errors.Join(err, p.endAll())
	}
	return err
}

// runPgUpgrade runs it. What it says is the end of the attempt: it would say it again.
func (p *Place) runPgUpgrade(ctx context.Context, more ...string) error {
	program, err := p.program("pg_upgrade")
	if err != nil {
		return over(reasonImage, err.Error())
	}
	old, err := p.oldProgram("pg_ctl")
	if err != nil {
		return over(reasonImage, err.Error())
	}
	if err := os.RemoveAll(filepath.Join(p.New.Seeding(), "pg_upgrade_output.d")); err != nil {
		return fmt.Errorf("removing what pg_upgrade wrote before: %w", err)
	}
	cmd := p.Children.Command(ctx, program, append([]string{
		"--old-bindir=" + filepath.Dir(old), "--new-bindir=" + filepath.Dir(program),
		"--old-datadir=" + p.Old.Dir(), "--new-datadir=" + p.New.Seeding(), "--link", "--username=" + naming.Superuser,
		"--socketdir=" + p.alone(), fmt.Sprintf("--old-port=%d", p.Port), fmt.Sprintf("--new-port=%d", p.Port),
		fmt.Sprintf("--jobs=%d", max(1, runtime.NumCPU()/2)),
	}, more...)...)
	cmd.Dir = p.alone()
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "PG") && !strings.HasPrefix(variable, "PGSTEWARD")
	}),
		"LC_ALL=C.UTF-8", "LANG=C.UTF-8")
	var said ending
	cmd.Stdout, cmd.Stderr = &said, &said
	err = p.Children.Run(cmd)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return over(reasonConvert, fmt.Sprintf("pg_upgrade: %v: %s%s", err, withoutGood(said.String()), p.complaints()))
}

// withoutGood leaves out the steps of which pg_upgrade says that they went well.
func withoutGood(said string) string {
	lines := slices.DeleteFunc(strings.Split(said, "; "), func(line string) bool {
		line = strings.TrimSpace(line)
		return line == "" || strings.HasSuffix(line, " ok")
	})
	return strings.Join(lines, "; ")
}

// complaintBytes bounds what is told of pg_upgrade's files.
const complaintBytes = 1500

// complaints are what pg_upgrade wrote to files: what stands in the way, and the ends of the logs that say why something failed.
func (p *Place) complaints() string {
	var texts []string
	_ = filepath.WalkDir(filepath.Join(p.New.Seeding(), "pg_upgrade_output.d"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil //nolint:nilerr // it is only for people
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return nil //nolint:nilerr // the same
		}
		var lines []string
		for line := range strings.Lines(string(content)) {
			isList := strings.HasSuffix(path, ".txt")
			if isList || strings.Contains(line, "ERROR:") || strings.Contains(line, "FATAL:") || strings.Contains(line, "error:") {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		if len(lines) > 0 {
			texts = append(texts, entry.Name()+": "+strings.Join(lines[:min(len(lines), 10)], ", "))
		}
		return nil
	})
	if len(texts) == 0 {
		return ""
	}
	text := strings.Join(texts, "; ")
	return " (" + text[:min(len(text), complaintBytes)] + ")"
}
