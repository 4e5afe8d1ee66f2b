package agentapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// maxWhyBytes bounds what an agent says when it refuses.
const maxWhyBytes = 4 << 10

// ErrOlder is that an agent does not know the request, since it is of an earlier version.
var ErrOlder = errors.New("the agent is of an earlier version, which does not know this request")

// RefusedError is that an agent understood a request and will not carry it out.
type RefusedError struct {
	// Address is the agent's, Why what it said.
	Address, Why string
}

// Error is why.
func (e *RefusedError) Error() string { return fmt.Sprintf("%s refuses: %s", e.Address, e.Why) }

// refusal is the error for an answer that is not what was asked for.
func refusal(address string, response *http.Response) error {
	if response.StatusCode == http.StatusNotFound || response.StatusCode == http.StatusMethodNotAllowed {
		return fmt.Errorf("asking %s: %w", address, ErrOlder)
	}
	if response.StatusCode != http.StatusConflict {
		return fmt.Errorf("asking %s: %s", address, response.Status)
	}
	why, err := io.ReadAll(io.LimitReader(response.Body, maxWhyBytes))
	if err != nil {
		return fmt.Errorf("reading why %s refuses: %w", address, err)
	}
	return &RefusedError{Address: address, Why: strings.TrimSpace(string(why))}
}

// At is a client that asks the one agent at the address, whatever its host name resolves to.
func (c *Client) At(address string) *Client {
	return &Client{tls: c.tls, Port: c.Port, address: address}
}

// Fresh is the status of the agent at host, with positions as of now.
func (c *Client) Fresh(ctx context.Context, host string) (Status, error) {
	var status Status
	err := c.get(ctx, host, PathStatus+"?fresh=true", &status)
	return status, err
}

// Promise asks the agent at host to promise not to become primary.
func (c *Client) Promise(ctx context.Context, host string, request PromiseRequest) (Promise, error) {
	var promise Promise
	err := c.post(ctx, host, PathPromise, request, &promise)
	return promise, err
}

// Switchover asks the agent at host, which must be the primary's, to hand over. A *RefusedError says why it will not.
func (c *Client) Switchover(ctx context.Context, host string, request SwitchoverRequest) error {
	return c.post(ctx, host, PathSwitchover, request, nil)
}

// HandOver tells the agent at host to take the lease. A *RefusedError says why it will not.
func (c *Client) HandOver(ctx context.Context, host string, request HandOverRequest) error {
	return c.post(ctx, host, PathHandOver, request, nil)
}

// Restart asks the agent at host to restart PostgreSQL in its Pod. A *RefusedError says why it will not.
func (c *Client) Restart(ctx context.Context, host string, request RestartRequest) error {
	return c.post(ctx, host, PathRestart, request, nil)
}

// UpgradeExpect tells the detached instance at host that it is about to get the writes.
func (c *Client) UpgradeExpect(ctx context.Context, host string, request UpgradeExpectRequest) error {
	return c.post(ctx, host, PathUpgradeExpect, request, nil)
}

// UpgradeSwitchover asks the live primary's agent at host to move the writes to the other generation. A *RefusedError says why it will not.
func (c *Client) UpgradeSwitchover(ctx context.Context, host string, request UpgradeSwitchoverRequest) error {
	return c.post(ctx, host, PathUpgradeSwitchover, request, nil)
}

// Backup asks the agent at host, or the repository host, for a backup. A *RefusedError says why it will not.
func (c *Client) Backup(ctx context.Context, host string, request BackupRequest) error {
	return c.post(ctx, host, PathBackup, request, nil)
}

// CancelBackup asks for the end of the backup of that ID.
func (c *Client) CancelBackup(ctx context.Context, host, id string) error {
	return c.post(ctx, host, PathBackupCancel, BackupRequest{ID: id}, nil)
}

// RemoveBackup asks the agent at host, or the repository host, to remove a backup. A *RefusedError says why it will not.
func (c *Client) RemoveBackup(ctx context.Context, host string, request RemovalRequest) error {
	return c.post(ctx, host, PathBackupRemove, request, nil)
}

// post sends a request, and reads the answer if one is wanted.
func (c *Client) post(ctx context.Context, host, path string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("asking %s: %w", host, err)
	}
	return c.ask(ctx, host, call{method: http.MethodPost, path: path, body: body}, answer)
}

// get reads an answer.
func (c *Client) get(ctx context.Context, host, path string, answer any) error {
	return c.ask(ctx, host, call{method: http.MethodGet, path: path}, answer)
}

func (c *Client) ask(ctx context.Context, host string, what call, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	response, done, err := c.do(ctx, net.JoinHostPort(cmp.Or(c.address, host), strconv.Itoa(c.Port)), host, what)
	if err != nil {
		return err
	}
	defer done()
	if answer == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxStatusBytes)).Decode(answer); err != nil {
		return fmt.Errorf("reading the answer of %s: %w", host, err)
	}
	return nil
}
