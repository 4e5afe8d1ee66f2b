package generation

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pgsteward/pgsteward/internal/naming"
)

// script is what pg_dump or pg_dumpall wrote, on its way into the new server.
type script struct {
	dump []string // program and arguments
	// database is where psql begins.
	database string
	// drop are whole lines that are left out: what is there already.
	drop map[string]bool
	// secret says that it has password verifiers, which must not get into a log.
	secret bool
}

// notBefore17 is a line of pg_dump 17 and later that an older server refuses: there are images in which the tools are newer than the server.
const notBefore17 = "SET transaction_timeout = 0;"

// copyGlobals copies roles with their passwords, memberships and settings. What is there already is brought up to date, so that it can be
// repeated.
func (p *Place) copyGlobals(ctx context.Context, source string) error {
	dumpall, err := p.program("pg_dumpall")
	if err != nil {
		return over(reasonImage, err.Error())
	}
	local, err := p.Local(ctx, "template1")
	if err != nil {
		return err
	}
	defer closeConn(local)
	roles, err := column(ctx, local, "SELECT rolname FROM pg_roles")
	if err != nil {
		return fmt.Errorf("reading roles: %w", err)
	}
	drop := map[string]bool{}
	for _, role := range roles {
		drop["CREATE ROLE "+pgx.Identifier{role}.Sanitize()+";"] = true
	}
	return p.load(ctx, script{
		dump: []string{
			dumpall, "--globals-only", "--no-tablespaces", "--quote-all-identifiers", "--database=postgres",
			"--dbname=" + p.Conninfo(source, "postgres"), "--no-password",
		},
		database: "template1", drop: drop, secret: true,
	})
}

// load writes the script to the volume, and then runs it: so a dump that fails half-way changes nothing. An error in the script is the
// end of the attempt, since it would come again.
func (p *Place) load(ctx context.Context, s script) error {
	psql, err := p.program("psql")
	if err != nil {
		return over(reasonImage, err.Error())
	}
	if err := p.New.Prepare(); err != nil {
		return err
	}
	path := filepath.Join(p.New.AgentDir(), "upgrade.sql")
	defer func() { _ = os.Remove(path) }()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing an earlier script: %w", err)
	}
	if err := p.seeder().Run(ctx, s.dump[0], append(s.dump[1:], "--file="+path)...); err != nil {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("reading the script: %w", err)
	}
	defer func() { _ = file.Close() }()
	if p.Programs.Version.Major < 17 {
		s.drop[notBefore17] = true
	}
	return p.psql(ctx, psql, s, &lines{from: bufio.NewReader(file), drop: s.drop})
}

// scriptFailed is psql's exit code for an error in the script (ON_ERROR_STOP).
const scriptFailed = 3

func (p *Place) psql(ctx context.Context, program string, s script, input io.Reader) error {
	cmd := p.Children.Command(ctx, program, "--no-psqlrc", "--quiet", "--no-password", "--set=ON_ERROR_STOP=1", "--set=VERBOSITY=terse",
		"--output=/dev/null", "--dbname=host="+p.RunDirectory+fmt.Sprintf(" port=%d", p.Port)+" user="+naming.Superuser+" dbname="+s.database)
	options := "-c session_replication_role=replica -c statement_timeout=0 -c lock_timeout=30s -c default_transaction_read_only=off " +
		"-c " + AllowDDL + "=on -c synchronous_commit=local -c client_min_messages=warning"
	if s.secret {
		options += " -c log_statement=none -c log_min_error_statement=panic -c log_min_duration_statement=-1"
	}
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "LANG=C.UTF-8", "PGOPTIONS="+options, "PGAPPNAME=pgsteward", "PGCONNECT_TIMEOUT=10")
	var said ending
	cmd.Stdin, cmd.Stdout, cmd.Stderr = input, &said, &said
	err := p.Children.Run(cmd)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == scriptFailed {
		return over(reasonSchema, "PostgreSQL "+p.Upgrade.To+" refuses what was dumped: "+said.String())
	}
	return fmt.Errorf("psql: %w: %s", err, said.String())
}

// lines is what it reads, without the lines to drop.
type lines struct {
	from *bufio.Reader
	drop map[string]bool
	rest []byte
}

// Read implements io.Reader.
func (l *lines) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		line, err := l.from.ReadBytes('\n')
		if len(line) == 0 && err != nil {
			return 0, err
		}
		if !l.drop[string(bytes.TrimRight(line, "\n"))] {
			l.rest = line
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// ending keeps the end of what a program says.
type ending struct{ text []byte }

const endingBytes = 1024

// Write implements io.Writer.
func (e *ending) Write(p []byte) (int, error) {
	e.text = append(e.text, p...)
	if extra := len(e.text) - endingBytes; extra > 0 {
		e.text = e.text[extra:]
	}
	return len(p), nil
}

// String is what was kept, in one line.
func (e *ending) String() string {
	return strings.Join(strings.FieldsFunc(string(e.text), func(r rune) bool { return r == '\n' }), "; ")
}
