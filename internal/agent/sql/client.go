package sql

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgsteward/pgsteward/internal/naming"
)

const (
	connectTimeout = 2 * time.Second
	// knockTimeout bounds a connection that is opened only to see whether that is possible; on a machine that is busy it takes a while.
	knockTimeout = 4 * time.Second
	// observeTimeout bounds a look at the server's state, changeTimeout a statement that changes something.
	observeTimeout = 2 * time.Second
	changeTimeout  = 20 * time.Second
)

// Client connects to the instance's own server. It keeps one connection; its methods may be called from several goroutines,
// one after another.
type Client struct {
	socketDirectory string
	port            int

	mu         sync.Mutex
	connection *pgx.Conn
}

// NewClient is a client of the server whose socket is in that directory.
func NewClient(socketDirectory string, port int) *Client {
	return &Client{socketDirectory: socketDirectory, port: port}
}

// with calls use with the connection to the database postgres, and gives the connection up after an error that may have left
// it broken.
func (c *Client) with(ctx context.Context, timeout time.Duration, use func(context.Context, *pgx.Conn) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if c.connection == nil || c.connection.IsClosed() {
		connection, err := c.connect(ctx, "postgres")
		if err != nil {
			return err
		}
		c.connection = connection
	}
	return use(ctx, c.connection)
}

// Knock says whether the server takes a new connection; one that refuses it has answered.
func (c *Client) Knock(ctx context.Context) error {
	if err := c.Admits(ctx); err != nil && !IsAnswer(err) {
		return err
	}
	return nil
}

// Admits says why the server takes no new connection.
func (c *Client) Admits(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, knockTimeout)
	defer cancel()
	config, err := c.config("postgres")
	if err != nil {
		return err
	}
	config.ConnectTimeout = knockTimeout
	connection, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("connecting to PostgreSQL: %w", err)
	}
	_ = connection.Close(ctx)
	return nil
}

// config is how to connect as the superuser. Statement and lock timeouts hold on the server's side too, so that nothing stays
// behind when the agent gives up.
func (c *Client) config(database string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(fmt.Sprintf("host=%s port=%d user=%s sslmode=disable", c.socketDirectory, c.port, naming.Superuser))
	if err != nil {
		return nil, fmt.Errorf("connecting to PostgreSQL: %w", err)
	}
	config.Database = database
	config.ConnectTimeout = connectTimeout
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	config.RuntimeParams = sessionParameters("pgsteward")
	return config, nil
}

// connect opens a connection.
func (c *Client) connect(ctx context.Context, database string) (*pgx.Conn, error) {
	config, err := c.config(database)
	if err != nil {
		return nil, err
	}
	connection, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connecting to PostgreSQL: %w", err)
	}
	if err := withoutTransactionTimeout(ctx, connection); err != nil {
		_ = connection.Close(ctx)
		return nil, err
	}
	return connection, nil
}

// sessionParameters are those of our sessions, whatever the user has set for everybody.
func sessionParameters(name string) map[string]string {
	return map[string]string{
		"application_name":                    name,
		"statement_timeout":                   "20s",
		"lock_timeout":                        "5s",
		"idle_in_transaction_session_timeout": "30s",
		"idle_session_timeout":                "0", // the connection waits between two looks
		"search_path":                         "pg_catalog",
		"client_min_messages":                 "warning",
		"default_transaction_read_only":       "off",   // whatever the user has set for everybody
		"standard_conforming_strings":         "on",    // names that clients chose are quoted by doubling quotes
		"synchronous_commit":                  "local", // roles and databases must not wait for a standby that is not there yet
	}
}

// withoutTransactionTimeout takes a timeout away that an older server does not know, and would refuse the connection for.
func withoutTransactionTimeout(ctx context.Context, connection *pgx.Conn) error {
	if !hasTransactionTimeout(connection.PgConn().ParameterStatus("server_version")) {
		return nil
	}
	if _, err := connection.Exec(ctx, "SET transaction_timeout = 0"); err != nil {
		return fmt.Errorf("connecting to PostgreSQL: %w", err)
	}
	return nil
}

// hasTransactionTimeout says whether a server of that version has the parameter transaction_timeout, which came with 17.
func hasTransactionTimeout(version string) bool {
	major := 0
	_, _ = fmt.Sscanf(version, "%d", &major)
	return major >= 17
}

// Open opens a connection of its own to a database, as the superuser; whoever asked for it closes it.
func (c *Client) Open(ctx context.Context, database string) (*pgx.Conn, error) {
	return c.connect(ctx, database)
}

// Close gives the connection up.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.connection != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.connection.Close(ctx)
		c.connection = nil
	}
}

// exec carries out one statement that changes something.
func (c *Client) exec(ctx context.Context, statement string, args ...any) error {
	return c.with(ctx, changeTimeout, func(ctx context.Context, connection *pgx.Conn) error {
		_, err := connection.Exec(ctx, statement, args...)
		return err
	})
}

// Checkpoint writes a checkpoint, so that a shutdown that follows is short. It may take minutes, so that it has a connection of its own,
// and only the context bounds it.
func (c *Client) Checkpoint(ctx context.Context) error {
	connection, err := c.connect(ctx, "postgres")
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = connection.Close(ctx)
	}()
	if _, err := connection.Exec(ctx, "SET statement_timeout = 0"); err != nil {
		return err
	}
	_, err = connection.Exec(ctx, "CHECKPOINT")
	return err
}

// Promote ends recovery; it does not wait for the end.
func (c *Client) Promote(ctx context.Context) error {
	return c.exec(ctx, "SELECT pg_promote(wait => false)")
}

// endConflictsQuery ends the transactions on a standby for which its replay waits. What exactly it waits for is not known for every
// kind of conflict, so all are ended; those that come later are PostgreSQL's to cancel, by max_standby_streaming_delay.
const endConflictsQuery = `
WITH startup AS (
       SELECT wait_event_type AS type, wait_event AS event FROM pg_stat_activity WHERE backend_type = 'startup'
     ), ended AS (
       SELECT pg_terminate_backend(pid) FROM pg_stat_activity
       WHERE backend_type = 'client backend' AND xact_start IS NOT NULL AND application_name <> 'pgsteward' AND pg_is_in_recovery()
             AND EXISTS (SELECT FROM startup WHERE type IN ('Lock', 'BufferPin') OR event LIKE 'RecoveryConflict%')
     )
SELECT coalesce((SELECT type || '/' || event FROM startup LIMIT 1), ''), (SELECT count(*) FROM ended)`

// EndConflicts ends what keeps a standby from replaying, and says what its replay waits for and how many sessions were ended.
func (c *Client) EndConflicts(ctx context.Context) (waits string, ended int, err error) {
	err = c.with(ctx, observeTimeout, func(ctx context.Context, connection *pgx.Conn) error {
		return connection.QueryRow(ctx, endConflictsQuery).Scan(&waits, &ended)
	})
	return waits, ended, err
}

// HBAErrors are what PostgreSQL refuses in pg_hba.conf as it is on disk.
func (c *Client) HBAErrors(ctx context.Context) ([]string, error) {
	var found []string
	err := c.with(ctx, observeTimeout, func(ctx context.Context, connection *pgx.Conn) error {
		rows, err := connection.Query(ctx, "SELECT format('line %s: %s', line_number, error) FROM pg_hba_file_rules WHERE error IS NOT NULL")
		if err != nil {
			return err
		}
		found, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return found, err
}

// identifier quotes a name.
func identifier(name string) string { return pgx.Identifier{name}.Sanitize() }

// literal quotes a string constant where a statement takes no arguments.
func literal(text string) string {
	return "'" + strings.ReplaceAll(strings.ReplaceAll(text, "\x00", ""), "'", "''") + "'"
}

// IsAnswer says whether the error is what the server itself has answered, so that it works.
func IsAnswer(err error) bool {
	var refused *pgconn.PgError
	return asPgError(err, &refused)
}

// IsStarting says whether the error means that the server is still starting, or stopping.
func IsStarting(err error) bool {
	var refused *pgconn.PgError
	ok := asPgError(err, &refused)
	return ok && refused.Code == "57P03"
}

// RefusesSessions says whether the error means that no session can begin, and neither for a shortage (class 53) nor since the server
// starts or stops (class 57): its configuration asks for something that there is not.
func RefusesSessions(err error) bool {
	var refused *pgconn.PgError
	return asPgError(err, &refused) && refused.Severity == "FATAL" && !strings.HasPrefix(refused.Code, "53") && !strings.HasPrefix(refused.Code, "57")
}
