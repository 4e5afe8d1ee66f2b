package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// checkBound is how long the table may not be readable at the end of a round.
const checkBound = time.Minute

// serve answers the harness:
//
//	POST /begin?round=N&moves=0   makes the table if need be, and starts writing; moves: see ledger.begin
//	GET  /state                   how it goes
//	POST /end                     ends the round, compares with the table, and reports
func serve(ctx context.Context, o options, l *ledger) error {
	c := &checker{rw: o.rw, ledger: l, kept: map[int32]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /begin", func(w http.ResponseWriter, r *http.Request) {
		round, err := strconv.ParseInt(r.FormValue("round"), 10, 32)
		moves, _ := strconv.Atoi(r.FormValue("moves"))
		if err == nil {
			err = c.begin(r.Context(), int32(round), moves)
		}
		answer(w, l.state(), err)
	})
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) { answer(w, l.state(), nil) })
	mux.HandleFunc("POST /end", func(w http.ResponseWriter, r *http.Request) { answer(w, c.end(r.Context()), nil) })

	server := &http.Server{Addr: o.listen, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func answer(w http.ResponseWriter, what any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(what)
}

// checker knows how many rows each earlier round had in the table when it was checked: none may vanish later.
type checker struct {
	rw     string
	ledger *ledger
	kept   map[int32]int
}

func (c *checker) begin(ctx context.Context, round int32, moves int) error {
	ctx, cancel := context.WithTimeout(ctx, checkBound)
	defer cancel()
	err := patiently(ctx, c.rw, func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, create, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		// a round that is done again begins empty
		_, err := conn.Exec(ctx, "DELETE FROM chaos WHERE round = $1", round)
		return err
	})
	if err == nil {
		delete(c.kept, round)
		c.ledger.begin(round, moves)
	}
	return err
}

func (c *checker) end(ctx context.Context) report {
	round := c.ledger.pause()
	for !c.ledger.idle() && ctx.Err() == nil {
		wait(ctx, 20*time.Millisecond)
	}
	t := c.ledger.take()
	r := t.measure(c.ledger)
	r.Round = round
	table, counts, err := c.read(ctx, round)
	if err != nil {
		r.Problem = err.Error()
		return r
	}
	r.compare(t, table, c.ledger)
	for earlier, rows := range c.kept {
		if counts[earlier] < rows { // more is possible: of statements without an answer
			r.Violations = append(r.Violations, fmt.Sprintf("round %d had %d rows at its end, and has %d now", earlier, rows, counts[earlier]))
		}
	}
	c.kept[round] = counts[round]
	return r
}

// read is the round's rows by number, and how many rows each round has.
func (c *checker) read(ctx context.Context, round int32) (map[int64]row, map[int32]int, error) {
	ctx, cancel := context.WithTimeout(ctx, checkBound)
	defer cancel()
	var table map[int64]row
	var counts map[int32]int
	err := patiently(ctx, c.rw, func(ctx context.Context, conn *pgx.Conn) error {
		table, counts = map[int64]row{}, map[int32]int{}
		rows, err := conn.Query(ctx, "SELECT seq, instance, timeline FROM chaos WHERE round = $1", round)
		if err != nil {
			return err
		}
		var seq, timeline int64
		var instance string
		if _, err = pgx.ForEachRow(rows, []any{&seq, &instance, &timeline}, func() error {
			table[seq] = row{table[seq].copies + 1, instance, timeline}
			return nil
		}); err != nil {
			return err
		}
		if rows, err = conn.Query(ctx, "SELECT round, count(*) FROM chaos GROUP BY round"); err != nil {
			return err
		}
		var n int32
		var count int
		_, err = pgx.ForEachRow(rows, []any{&n, &count}, func() error { counts[n] = count; return nil })
		return err
	})
	return table, counts, err
}
