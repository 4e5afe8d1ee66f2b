package agentapi

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/pgsteward/pgsteward/internal/naming"
)

const (
	// requestTimeout bounds one question to an agent; who waits for an answer may set less in the context.
	requestTimeout = 5 * time.Second
	dialTimeout    = 3 * time.Second
	// maxStatusBytes bounds one status, so that nobody can fill our memory.
	maxStatusBytes = 1 << 20
)

// ErrSilent is that a watched agent sent nothing for twice the heartbeat interval.
var ErrSilent = errors.New("agent sent nothing for too long")

// Client asks agents for their status. It keeps no connection that is not in use.
type Client struct {
	tls *tls.Config
	// Port is the agents' port; naming.PortAgent unless a test sets another.
	Port int
	// address is where the agent is, if not where its host name says.
	address string
}

// NewClient is a client that shows the certificate of the configuration and trusts its RootCAs. The configuration is not
// changed; its ServerName is replaced for each agent.
func NewClient(config *tls.Config) *Client { return &Client{tls: config, Port: naming.PortAgent} }

// Status is the status of the agent at host, by which its certificate is checked too.
func (c *Client) Status(ctx context.Context, host string) (Status, error) {
	var status Status
	err := c.get(ctx, host, PathStatus, &status)
	return status, err
}

// Watch calls receive for each status that the agent at address (an IP address or host, without port) sends, the first at
// once. serverName is what its certificate must be for. Watch returns when the connection breaks or the agent was silent for
// too long (ErrSilent), or with ctx; it always returns an error.
func (c *Client) Watch(ctx context.Context, address, serverName string, receive func(Status)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(2*HeartbeatInterval, func() { cancel(ErrSilent) })
	defer silence.Stop()

	response, done, err := c.do(ctx, net.JoinHostPort(address, strconv.Itoa(c.Port)), serverName,
		call{method: http.MethodGet, path: PathStatus + "?watch=true"})
	if err != nil {
		return watchError(ctx, err)
	}
	defer done()

	lines := bufio.NewScanner(response.Body)
	lines.Buffer(make([]byte, 0, 4096), maxStatusBytes)
	for lines.Scan() {
		silence.Reset(2 * HeartbeatInterval)
		var status Status
		if err := json.Unmarshal(lines.Bytes(), &status); err != nil {
			return fmt.Errorf("reading the status of %s: %w", serverName, err)
		}
		receive(status)
	}
	if err := lines.Err(); err != nil {
		return watchError(ctx, err)
	}
	return fmt.Errorf("watching %s: %w", serverName, io.EOF)
}

func watchError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// call is what is asked of an agent.
type call struct {
	method, path string
	body         []byte
}

// do sends one request on a connection of its own, which done closes.
func (c *Client) do(ctx context.Context, address, serverName string, what call) (*http.Response, func(), error) {
	config := c.tls.Clone()
	config.ServerName = serverName
	config.MinVersion = tls.VersionTLS13
	transport := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAlive: HeartbeatInterval}).DialContext,
		TLSClientConfig:     config,
		TLSHandshakeTimeout: dialTimeout,
		DisableKeepAlives:   true,
	}
	request, err := http.NewRequestWithContext(ctx, what.method, "https://"+address+what.path, bytes.NewReader(what.body))
	if err != nil {
		return nil, nil, fmt.Errorf("asking %s: %w", address, err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, nil, fmt.Errorf("asking %s: %w", address, err)
	}
	done := func() {
		_ = response.Body.Close()
		transport.CloseIdleConnections()
	}
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusAccepted {
		defer done()
		return nil, nil, refusal(address, response)
	}
	return response, done, nil
}
