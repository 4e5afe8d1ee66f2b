package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// create makes the table. The index serves the reader and the check.
const create = `
CREATE TABLE IF NOT EXISTS chaos (
	round int NOT NULL, writer text NOT NULL, seq bigint NOT NULL,
	instance text NOT NULL, timeline bigint NOT NULL, system bigint NOT NULL,
	at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX IF NOT EXISTS chaos_seq ON chaos (round, writer, seq)`

// insert lets the server say who it is. The timeline is that of the log it writes: the control file's may lag behind.
const insert = `
INSERT INTO chaos (round, writer, seq, instance, timeline, system)
SELECT $1, $2, $3, current_setting('cluster_name'),
	('x' || lpad(left(pg_walfile_name(pg_current_wal_insert_lsn()), 8), 16, '0'))::bit(64)::bigint, system_identifier
FROM pg_control_system()
RETURNING instance, timeline, system`

// errStandby is why the writer to an instance does not write.
var errStandby = errors.New("a standby")

// writer writes a row at each interval over one connection, and connects anew after each failure. The number of a row is never
// used again: an insert without an answer is not repeated.
type writer struct {
	name, host string
	timing     timing
	ledger     *ledger
	asksFirst  bool // asks whether the server is a standby, so that its log is not filled with refusals

	conn *pgx.Conn
	// patience multiplies the limit for a new connection
	patience int
}

// mostPatience is for a server that accepts connections and is too busy to serve them in time: to give each up and begin anew
// would keep it busy for ever.
const mostPatience = 4

func (w *writer) run(ctx context.Context) {
	tick := time.NewTicker(w.timing.interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		round, seq, ok := w.ledger.next()
		if !ok {
			continue
		}
		a := ack{writer: w.name, seq: seq, start: w.ledger.now()}
		err := w.write(ctx, round, &a)
		a.end = w.ledger.now()
		w.ledger.done(a, err)
		if err != nil && !errors.Is(err, errStandby) {
			drop(w.conn)
			w.conn = nil
			wait(ctx, w.timing.pause)
		}
	}
	drop(w.conn)
}

// write inserts the row, and fills in what the server says.
func (w *writer) write(ctx context.Context, round int32, a *ack) error {
	if w.conn == nil {
		patient := w.timing
		patient.connect *= time.Duration(max(1, w.patience))
		conn, err := connect(ctx, w.host, patient)
		if errors.Is(err, errNotServed) {
			w.patience = min(2*max(1, w.patience), mostPatience)
		}
		if err != nil {
			return err
		}
		w.conn, w.patience = conn, 1
	}
	ctx, cancel := context.WithTimeout(ctx, w.timing.statement)
	defer cancel()
	if w.asksFirst {
		var standby bool
		if err := w.conn.QueryRow(ctx, "SELECT pg_is_in_recovery()").Scan(&standby); err != nil {
			return err
		}
		if standby {
			return errStandby
		}
	}
	a.start = w.ledger.now()
	return w.conn.QueryRow(ctx, insert, round, w.name, a.seq).Scan(&a.instance, &a.timeline, &a.system)
}

// reader looks every 50 ms at the last row, each second over a new connection, so that it meets all standbys.
type reader struct {
	host   string
	timing timing
	ledger *ledger
}

const look = `
SELECT current_setting('cluster_name'), seq, timeline, system FROM chaos
WHERE round = $1 AND writer = $2 ORDER BY seq DESC LIMIT 1`

func (r *reader) run(ctx context.Context) {
	for ctx.Err() == nil {
		if r.ledger.present() == 0 {
			wait(ctx, r.timing.pause)
			continue
		}
		conn, err := connect(ctx, r.host, r.timing)
		for i := 0; err == nil && i < 20 && ctx.Err() == nil; i++ {
			if err = r.read(ctx, conn); err == nil {
				wait(ctx, 50*time.Millisecond)
			}
		}
		drop(conn)
		if err != nil {
			r.ledger.sawRow(read{}, err)
			wait(ctx, r.timing.pause)
		}
	}
}

func (r *reader) read(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, r.timing.statement)
	defer cancel()
	var saw read
	err := conn.QueryRow(ctx, look, r.ledger.present(), throughService).Scan(&saw.server, &saw.seq, &saw.timeline, &saw.system)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err == nil {
		saw.at = r.ledger.now()
		r.ledger.sawRow(saw, nil)
	}
	return err
}
