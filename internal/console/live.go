package console

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
)

const (
	// streamsAtOnce bounds how many pages are followed.
	streamsAtOnce = 1000
	// streamTime is how long a stream lasts; the browser opens another.
	streamTime = 10 * time.Minute
	// streamPause is how often a page is told to look again at most: many changes at once are one.
	streamPause = time.Second
	// streamBeat is how often a stream without news shows that it works, and looks whether its user may still see it.
	streamBeat = 20 * time.Second
	// streamWrite bounds a write to a browser that does not read.
	streamWrite = 10 * time.Second
)

// hub tells streams which clusters have changed.
type hub struct {
	mu      sync.Mutex
	streams map[*stream]struct{}
}

// stream is woken by changes of clusters that it wants to hear of.
type stream struct {
	wants func(types.NamespacedName) bool
	wake  chan struct{}
}

func newHub() *hub { return &hub{streams: map[*stream]struct{}{}} }

// join is nil if there are too many already.
func (h *hub) join(wants func(types.NamespacedName) bool) *stream {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.streams) >= streamsAtOnce {
		return nil
	}
	s := &stream{wants: wants, wake: make(chan struct{}, 1)}
	h.streams[s] = struct{}{}
	return s
}

func (h *hub) leave(s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.streams, s)
}

// rewant changes what a stream wants to hear of.
func (h *hub) rewant(s *stream, wants func(types.NamespacedName) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.wants = wants
}

func (h *hub) changed(cluster types.NamespacedName) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.streams {
		if !s.wants(cluster) {
			continue
		}
		select {
		case s.wake <- struct{}{}:
		default: // it is awake already
		}
	}
}

// listen has the hub hear of every change that the informers see.
func (h *hub) listen(ctx context.Context, informers cache.Informers) error {
	for _, object := range kinds() {
		informer, err := informers.GetInformer(ctx, object)
		if err != nil {
			return fmt.Errorf("watching %T: %w", object, err)
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { h.heard(o) },
			UpdateFunc: func(before, after any) {
				if version(before) != version(after) {
					h.heard(after)
				}
			},
			DeleteFunc: func(o any) {
				if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
					o = gone.Obj
				}
				h.heard(o)
			},
		})
		if err != nil {
			return fmt.Errorf("watching %T: %w", object, err)
		}
	}
	return nil
}

// kinds are what the console watches.
func kinds() []client.Object {
	return []client.Object{&v1.PostgresCluster{}, &v1.PostgresBackup{}, &corev1.Event{}}
}

func version(o any) string {
	if object, ok := o.(client.Object); ok {
		return object.GetResourceVersion()
	}
	return ""
}

func (h *hub) heard(o any) {
	switch object := o.(type) {
	case *v1.PostgresCluster:
		h.changed(client.ObjectKeyFromObject(object))
	case *v1.PostgresBackup:
		h.changed(types.NamespacedName{Namespace: object.Namespace, Name: object.Spec.Cluster})
	case *corev1.Event:
		h.changed(types.NamespacedName{Namespace: object.InvolvedObject.Namespace, Name: object.InvolvedObject.Name})
	}
}

// scope is what a stream may hear of; its mark differs when that does.
type scope struct {
	has  func(types.NamespacedName) bool
	mark string
}

// liveFleet is the stream of the page with all clusters.
func (c *Console) liveFleet(w http.ResponseWriter, r *http.Request, u *user) {
	c.stream(w, r, func(ctx context.Context) (scope, error) {
		visible, err := c.visible(ctx, u)
		return scope{func(cluster types.NamespacedName) bool { return visible.has(cluster.Namespace) }, fmt.Sprint(visible)}, err
	})
}

// liveCluster is the stream of the pages of one cluster.
func (c *Console) liveCluster(w http.ResponseWriter, r *http.Request, u *user) {
	key := keyOf(r)
	c.stream(w, r, func(ctx context.Context) (scope, error) {
		allowed, err := c.access.may(ctx, u, right{"get", clusters, key.Namespace, key.Name})
		return scope{func(cluster types.NamespacedName) bool { return allowed && cluster == key }, fmt.Sprint(allowed)}, err
	})
}

// stream tells the browser that something has changed, never what. The page that it then fetches is subject to the same rules as any.
func (c *Console) stream(w http.ResponseWriter, r *http.Request, look func(context.Context) (scope, error)) {
	seen, err := look(r.Context())
	if err != nil {
		c.unavailable(w, r, err)
		return
	}
	s := c.hub.join(seen.has)
	if s == nil {
		http.Error(w, "too many pages are followed", http.StatusServiceUnavailable)
		return
	}
	defer c.hub.leave(s)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // or a proxy keeps the events for later
	controller := http.NewResponseController(w)
	_ = controller.SetReadDeadline(time.Time{}) // that of the server is for requests; here nothing more is to be read
	send := func(text string) bool {
		_ = controller.SetWriteDeadline(time.Now().Add(streamWrite))
		_, err := fmt.Fprint(w, text)
		return err == nil && controller.Flush() == nil
	}
	if !send("retry: 2000\nevent: begun\ndata:\n\n") {
		return
	}
	beat, end := time.NewTicker(c.beat), time.NewTimer(streamTime)
	defer beat.Stop()
	defer end.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-end.C:
			return
		case <-s.wake:
			if !send("event: changed\ndata:\n\n") || !pause(r.Context(), streamPause) {
				return
			}
		case <-beat.C:
			before := seen.mark
			if _, err = c.identify(r); err == nil {
				seen, err = look(r.Context())
			}
			if err != nil {
				send("event: ended\ndata:\n\n")
				return
			}
			c.hub.rewant(s, seen.has)
			if text := map[bool]string{true: ":\n\n", false: "event: changed\ndata:\n\n"}[seen.mark == before]; !send(text) {
				return
			}
		}
	}
}

// pause is false if the context ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
