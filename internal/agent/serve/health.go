package serve

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// LiveBound is how old the last round of the agent's loop may be.
const LiveBound = 30 * time.Second

// Health keeps what probes ask for.
type Health struct {
	now func() time.Time

	mu       sync.Mutex
	beat     time.Time
	started  bool
	notReady string
}

// NewHealth is the health of an agent that has just begun.
func NewHealth(now func() time.Time) *Health {
	return &Health{now: now, beat: now(), notReady: "starting"}
}

// Beat says that the agent's loop went round, whether the agent has decided anything yet, and why the instance is not ready;
// empty if it is.
func (h *Health) Beat(started bool, notReady string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.beat, h.started, h.notReady = h.now(), h.started || started, notReady
}

// Live is why the agent is not alive; empty if it is.
func (h *Health) Live() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if age := h.now().Sub(h.beat); age > LiveBound {
		return fmt.Sprintf("the agent's loop has not gone round for %s", age.Round(time.Second))
	}
	return ""
}

// Ready is why the instance is not ready; empty if it is.
func (h *Health) Ready() string {
	if dead := h.Live(); dead != "" {
		return dead
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.notReady
}

// Started is why the agent has not started; empty if it has.
func (h *Health) Started() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.started {
		return "the agent has not decided anything yet"
	}
	return ""
}

// Handler answers probes and metrics.
func (h *Health) Handler(metrics prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	for path, why := range map[string]func() string{"/livez": h.Live, "/readyz": h.Ready, "/startupz": h.Started} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			if problem := why(); problem != "" {
				http.Error(w, problem, http.StatusServiceUnavailable)
				return
			}
			_, _ = fmt.Fprintln(w, "ok")
		})
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	return mux
}
