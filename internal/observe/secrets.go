package observe

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pgsteward/pgsteward/internal/naming"
)

// Secrets reads the Secrets of clusters. The operator has no right to any Secret but in namespaces that have a cluster, where a
// RoleBinding that it made for the cluster gives it that right; so there is no one watch of all of them, but one for each such
// namespace.
type Secrets struct {
	// NewCache makes the cache of one namespace's Secrets, those of ours only.
	NewCache func(namespace string) (cache.Cache, error)
	// Changed is called, from any goroutine, when a Secret of the cluster changed, or can be read for the first time.
	Changed func(cluster types.NamespacedName)
	Log     logr.Logger

	mu         sync.Mutex
	namespaces map[string]*namespaceSecrets
}

// namespaceSecrets are the Secrets of one namespace, and the clusters that they are read for.
type namespaceSecrets struct {
	cache    cache.Cache
	stop     context.CancelFunc
	clusters map[types.NamespacedName]bool
	begun    time.Time
	synced   bool
}

// In returns what reads the Secrets of the cluster's namespace, or for how long that has been tried in vain. The first call
// begins to watch them.
func (s *Secrets) In(cluster types.NamespacedName) (client.Reader, time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.namespaces[cluster.Namespace]
	if n == nil {
		var err error
		if n, err = s.begin(cluster.Namespace); err != nil {
			return nil, 0, err
		}
	}
	n.clusters[cluster] = true
	if n.synced {
		return n.cache, 0, nil
	}
	return nil, max(time.Since(n.begun), time.Nanosecond), nil
}

// Watches says whether the Secrets of the namespace are being watched.
func (s *Secrets) Watches(namespace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.namespaces[namespace] != nil
}

// Forget ends the watch of the cluster's namespace, if no other cluster needs it.
func (s *Secrets) Forget(cluster types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.namespaces[cluster.Namespace]
	if n == nil {
		return
	}
	delete(n.clusters, cluster)
	if len(n.clusters) == 0 {
		n.stop()
		delete(s.namespaces, cluster.Namespace)
	}
}

// begin watches a namespace's Secrets. The caller holds the lock.
func (s *Secrets) begin(namespace string) (*namespaceSecrets, error) {
	secrets, err := s.NewCache(namespace)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	n := &namespaceSecrets{cache: secrets, stop: stop, clusters: map[types.NamespacedName]bool{}, begun: time.Now()}
	informer, err := secrets.GetInformer(ctx, &corev1.Secret{}, cache.BlockUntilSynced(false))
	if err == nil {
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { s.changed(object) },
			UpdateFunc: func(_, object any) { s.changed(object) },
			DeleteFunc: func(object any) { s.changed(object) },
		})
	}
	if err != nil {
		stop()
		return nil, err
	}
	if s.namespaces == nil {
		s.namespaces = map[string]*namespaceSecrets{}
	}
	s.namespaces[namespace] = n
	go func() {
		if err := secrets.Start(ctx); err != nil {
			s.Log.Error(err, "Watching Secrets failed", "namespace", namespace)
		}
	}()
	go func() {
		if secrets.WaitForCacheSync(ctx) {
			s.ready(n)
		}
	}()
	return n, nil
}

// ready wakes the clusters that wait for their Secrets.
func (s *Secrets) ready(n *namespaceSecrets) {
	s.mu.Lock()
	n.synced = true
	var waiting []types.NamespacedName
	for cluster := range n.clusters {
		waiting = append(waiting, cluster)
	}
	s.mu.Unlock()
	for _, cluster := range waiting {
		s.Changed(cluster)
	}
}

// changed wakes the cluster of a Secret that was added, changed or deleted.
func (s *Secrets) changed(object any) {
	if tombstone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	secret, ok := object.(client.Object)
	if !ok {
		return
	}
	if cluster := secret.GetLabels()[naming.LabelCluster]; cluster != "" {
		s.Changed(types.NamespacedName{Namespace: secret.GetNamespace(), Name: cluster})
	}
}
