package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/pgsteward/pgsteward/internal/agentapi"
)

// requests are what others want of the loop. They belong to whoever holds the lock.
type requests struct {
	mu sync.Mutex
	// rounds counts the rounds that have begun; published is the last of them whose status is known, and news is closed at the next.
	rounds, published int
	news              chan struct{}
	// switchover is the one that was asked for or goes on, restart why PostgreSQL is to be restarted.
	switchover      *agentapi.SwitchoverRequest
	begunSwitchover bool
	restart         string
	// handed is what a holder that has stopped said last.
	handed agentapi.HandOverRequest
}

// takeSwitchover is a switchover that was asked for and has not begun; it goes on until endSwitchover.
func (r *requests) takeSwitchover() *agentapi.SwitchoverRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.begunSwitchover {
		return nil
	}
	r.begunSwitchover = r.switchover != nil
	return r.switchover
}

func (r *requests) endSwitchover() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.switchover, r.begunSwitchover = nil, false
}

func (r *requests) restartWanted() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.restart
}

func (r *requests) endRestart() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.restart = ""
}

// freshBound is how long a status as of now is waited for.
const freshBound = 2 * time.Second

// beginRound takes note that a round has begun: all that it observes is as of now or later.
func (r *requests) beginRound() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rounds++
	return r.rounds
}

// endRound takes note that the status of that round is known.
func (r *requests) endRound(round int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.published = round
	if r.news != nil {
		close(r.news)
		r.news = nil
	}
}

// wait is a channel that is closed when a round has ended; nil if one has that began after that number.
func (r *requests) wait(after int) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.published > after {
		return nil
	}
	if r.news == nil {
		r.news = make(chan struct{})
	}
	return r.news
}

func (r *requests) begun() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rounds
}

// fresh is the status of a round that begins from now on.
func (a *Agent) freshStatus(ctx context.Context) (agentapi.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, freshBound)
	defer cancel()
	begun := a.requests.begun()
	a.poke()
	for {
		news := a.requests.wait(begun)
		if news == nil {
			status, _ := a.board.Status()
			return status, nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return agentapi.Status{}, errors.New("the agent's loop does not go round")
		}
	}
}

// promise answers a primary that cannot reach the API server.
func (a *Agent) promise(request agentapi.PromiseRequest) agentapi.Promise {
	answer := agentapi.Promise{Instance: a.options.Instance}
	keeper := a.leaseKeeper()
	if keeper == nil {
		answer.Why = "I have no configuration yet"
		return answer
	}
	answer.Why = keeper.Promise(request.Holder, request.PodUID, time.Duration(request.DurationMillis)*time.Millisecond, request.TakeOver)
	answer.Promised = answer.Why == ""
	a.log.Info("Asked for a promise", "holder", request.Holder, "promised", answer.Promised, "why", answer.Why)
	return answer
}

// askSwitchover begins a switchover, or says why there is none.
func (a *Agent) askSwitchover(request agentapi.SwitchoverRequest) error {
	status, _ := a.board.Status()
	switch {
	case status.Role != agentapi.RolePrimary || status.State != agentapi.StateRunning:
		return fmt.Errorf("%s is not a primary that runs", a.options.Instance)
	case request.Target == a.options.Instance:
		return fmt.Errorf("%s is the primary already", request.Target)
	case request.Target != "" && (*a.hosts.Load())[request.Target] == "":
		return fmt.Errorf("there is no instance %s", request.Target)
	case a.switching.active():
		return errors.New("the writes are being moved to another version")
	}
	a.requests.mu.Lock()
	defer a.requests.mu.Unlock()
	if a.requests.switchover != nil {
		return errors.New("a switchover is going on already")
	}
	if a.requests.restart != "" {
		return errors.New("PostgreSQL is being restarted")
	}
	a.requests.switchover = &request
	status.Switchover = &agentapi.SwitchoverStatus{Wanted: request.Target, Phase: agentapi.SwitchoverPreparing, Since: time.Now()}
	a.board.Set(status) // before this is answered: who asked looks at it then
	a.poke()
	return nil
}

// askHandOver takes note that the holder of the lease has stopped and wants this instance to take it.
func (a *Agent) askHandOver(request agentapi.HandOverRequest) error {
	keeper := a.leaseKeeper()
	if keeper == nil {
		return errors.New("there is no configuration yet")
	}
	view := keeper.View()
	if !view.Known || view.Holder != request.Holder || view.HolderPod != request.PodUID {
		return fmt.Errorf("the lease is that of %q (Pod %s)", view.Holder, view.HolderPod)
	}
	a.log.Info("Being handed the lease", "holder", request.Holder, "version", request.LeaseVersion)
	a.requests.mu.Lock()
	defer a.requests.mu.Unlock()
	a.requests.handed = request
	a.poke()
	return nil
}

// wasHandedOver says whether the holder of the lease, as it was seen last, has said that it has stopped and that this instance is to
// take it. It says that of one version: if it renews the lease after all, that one is gone.
func (a *Agent) wasHandedOver(w *world) bool {
	a.requests.mu.Lock()
	defer a.requests.mu.Unlock()
	handed, v := a.requests.handed, w.view
	return v.Known && handed.Holder != "" && v.Holder == handed.Holder && v.HolderPod == handed.PodUID && v.Version == handed.LeaseVersion
}

// askRestart begins a restart of PostgreSQL, or says why there is none.
func (a *Agent) askRestart(request agentapi.RestartRequest) error {
	status, _ := a.board.Status()
	a.requests.mu.Lock()
	defer a.requests.mu.Unlock()
	if server := a.server.Snapshot(); request.ServerStarted != nil &&
		(a.requests.restart != "" || !server.Running || server.Stopping != 0 || server.Started.After(*request.ServerStarted)) {
		return nil // it was restarted since, or is being restarted
	}
	if status.State != agentapi.StateRunning {
		return fmt.Errorf("PostgreSQL does not run: %s", status.State)
	}
	if a.requests.switchover != nil || a.switching.active() {
		return errors.New("a switchover is going on")
	}
	a.requests.restart = request.Why
	if request.Why == "" {
		a.requests.restart = "somebody asked for it"
	}
	a.poke()
	return nil
}

// digest finds what Status.AgentDigest is.
func (a *Agent) digest() {
	program, err := os.Open("/proc/self/exe")
	if err != nil {
		a.log.Warn("The agent's program cannot be read", "error", err)
		return
	}
	defer func() { _ = program.Close() }()
	hash := sha256.New()
	if _, err := io.Copy(hash, program); err != nil {
		a.log.Warn("The agent's program cannot be read", "error", err)
		return
	}
	text := hex.EncodeToString(hash.Sum(nil))
	a.programDigest.Store(&text)
	a.poke()
}
