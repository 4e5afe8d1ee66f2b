package console

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
)

// SessionTime is how long a session lasts if nobody says otherwise.
const SessionTime = 8 * time.Hour

// Options of the console.
type Options struct {
	// Key is a secret of at least KeyBytes that all replicas share; without it there is one made up, and sessions end with the process.
	Key []byte
	// SessionTime is how long a session lasts at most.
	SessionTime time.Duration
	// TokenHeader is the header in which a proxy gives the user's token; then there is no login. Empty: there is.
	TokenHeader string
	// Actions lets users act, with their own rights.
	Actions bool
	// Namespaces that are watched; nil: all.
	Namespaces map[string]cache.Config
	// Log gets who logged in and who did what. Never a token.
	Log logr.Logger
	// Now is the clock.
	Now func() time.Time
}

// Console is the program behind the pages.
type Console struct {
	options Options
	log     logr.Logger
	now     func() time.Time
	// beat is streamBeat, but in tests.
	beat time.Duration

	objects   cache.Cache
	hub       *hub
	sealer    *sealer
	directory *directory
	access    *access
	limits    *limits
	ended     *memory[string, struct{}] // sessions that were logged out
	pages     *pages
}

// New makes a console that reads with the access of config. It has no objects until Start runs.
func New(config *rest.Config, options Options) (*Console, error) {
	if options.SessionTime <= 0 {
		options.SessionTime = SessionTime
	}
	key := options.Key
	if key == nil {
		key = make([]byte, KeyBytes)
		if _, err := rand.Read(key); err != nil {
			return nil, fmt.Errorf("making the key of sessions: %w", err)
		}
	}
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	c := &Console{
		options: options, log: options.Log, now: options.Now, beat: streamBeat, hub: newHub(), access: newAccess(options.Now),
		limits: newLimits(options.Now), ended: newMemory[string, struct{}](options.Now),
	}
	var errs [4]error
	c.sealer, errs[0] = newSealer(key, options.Now)
	c.directory, errs[1] = newDirectory(config, scheme, options.Now)
	c.pages, errs[2] = newPages()
	c.objects, errs[3] = newCache(config, scheme, options.Namespaces)
	return c, errors.Join(errs[:]...)
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), authenticationv1.AddToScheme(scheme), authorizationv1.AddToScheme(scheme),
		v1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("making the scheme: %w", err)
	}
	return scheme, nil
}

// newCache has what pages show, and of events only those of our objects.
func newCache(config *rest.Config, scheme *runtime.Scheme, namespaces map[string]cache.Config) (cache.Cache, error) {
	m := mapper()
	objects, err := cache.New(config, cache.Options{
		Scheme:            scheme,
		Mapper:            withEvents(m),
		DefaultNamespaces: namespaces,
		DefaultTransform:  cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Event{}: {Field: fields.OneTermEqualSelector("involvedObject.apiVersion", v1.GroupVersion.String())},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("making the cache: %w", err)
	}
	return objects, nil
}

// Start fills the cache and keeps it up to date until the context ends.
func (c *Console) Start(ctx context.Context) error {
	if err := c.hub.listen(ctx, c.objects); err != nil {
		return err
	}
	return c.objects.Start(ctx)
}

// Filled waits until the cache has been filled, or the context ends.
func (c *Console) Filled(ctx context.Context) bool { return c.objects.WaitForCacheSync(ctx) }

// Handler answers all requests.
func (c *Console) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", c.ready)
	mux.Handle("GET /assets/{file}", c.pages.assets())
	if c.options.TokenHeader == "" {
		mux.HandleFunc("GET /login", c.loginPage)
		mux.HandleFunc("POST /login", c.login)
		mux.HandleFunc("POST /logout", c.logout)
	}
	mux.Handle("GET /{$}", c.forUsers(c.fleetPage))
	mux.Handle("GET /clusters/{namespace}/{name}", c.forUsers(c.clusterPage))
	mux.Handle("GET /clusters/{namespace}/{name}/upgrade", c.forUsers(c.upgradePage))
	mux.Handle("GET /clusters/{namespace}/{name}/backups", c.forUsers(c.backupsPage))
	mux.Handle("GET /live", c.forUsers(c.liveFleet))
	mux.Handle("GET /live/{namespace}/{name}", c.forUsers(c.liveCluster))
	if c.options.Actions {
		mux.Handle("GET /clusters/{namespace}/{name}/actions/{action}", c.forUsers(c.actionPage))
		mux.Handle("POST /clusters/{namespace}/{name}/actions/{action}", c.forUsers(c.act))
	}
	mux.HandleFunc("/", c.notFound)
	return guarded(mux)
}

// ready says whether the cache was filled and the pages would not look empty only because of that.
func (c *Console) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	if !c.Filled(ctx) {
		http.Error(w, "the cache is not filled yet", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// guarded puts the headers on every answer that keep browsers from doing what the pages do not need, and refuses requests that change
// something and come from elsewhere.
func guarded(next http.Handler) http.Handler {
	origin := http.NewCrossOriginProtection()
	origin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "This request comes from another site.", http.StatusForbidden)
	}))
	next = origin.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "+
			"form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		h.Set("Cache-Control", "no-store")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		r.Body = http.MaxBytesReader(w, r.Body, bodyBytes)
		next.ServeHTTP(w, r)
	})
}
