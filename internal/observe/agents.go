package observe

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/credential"
	"github.com/pgsteward/pgsteward/internal/facts"
)

const (
	// firstRetry and lastRetry bound the pause before an agent that cannot be heard is called again.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 5 * time.Second
	// positionInterval is how often positions alone, without anything else having changed, are worth a pass.
	positionInterval = time.Minute
	// certificateRenewal is when a client certificate is made anew.
	certificateRenewal = 24 * time.Hour
)

// Agents hears the agents of all clusters: a stream for each Pod, opened again when it breaks. Nothing is polled.
type Agents struct {
	// Changed is called, from any goroutine, when a pass over the cluster is worth it.
	Changed func(cluster types.NamespacedName)
	// Log says what cannot be heard.
	Log logr.Logger
	// Port is the agents' port; naming.PortAgent unless a test sets another.
	Port int

	mu       sync.Mutex
	clusters map[types.NamespacedName]*clusterStreams
}

// Target is where an agent can be heard.
type Target struct {
	Instance   string
	PodUID     string
	Address    string
	ServerName string
}

// clusterStreams are the streams of one cluster.
type clusterStreams struct {
	streams map[string]*stream // by instance
	// identity is our client certificate, made from the authority's at identityMade.
	identity     *tls.Config
	authority    string
	identityMade time.Time
}

// stream is one agent being heard.
type stream struct {
	target Target
	stop   context.CancelFunc

	// guarded by Agents.mu
	last         agentapi.Status
	heard        bool      // a status has come on the present connection
	since        time.Time // when heard last changed
	lastPosition time.Time // when a change of positions alone was last worth a pass
}

// Follow hears just these agents of the cluster from now on. authority is the cluster's certificate authority, which makes our
// certificate; without one nobody is heard.
func (a *Agents) Follow(cluster types.NamespacedName, targets []Target, authority credential.KeyPair) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.clusters == nil {
		a.clusters = map[types.NamespacedName]*clusterStreams{}
	}
	c := a.clusters[cluster]
	if c == nil {
		c = &clusterStreams{streams: map[string]*stream{}}
		a.clusters[cluster] = c
	}
	if err := c.identify(authority); err != nil {
		if len(authority.Cert) > 0 {
			a.Log.Error(err, "Cannot make a client certificate", "cluster", cluster)
		}
		targets = nil
	}
	wanted := map[string]bool{}
	for _, target := range targets {
		wanted[target.Instance] = true
		if s := c.streams[target.Instance]; s != nil {
			if s.target == target {
				continue
			}
			s.stop()
		}
		c.streams[target.Instance] = a.start(cluster, target, c.identity)
	}
	for instance, s := range c.streams {
		if !wanted[instance] {
			s.stop()
			delete(c.streams, instance)
		}
	}
}

// Forget hears nobody of the cluster any more.
func (a *Agents) Forget(cluster types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.clusters[cluster]
	if c == nil {
		return
	}
	for _, s := range c.streams {
		s.stop()
	}
	delete(a.clusters, cluster)
}

// Report is what the instance's agent in that Pod said last on a connection that stands, and else for how long it was not heard.
func (a *Agents) Report(cluster types.NamespacedName, instance, podUID string) (facts.Known[agentapi.Status], time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var s *stream
	if c := a.clusters[cluster]; c != nil {
		s = c.streams[instance]
	}
	switch {
	case s == nil || s.target.PodUID != podUID:
		return facts.Known[agentapi.Status]{}, 0
	case !s.heard:
		return facts.Known[agentapi.Status]{}, time.Since(s.since)
	default:
		return facts.Know(s.last), 0
	}
}

// Ask is a client for the instance's agent in that Pod, and the host name that it goes by; false: it is not followed.
func (a *Agents) Ask(cluster types.NamespacedName, instance, podUID string) (*agentapi.Client, string, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.clusters[cluster]
	if c == nil || c.identity == nil {
		return nil, "", false
	}
	s := c.streams[instance]
	if s == nil || s.target.PodUID != podUID {
		return nil, "", false
	}
	client := agentapi.NewClient(c.identity.Clone())
	client.Port = cmp.Or(a.Port, client.Port)
	return client.At(s.target.Address), s.target.ServerName, true
}

// identify makes the client certificate, if there is none of this authority or it is old; streams of an older one end.
func (c *clusterStreams) identify(authority credential.KeyPair) error {
	if len(authority.Cert) == 0 {
		return errors.New("there is no certificate authority yet")
	}
	if c.authority == string(authority.Cert) && time.Since(c.identityMade) < certificateRenewal {
		return nil
	}
	pair, err := credential.Operator(authority, time.Now(), rand.Reader)
	if err != nil {
		return err
	}
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return fmt.Errorf("client certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.Cert)
	c.identity = &tls.Config{Certificates: []tls.Certificate{certificate}, RootCAs: roots, MinVersion: tls.VersionTLS13}
	if c.authority != string(authority.Cert) {
		for instance, s := range c.streams {
			s.stop()
			delete(c.streams, instance)
		}
	}
	c.authority, c.identityMade = string(authority.Cert), time.Now()
	return nil
}

// start hears one agent until it is stopped. The caller holds the lock.
func (a *Agents) start(cluster types.NamespacedName, target Target, identity *tls.Config) *stream {
	ctx, cancel := context.WithCancel(context.Background())
	s := &stream{target: target, stop: cancel, since: time.Now()}
	// the stream may live longer than the certificate: each new connection shows the cluster's present one
	config := identity.Clone()
	config.Certificates = nil
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return a.certificate(cluster) }
	c := agentapi.NewClient(config)
	c.Port = cmp.Or(a.Port, c.Port)
	go a.hear(ctx, cluster, s, c)
	return s
}

// certificate is our present client certificate for the cluster's agents.
func (a *Agents) certificate(cluster types.NamespacedName) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.clusters[cluster]
	if c == nil || c.identity == nil {
		return nil, errors.New("the cluster is not followed any more")
	}
	return &c.identity.Certificates[0], nil
}

// hear calls the agent again and again, with a growing pause while it cannot be reached.
func (a *Agents) hear(ctx context.Context, cluster types.NamespacedName, s *stream, c *agentapi.Client) {
	pause := firstRetry
	for ctx.Err() == nil {
		err := c.Watch(ctx, s.target.Address, s.target.ServerName, func(status agentapi.Status) {
			pause = firstRetry
			if a.receive(ctx, s, status) {
				a.Changed(cluster)
			}
		})
		if a.lost(ctx, s) {
			a.Log.V(1).Info("Agent is not heard", "cluster", cluster, "instance", s.target.Instance, "cause", err.Error())
			a.Changed(cluster)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, lastRetry)
	}
}

// receive keeps the status and says whether a pass is worth it.
func (a *Agents) receive(ctx context.Context, s *stream, status agentapi.Status) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	before, wasHeard := s.last, s.heard
	s.last = status
	if !wasHeard {
		s.heard, s.since, s.lastPosition = true, time.Now(), time.Now()
		return true
	}
	if !reflect.DeepEqual(withoutPositions(before), withoutPositions(status)) {
		s.lastPosition = time.Now()
		return true
	}
	if !reflect.DeepEqual(before, status) && time.Since(s.lastPosition) >= positionInterval {
		s.lastPosition = time.Now()
		return true
	}
	return false
}

// lost notes that the connection broke, and says whether that is news.
func (a *Agents) lost(ctx context.Context, s *stream) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ctx.Err() != nil || !s.heard {
		return false
	}
	s.heard, s.since = false, time.Now()
	return true
}

func withoutPositions(s agentapi.Status) agentapi.Status {
	s.LSN, s.ReplayLSN, s.LagBytes, s.Slots = "", "", nil, nil
	if s.Upgrade != nil {
		upgrade := *s.Upgrade
		if upgrade.Seed != nil {
			seed := *upgrade.Seed
			seed.LagBytes, upgrade.Seed = nil, &seed
		}
		if upgrade.Back != nil {
			back := *upgrade.Back
			back.LagBytes, upgrade.Back = nil, &back
		}
		s.Upgrade = &upgrade
	}
	s.Archive = s.Archive.WithoutPositions()
	return s
}
