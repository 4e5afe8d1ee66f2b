//go:build e2e

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pgsteward/pgsteward/internal/naming"
)

// mark is a moment in a change of the primary, for a person who wants to know where the time goes.
type mark struct {
	at   time.Time
	what string
}

// agentMarks are the messages of agents that are marks, by what they are called.
var agentMarks = map[string]string{
	"Preparing to hand over": "asked", "Stopping PostgreSQL": "stop", "PostgreSQL has stopped": "stopped",
	"Gave the lease away": "handed over", "Holding the lease": "held", "Promoting": "promote", "Promoted": "promoted", "Labelled": "labelled",
}

// phases are the marks around the longest gap, in milliseconds from the last row before it.
func (b *bed) phases(ctx context.Context, o *outcome, endpoints *endpointMarks) string {
	changes := endpoints.stop()
	if len(o.Gaps) == 0 {
		return "no gap"
	}
	longest := slices.MaxFunc(o.Gaps, func(a, b gap) int { return int(a.MS - b.MS) })
	marks := slices.Concat(b.agentMarks(ctx, longest.At.Add(-5*time.Second)), changes, proxyMarks())
	marks = append(marks, mark{longest.At.Add(time.Duration(longest.MS * float64(time.Millisecond))), "FIRST ROW"})
	slices.SortFunc(marks, func(a, b mark) int { return a.at.Compare(b.at) })
	var texts []string
	for _, m := range marks {
		if since := m.at.Sub(longest.At); since > -2*time.Second && since < 3*time.Second {
			texts = append(texts, fmt.Sprintf("%d %s", since.Milliseconds(), m.what))
		}
	}
	return strings.Join(texts, ", ")
}

// tryTimed is try that prints where the time went.
func (s *beds) tryTimed(t *testing.T, k kind, number int, f fault) outcome {
	t.Helper()
	b := s.get(t, k)
	endpoints, err := b.watchEndpoints(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	o := s.try(t, k, 1, number, f)
	fmt.Println("             " + b.phases(t.Context(), &o, endpoints))
	return o
}

// agentMarks reads the agents' logs. What a Pod that is gone has said is lost.
func (b *bed) agentMarks(ctx context.Context, since time.Time) (marks []mark) {
	pods, _ := b.pods(ctx)
	for _, pod := range pods {
		out, _ := kubectl(ctx, "-n", b.namespace, "logs", pod.Name, "-c", naming.ContainerPostgres, "--since-time="+since.UTC().Format(time.RFC3339))
		for line := range strings.Lines(out) {
			var entry struct {
				Time     time.Time
				Msg, Pod string
				Instance string
				Role     *string
			}
			if json.Unmarshal([]byte(line), &entry) != nil || agentMarks[entry.Msg] == "" {
				continue
			}
			what := entry.Instance + " " + agentMarks[entry.Msg]
			if entry.Role != nil {
				what += fmt.Sprintf(" %s=%s", entry.Pod, *entry.Role)
			}
			marks = append(marks, mark{entry.Time, what})
		}
	}
	return marks
}

// endpointMarks are the changes of the Services' endpoints while they are watched.
type endpointMarks struct {
	watching watch.Interface
	mu       sync.Mutex
	marks    []mark
	done     chan struct{}
}

// watchEndpoints watches until stop is called.
func (b *bed) watchEndpoints(ctx context.Context) (*endpointMarks, error) {
	watching, err := kube.Watch(ctx, &discoveryv1.EndpointSliceList{}, client.InNamespace(b.namespace))
	if err != nil {
		return nil, err
	}
	e := &endpointMarks{watching: watching, done: make(chan struct{})}
	go func() {
		defer close(e.done)
		for event := range watching.ResultChan() {
			slice, ok := event.Object.(*discoveryv1.EndpointSlice)
			if !ok || event.Type == watch.Added || slice.Labels[discoveryv1.LabelServiceName] == naming.ServiceInstances(clusterName) {
				continue
			}
			var pods []string
			for _, endpoint := range slice.Endpoints {
				if endpoint.TargetRef != nil {
					pods = append(pods, endpoint.TargetRef.Name)
				}
			}
			e.mu.Lock()
			e.marks = append(e.marks, mark{time.Now(), slice.Labels[discoveryv1.LabelServiceName] + "=[" + strings.Join(pods, " ") + "]"})
			e.mu.Unlock()
		}
	}()
	return e, nil
}

func (e *endpointMarks) stop() []mark {
	e.watching.Stop()
	<-e.done
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.marks
}

var synced = regexp.MustCompile(`(?m)^I(\d{4} [\d:.]+) .*"?SyncProxyRules complete"?.*elapsed="([^"]+)"`)

// proxyMarks are the ends of kube-proxy's work on the client's node, with how long it took.
func proxyMarks() (marks []mark) {
	logs, err := filepath.Glob(filepath.Join(clusterDir, "nodes", fmt.Sprintf("*%d", clientNode), "log", "kube-proxy.log"))
	if err != nil || len(logs) == 0 {
		return []mark{{time.Now(), errors.Join(err, errors.New("no log of kube-proxy")).Error()}}
	}
	text, _ := os.ReadFile(logs[0])
	for _, found := range synced.FindAllSubmatch(text, -1) {
		at, err := time.ParseInLocation("20060102 15:04:05", time.Now().Format("2006")+string(found[1]), time.Local)
		if err == nil {
			marks = append(marks, mark{at, "proxied (" + string(found[2]) + ")"})
		}
	}
	return marks
}
