package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pgsteward/pgsteward/internal/naming"
)

// podRole is the role on a Pod's label. With an empty one the Pod is behind neither -rw nor -ro.
type podRole struct{ pod, uid, role string }

// ownRole is a role of this instance's Pod.
func (a *Agent) ownRole(role string) podRole {
	return podRole{pod: a.options.Pod, uid: a.options.PodUID, role: role}
}

// primaryRoles are the roles while this instance is the primary. A standby that is about to take over leaves -ro first.
func (a *Agent) primaryRoles() []podRole {
	if target := a.switching.sendsTo(); target != "" { // nobody gets in here any more
		return []podRole{{pod: naming.Pod(target), role: naming.RolePrimary}, a.ownRole("")}
	}
	roles := []podRole{a.ownRole(naming.RolePrimary)}
	for _, member := range a.others() {
		role := naming.RoleStandby
		if a.handover.active() && member.Name == a.handover.leaving {
			role = ""
		}
		roles = append(roles, podRole{pod: naming.Pod(member.Name), role: role})
	}
	for _, member := range a.config.Members {
		if !a.isLive(member.Name) && member.Name != a.options.Instance {
			roles = append(roles, podRole{pod: naming.Pod(member.Name)})
		}
	}
	return roles
}

// label puts the roles on the Pods, once, beside the loop: on the first at once, on the others a little later. Only the first counts;
// what fails then is left to the operator.
func (a *Agent) label(ctx context.Context, roles ...podRole) {
	if err, isNew := a.labels.result(); isNew {
		a.labelledAt = time.Now()
		if err == nil {
			a.labelled = a.labels.name
		} else if !errors.Is(err, context.Canceled) {
			a.log.Warn("Labelling failed", "error", err)
		}
	}
	if a.outside {
		roles = []podRole{a.ownRole("")} // it is in no Service
	}
	wanted := fmt.Sprint(roles)
	if a.options.Labeler == nil || a.labelled == wanted && (a.labels == nil || a.labels.name == wanted) {
		return
	}
	if !a.labels.isDone() {
		if a.labels.name == wanted {
			return
		}
		a.labels.stop() // they are others now
		a.labels.taken = true
		a.labelledAt = time.Time{}
	}
	if a.labels != nil && a.labels.name == wanted && time.Since(a.labelledAt) < setupRetry {
		return
	}
	a.labels = a.begin(ctx, wanted, func(ctx context.Context) error { return a.putLabels(ctx, roles) })
}

// othersAfter is how much later the others' labels are put on than the first. A proxy may apply the first change of a Service's
// endpoints at once and the next a second later: the first must be the one that has the new primary.
const othersAfter = 5 * time.Millisecond

// putLabels labels the first Pod and the others.
func (a *Agent) putLabels(ctx context.Context, roles []podRole) error {
	var group sync.WaitGroup
	defer group.Wait()
	for _, other := range roles[1:] {
		group.Go(func() {
			select {
			case <-ctx.Done():
				return
			case <-time.After(othersAfter):
			}
			if err := a.options.Labeler.Label(ctx, other.pod, other.uid, other.role); err != nil {
				a.log.Debug("Labelling another Pod failed", "pod", other.pod, "error", err)
			}
		})
	}
	if err := a.options.Labeler.Label(ctx, roles[0].pod, roles[0].uid, roles[0].role); err != nil {
		return err
	}
	a.log.Info("Labelled", "pod", roles[0].pod, "role", roles[0].role)
	return nil
}
