package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pgsteward/pgsteward/internal/naming"
)

// label puts the role on this instance's Pod, once; a new primary tells the other Pods' labels too. What fails is left to the
// operator after the first success of our own.
func (a *Agent) label(ctx context.Context, role string) {
	if err, isNew := a.labels.result(); isNew {
		a.labelledAt = time.Now()
		if err == nil {
			a.labelled = a.labels.name
		} else if !errors.Is(err, context.Canceled) {
			a.log.Warn("Labelling failed", "error", err)
		}
	}
	if a.outside {
		role = "" // it is in no Service
	}
	if a.options.Labeler == nil || a.labelled == role && (role != "" || a.labels != nil) {
		return
	}
	if !a.labels.isDone() {
		if a.labels.name == role {
			return
		}
		a.labels.stop() // it has another role now
		a.labels.taken = true
		a.labelledAt = time.Time{}
	}
	if a.labels != nil && a.labels.name == role && time.Since(a.labelledAt) < setupRetry {
		return
	}
	others := map[string]string{}
	if role == naming.RolePrimary {
		for _, member := range a.config.Members {
			switch {
			case member.Name == a.options.Instance:
			case a.isLive(member.Name):
				others[naming.Pod(member.Name)] = naming.RoleStandby
			default:
				others[naming.Pod(member.Name)] = ""
			}
		}
	}
	a.labels = a.begin(ctx, role, func(ctx context.Context) error { return a.putLabels(ctx, role, others) })
}

// othersAfter is how much later the others' labels are put on than our own. Proxies apply the first change of a Service's endpoints
// at once and the next a second later: the first must be the one that has the new primary.
const othersAfter = 5 * time.Millisecond

// putLabels labels our Pod, and the others as well.
func (a *Agent) putLabels(ctx context.Context, role string, others map[string]string) error {
	var group sync.WaitGroup
	defer group.Wait()
	for other, role := range others {
		group.Go(func() {
			select {
			case <-ctx.Done():
				return
			case <-time.After(othersAfter):
			}
			if err := a.options.Labeler.Label(ctx, other, "", role); err != nil {
				a.log.Debug("Labelling another Pod failed", "pod", other, "error", err)
			}
		})
	}
	return a.options.Labeler.Label(ctx, a.options.Pod, a.options.PodUID, role)
}
