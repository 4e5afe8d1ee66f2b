//go:build e2e

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// report is what the client says of a round (package client: report).
type report struct {
	Acked        int            `json:"acked"`
	Written      int            `json:"written"`
	MaxGapMS     float64        `json:"maxGapMS"`
	SumGapsMS    float64        `json:"sumGapsMS"`
	Gaps         []gap          `json:"gaps"`
	Errors       map[string]int `json:"errors"`
	Checked      bool           `json:"checked"`
	Problem      string         `json:"problem,omitempty"`
	Lost         int            `json:"lost"`
	LostSpanMS   float64        `json:"lostSpanMS"`
	Losses       []string       `json:"losses,omitempty"`
	Unknown      int            `json:"unknown"`
	Violations   []string       `json:"violations,omitempty"`
	Reads        int            `json:"reads"`
	ForeignReads int            `json:"foreignReads"`
	LastForeign  time.Time      `json:"lastForeign"`
}

type gap struct {
	At   time.Time `json:"at"`
	MS   float64   `json:"ms"`
	From string    `json:"from"`
	To   string    `json:"to"`
}

// outcome is the result of a round.
type outcome struct {
	Time      time.Time `json:"time"`
	Seed      int       `json:"seed"`
	Round     int       `json:"round"`
	Kind      string    `json:"kind"`
	Fault     string    `json:"fault"`
	Recovered float64   `json:"recoveredSeconds"` // from the fault until all was healthy again
	Load      string    `json:"load"`
	Problems  []string  `json:"problems,omitempty"`
	report
}

func (o *outcome) fail(format string, args ...any) {
	o.Problems = append(o.Problems, fmt.Sprintf(format, args...))
}

// print prints a line of the table, and what is wrong below it.
func (o *outcome) print() {
	verdict := "ok"
	if len(o.Problems) > 0 {
		verdict = "FAILED"
	}
	fmt.Printf("%s %3d %-8s %-36s gap %6.2f s  sum %6.2f s  recovered %5.1f s  acknowledged %6d  lost %4d  load %s  %s\n",
		o.Time.Format(time.TimeOnly), o.Round, o.Kind, o.Fault, o.MaxGapMS/1000, o.SumGapsMS/1000, o.Recovered, o.Acked, o.Lost, o.Load, verdict)
	for _, problem := range o.Problems {
		fmt.Println("             " + problem)
	}
}

// record appends the outcome to CHAOS_OUT, by default a file under bin/.
func (o *outcome) record() error {
	name := os.Getenv("CHAOS_OUT")
	if name == "" {
		name = filepath.Join(root, "bin", "chaos.jsonl")
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(file).Encode(o), file.Close())
}

func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// round does one round with the fault. seed and number choose what is random in it.
func (b *bed) round(ctx context.Context, seed, number int, f fault) outcome {
	o := outcome{Time: time.Now(), Seed: seed, Round: number, Kind: b.String(), Fault: f.name}
	if err := until(ctx, boundHealthy, b.healthy); err != nil {
		o.fail("the cluster was not healthy before: %v", err)
		return o
	}
	s, err := b.look(ctx)
	if err == nil {
		err = b.ask(ctx, http.MethodPost, fmt.Sprintf("/begin?round=%d", number), &struct{}{})
	}
	if err == nil {
		err = until(ctx, boundQuick, b.written(0, 100))
	}
	if err != nil {
		o.fail("before the fault: %v", err)
		return o
	}
	pass(ctx, time.Second)
	started := time.Now()
	b.disturb(ctx, &o, s, f, rand.New(rand.NewPCG(uint64(seed), uint64(number))))
	if err := until(ctx, boundHealthy, b.healthy); err != nil {
		o.fail("not healthy again %.0f s after the fault: %v", time.Since(started).Seconds(), err)
	}
	healthy := time.Now()
	o.Recovered, o.Load = healthy.Sub(started).Seconds(), load()
	pass(ctx, 2*time.Second)
	if err := b.ask(ctx, http.MethodPost, "/end", &o.report); err != nil {
		o.fail("the client does not report: %v", err)
		return o
	}
	b.judge(ctx, &o, f, healthy)
	return o
}

// disturb lets the fault happen, undoes it, and waits until rows are acknowledged again.
func (b *bed) disturb(ctx context.Context, o *outcome, s scene, f fault, random *rand.Rand) {
	undo, err := f.do(ctx, s, random)
	if err != nil {
		o.fail("the fault itself failed: %v", err)
	}
	if f.hold > 0 {
		pass(ctx, f.hold)
	}
	if undo != nil {
		if err := undo(ctx); err != nil {
			o.fail("undoing the fault failed: %v", err)
		}
	}
	// longer than the bound: how long it really took says more than that it took too long
	if err := until(ctx, 3*f.bound+time.Minute, b.written(time.Second, 0)); err != nil {
		o.fail("no row is written: %v", err)
	}
}

// written waits until the last row is not older, and so many were acknowledged.
func (b *bed) written(notOlder time.Duration, rows int) func(context.Context) error {
	return func(ctx context.Context) error {
		var state struct {
			Acked     int     `json:"acked"`
			SinceLast float64 `json:"sinceLastSeconds"`
		}
		if err := b.ask(ctx, http.MethodGet, "/state", &state); err != nil {
			return err
		}
		if notOlder > 0 && state.SinceLast > notOlder.Seconds() || state.Acked < rows {
			return fmt.Errorf("%d rows were written, the last %.1f s ago", state.Acked, state.SinceLast)
		}
		return nil
	}
}

// judge holds the report against what must hold.
func (b *bed) judge(ctx context.Context, o *outcome, f fault, healthy time.Time) {
	bound := f.bound
	if f.stalls(b.kind) {
		bound += f.hold
	}
	if os.Getenv("BESIDE") != "" {
		bound = max(bound, boundBeside)
	}
	if o.MaxGapMS > milliseconds(bound) {
		o.fail("no row was written for %.1f s, %s at most is allowed; gaps: %v", o.MaxGapMS/1000, bound, o.Gaps)
	}
	if !o.Checked {
		o.fail("the table could not be read: %s", o.Problem)
		return
	}
	for _, violation := range o.Violations {
		o.fail("%s", violation)
	}
	if o.Lost > 0 && b.mode == "sync" {
		o.fail("%d acknowledged rows are lost, within %.0f ms: %v", o.Lost, o.LostSpanMS, o.Losses)
	}
	if o.LastForeign.After(healthy) {
		o.fail("a reader saw rows that were lost %.1f s after all was healthy", o.LastForeign.Sub(healthy).Seconds())
	}
	if err := until(ctx, boundFailover, func(ctx context.Context) error { return b.same(ctx, o.Round) }); err != nil {
		o.fail("the instances differ: %v", err)
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Milliseconds()) }
