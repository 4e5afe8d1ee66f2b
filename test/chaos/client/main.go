// Command client is what an application sees of a PostgresCluster while things break. It runs in a Pod on a node that stays up,
// and is told what to do over HTTP (see serve). It has
//   - one writer through the Service -rw, whose pauses are the write gap,
//   - one writer to each instance by its own host name, so that an instance that takes writes without being the primary is seen,
//   - one reader through the Service -ro.
//
// Each row says in which round, by which writer and under which number it was written, and the server adds its system identifier,
// its timeline and its name. What was acknowledged is kept and compared with the table at the end of each round.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// options are the command line. The user, password and database come from the environment, as libpq's.
type options struct {
	listen    string
	rw, ro    string
	instances string
	timing    timing
}

// timing is how patient a connection is.
type timing struct {
	interval  time.Duration // from one statement to the next
	dial      time.Duration // for the name and the TCP connection
	connect   time.Duration // for all of a new connection
	statement time.Duration
	pause     time.Duration // after a failure
}

func main() {
	var o options
	flag.StringVar(&o.listen, "listen", ":8080", "address of the HTTP server")
	flag.StringVar(&o.rw, "rw", "", "host of the Service for writes")
	flag.StringVar(&o.ro, "ro", "", "host of the Service for reads; empty: nobody reads")
	flag.StringVar(&o.instances, "instances", "", "NAME=HOST of each instance, separated by commas; empty: nobody writes to them")
	flag.DurationVar(&o.timing.interval, "interval", 10*time.Millisecond, "time from one row to the next")
	flag.DurationVar(&o.timing.dial, "dial", 150*time.Millisecond, "limit for a name and a TCP connection")
	flag.DurationVar(&o.timing.connect, "connect", time.Second, "limit for a new connection, with TLS and authentication")
	flag.DurationVar(&o.timing.statement, "statement", 400*time.Millisecond, "limit for a statement")
	flag.DurationVar(&o.timing.pause, "pause", 20*time.Millisecond, "wait after a failure")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	l := newLedger(time.Now())
	go (&writer{name: throughService, host: o.rw, timing: o.timing, ledger: l}).run(ctx)
	for _, entry := range strings.FieldsFunc(o.instances, func(r rune) bool { return r == ',' }) {
		name, host, ok := strings.Cut(entry, "=")
		if !ok {
			return fmt.Errorf("-instances: %q is not NAME=HOST", entry)
		}
		direct := o.timing
		direct.interval, direct.pause = 50*time.Millisecond, 100*time.Millisecond
		go (&writer{name: name, host: host, timing: direct, ledger: l, asksFirst: true}).run(ctx)
	}
	if o.ro != "" {
		go (&reader{host: o.ro, timing: o.timing, ledger: l}).run(ctx)
	}
	return serve(ctx, o, l)
}

// wait pauses, unless the program ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
