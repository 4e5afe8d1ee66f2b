package verify

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/agent/sql"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// What was checked, and why something was not, in words for the status.
const (
	relations = "tables and indexes (pg_amcheck)"
	pages     = "page checksums (pg_checksums)"

	noAmcheck    = "tables and indexes: the image has no pg_amcheck, or not the extension amcheck"
	noChecksums  = "page checksums: the data has none"
	noPgChecksum = "page checksums: the image has no pg_checksums of this version"
)

// sessionOptions are of the sessions of pg_amcheck, whatever is set for a database or the superuser: it takes as long as it takes, and what
// it installs is not the business of event triggers.
func sessionOptions(major int) string {
	options := "-c statement_timeout=0 -c lock_timeout=0 -c idle_session_timeout=0 -c default_transaction_read_only=off -c session_replication_role=replica"
	if major >= 17 {
		options += " -c transaction_timeout=0"
	}
	return options
}

// checkRelations checks all tables and B-tree indexes of all databases: their structure, and that each row is in each index
// (https://www.postgresql.org/docs/current/app-pgamcheck.html).
func (v *verification) checkRelations(ctx context.Context, client *sql.Client) error {
	major := v.seeder.Programs.Version.Major
	program := datadir.FindClient("pg_amcheck", major)
	available, err := hasAmcheck(ctx, client)
	if err != nil {
		return err
	}
	if program == "" || !available {
		v.result.Skipped = append(v.result.Skipped, noAmcheck)
		return nil
	}
	v.log.Info("Checking tables and indexes")
	conninfo := fmt.Sprintf("host=%s port=%d user=%s dbname=postgres options='%s'",
		filepath.Join(v.options.Run, socketFolder), v.options.PostgresPort, naming.Superuser, sessionOptions(major))
	err = v.seeder.Run(ctx, program, "--maintenance-db="+conninfo, "--all", "--install-missing", "--heapallindexed")
	if err != nil {
		return fmt.Errorf("the backup was restored, and did not pass the check of tables and indexes: %w", err)
	}
	v.result.Checked = append(v.result.Checked, relations)
	return nil
}

// hasAmcheck says whether the extension can be installed.
func hasAmcheck(ctx context.Context, client *sql.Client) (bool, error) {
	connection, err := client.Open(ctx, "postgres")
	if err != nil {
		return false, err
	}
	defer func() { _ = connection.Close(context.WithoutCancel(ctx)) }()
	found := false
	err = connection.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'amcheck')").Scan(&found)
	if err != nil {
		return false, fmt.Errorf("looking for the extension amcheck: %w", err)
	}
	return found, nil
}

// checkPages checks the checksums of all pages of a data directory whose server was stopped.
func (v *verification) checkPages(ctx context.Context, data string) error {
	content, err := os.ReadFile(filepath.Join(data, postgres.ControlFile))
	if err != nil {
		return fmt.Errorf("reading the control file: %w", err)
	}
	control, err := postgres.ParseControl(content)
	if err != nil {
		return err
	}
	program := datadir.FindOptional(ctx, v.children, "pg_checksums", v.seeder.Programs.Version.Major)
	switch {
	case !control.Checksums:
		v.result.Skipped = append(v.result.Skipped, noChecksums)
		return nil
	case program == "":
		v.result.Skipped = append(v.result.Skipped, noPgChecksum)
		return nil
	}
	v.log.Info("Checking page checksums")
	if err := v.seeder.Run(ctx, program, "--check", "--pgdata="+data); err != nil {
		return fmt.Errorf("the backup was restored, and did not pass the check of page checksums: %w", err)
	}
	v.result.Checked = append(v.result.Checked, pages)
	return nil
}
