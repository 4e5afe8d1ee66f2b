package apply

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
)

// askTimeout bounds one request to an agent: it answers before it begins.
const askTimeout = 5 * time.Second

// Agent is one that can be asked for something.
type Agent interface {
	Switchover(ctx context.Context, host string, request agentapi.SwitchoverRequest) error
	Restart(ctx context.Context, host string, request agentapi.RestartRequest) error
	UpgradeSwitchover(ctx context.Context, host string, request agentapi.UpgradeSwitchoverRequest) error
}

// Declined is that an agent will not do what it was asked for.
type Declined struct {
	// Reason is one of the Reason constants of apis/v1.
	Reason string
	// Why is what the agent said.
	Why string
}

// Error implements error.
func (d *Declined) Error() string { return d.Why }

// Switchover asks the primary's agent, known as that host, to hand over to the instance; empty: to the best one.
func (w *Writer) Switchover(ctx context.Context, agent Agent, host, instance, to string) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	err := agent.Switchover(ctx, host, agentapi.SwitchoverRequest{Target: to})
	return declined(err, instance, "hand over")
}

// SwitchVersion asks the live primary's agent, known as that host, to move the writes to the other generation.
func (w *Writer) SwitchVersion(ctx context.Context, agent Agent, host, instance string, request agentapi.UpgradeSwitchoverRequest) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return declined(agent.UpgradeSwitchover(ctx, host, request), instance, "switch to another major version")
}

// RestartServer asks the instance's agent, known as that host, to restart PostgreSQL.
func (w *Writer) RestartServer(ctx context.Context, agent Agent, host, instance string, request agentapi.RestartRequest) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return declined(agent.Restart(ctx, host, request), instance, "restart PostgreSQL")
}

// declined turns what an agent answered into a Declined if asking again at once would be of no use.
func declined(err error, instance, what string) error {
	var refused *agentapi.RefusedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return &Declined{Reason: v1.ReasonSwitchoverRefused, Why: refused.Why}
	case errors.Is(err, agentapi.ErrOlder):
		return &Declined{Reason: v1.ReasonAgentOlder, Why: fmt.Sprintf(
			"the agent of %s is older than this operator and cannot %s when asked; it is renewed when its Pod restarts", instance, what)}
	default:
		return fmt.Errorf("asking the agent of %s to %s: %w", instance, what, err)
	}
}
