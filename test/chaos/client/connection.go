package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// errNotServed is a connection that was accepted, and then not served in time.
var errNotServed = errors.New("accepted, and not served in time")

// connect opens a connection within the limits of the timing.
func connect(ctx context.Context, host string, t timing) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig("sslmode=require host=" + host)
	if err != nil {
		return nil, err
	}
	accepted := false
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{Timeout: t.dial}).DialContext(ctx, network, address)
		accepted = err == nil
		return conn, err
	}
	config.LookupFunc = func(ctx context.Context, host string) ([]string, error) {
		ctx, cancel := context.WithTimeout(ctx, t.dial)
		defer cancel()
		return net.DefaultResolver.LookupHost(ctx, host)
	}
	config.RuntimeParams["application_name"] = "chaos"
	config.DefaultQueryExecMode = pgx.QueryExecModeExec // one round trip, nothing kept on the server
	ctx, cancel := context.WithTimeout(ctx, t.connect)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil && accepted && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", errNotServed, err)
	}
	return conn, err
}

// drop closes a connection and does not wait for the server.
func drop(c *pgx.Conn) {
	if c == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_ = c.Close(ctx)
}

// patiently tries on new connections until it succeeds, or the time is over.
func patiently(ctx context.Context, host string, f func(context.Context, *pgx.Conn) error) error {
	t := timing{dial: 3 * time.Second, connect: 5 * time.Second}
	for {
		c, err := connect(ctx, host, t)
		if err == nil {
			err = f(ctx, c)
			drop(c)
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		wait(ctx, 200*time.Millisecond)
	}
}

// kind is a short name of an error, so that errors can be counted.
func kind(err error) string {
	var server *pgconn.PgError
	var name *net.DNSError
	var network net.Error
	switch {
	case errors.As(err, &server):
		return "sqlstate " + server.Code
	case errors.As(err, &name):
		return "dns"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "reset"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "unreachable"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.As(err, &network) && network.Timeout():
		return "timeout"
	}
	return "other"
}
