package console

import (
	"context"
	"fmt"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
)

// Resources of the API that a user may or may not have rights to.
const (
	clusters = "postgresclusters"
	backups  = "postgresbackups"
	events   = "events"
)

// asked at once: how many questions are put to the API server for one page.
const askedAtOnce = 16

// right is a verb on a resource; an empty namespace means all of them.
type right struct{ verb, resource, namespace, name string }

// question is a right, and the token it is asked for.
type question struct {
	hash tokenHash
	right
}

// access says what users may do.
type access struct{ answers *memory[question, bool] }

func newAccess(now func() time.Time) *access {
	return &access{answers: newMemory[question, bool](now)}
}

// may says whether the API server would let the user do that. With an error the answer is no.
func (a *access) may(ctx context.Context, u *user, r right) (bool, error) {
	key := question{hash: u.hash, right: r}
	if allowed, ok := a.answers.get(key); ok {
		return allowed, nil
	}
	group := v1.Group
	if r.resource == events {
		group = ""
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: r.namespace, Verb: r.verb, Group: group, Resource: r.resource, Name: r.name,
		},
	}}
	if err := u.api.Create(ctx, review); err != nil {
		return false, fmt.Errorf("asking whether %s may %s %s: %w", u.name, r.verb, r.resource, err)
	}
	lasts := answerTime
	if !review.Status.Allowed {
		lasts = refusalTime // who was just given a right is waiting for it
	}
	a.answers.put(key, review.Status.Allowed, lasts)
	return review.Status.Allowed, nil
}

// seen is the namespaces whose clusters a user may list.
type seen struct {
	all  bool
	some map[string]bool
}

func (s seen) has(namespace string) bool { return s.all || s.some[namespace] }

// sees says in which of these namespaces the user may list clusters.
func (a *access) sees(ctx context.Context, u *user, namespaces []string) (seen, error) {
	all, err := a.may(ctx, u, right{verb: "list", resource: clusters})
	if err != nil || all {
		return seen{all: all}, err
	}
	result := seen{some: map[string]bool{}}
	var mu sync.Mutex
	var wait sync.WaitGroup
	var failure error
	places := make(chan struct{}, askedAtOnce)
	for _, namespace := range namespaces {
		places <- struct{}{}
		wait.Go(func() {
			defer func() { <-places }()
			allowed, err := a.may(ctx, u, right{verb: "list", resource: clusters, namespace: namespace})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failure = err
			}
			result.some[namespace] = allowed
		})
	}
	wait.Wait()
	if failure != nil {
		return seen{}, failure
	}
	return result, nil
}
