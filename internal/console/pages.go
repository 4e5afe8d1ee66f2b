package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/console/view"
)

// page is what every page needs.
type page struct {
	Title string
	User  string
	// Form is the value that forms carry.
	Form string
	// LogOut says whether one can.
	LogOut bool
	// Live is the address of the page's stream; empty: it has none.
	Live string
	Now  time.Time
}

func (c *Console) page(title string, u *user, live string) page {
	return page{
		Title: title, User: u.name, Form: c.sealer.formValue(u.form), LogOut: c.options.TokenHeader == "", Live: live, Now: c.now(),
	}
}

// withEvents adds the kind of events, which are read but not written.
func withEvents(m apimeta.RESTMapper) apimeta.RESTMapper {
	if known, ok := m.(*apimeta.DefaultRESTMapper); ok {
		known.Add(corev1.SchemeGroupVersion.WithKind("Event"), apimeta.RESTScopeNamespace)
	}
	return m
}

// keyOf is the cluster in the request's path.
func keyOf(r *http.Request) types.NamespacedName {
	return types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
}

// all are all clusters, whoever may see them.
func (c *Console) all(ctx context.Context) ([]v1.PostgresCluster, error) {
	var list v1.PostgresClusterList
	if err := c.objects.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil { // nothing here changes them
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	return list.Items, nil
}

// visible is where the user may list clusters.
func (c *Console) visible(ctx context.Context, u *user) (seen, error) {
	list, err := c.all(ctx)
	if err != nil {
		return seen{}, err
	}
	namespaces, known := []string{}, map[string]bool{}
	for n := range list {
		if namespace := list[n].Namespace; !known[namespace] {
			known[namespace] = true
			namespaces = append(namespaces, namespace)
		}
	}
	return c.access.sees(ctx, u, namespaces)
}

type fleetData struct {
	page
	view.Fleet
	// Query is the filter as it stands in the address.
	query url.Values
	// Everywhere says whether the user sees all namespaces.
	Everywhere bool
}

// Link is the address of the same page with one thing of the filter changed.
func (f fleetData) Link(key, value string) string {
	query := url.Values{}
	for k, v := range f.query {
		query[k] = v
	}
	query.Del("page")
	query.Set(key, value)
	if value == "" {
		query.Del(key)
	}
	return "/?" + query.Encode()
}

// SortLink sorts by that column, the other way round if it is sorted by it already.
func (f fleetData) SortLink(key string) string {
	if f.Filter.Sort == key && !f.Filter.Descending {
		return f.with("-" + key)
	}
	return f.with(key)
}

func (f fleetData) with(sort string) string { return f.Link("sort", sort) }

// Sorted is the value of aria-sort of a column.
func (f fleetData) Sorted(key string) string {
	switch {
	case f.Filter.Sort != key:
		return "none"
	case f.Filter.Descending:
		return "descending"
	}
	return "ascending"
}

func (c *Console) fleetPage(w http.ResponseWriter, r *http.Request, u *user) {
	list, err := c.all(r.Context())
	if err != nil {
		c.unavailable(w, r, err)
		return
	}
	visible, err := c.visible(r.Context(), u)
	if err != nil {
		c.unavailable(w, r, err)
		return
	}
	var shown []*v1.PostgresCluster
	for n := range list {
		if visible.has(list[n].Namespace) {
			shown = append(shown, &list[n])
		}
	}
	query := r.URL.Query()
	data := fleetData{page: c.page("Clusters", u, "/live"), query: query, Everywhere: visible.all, Fleet: view.FleetOf(shown, filterOf(query))}
	c.pages.show(w, http.StatusOK, "fleet", data)
}

func filterOf(query url.Values) view.Filter {
	filter := view.Filter{
		Search: query.Get("q"), State: view.State(query.Get("state")), Namespace: query.Get("namespace"), Sort: query.Get("sort"),
	}
	if len(filter.Search) > searchBytes {
		filter.Search = filter.Search[:searchBytes]
	}
	if len(filter.Sort) > 1 && filter.Sort[0] == '-' {
		filter.Sort, filter.Descending = filter.Sort[1:], true
	}
	if n, err := strconv.Atoi(query.Get("page")); err == nil {
		filter.Page = n
	}
	return filter
}

// clusterBase is what the pages of one cluster have in common.
type clusterBase struct {
	page
	Namespace, Name string
	Tab             string
	State           view.State
	Row             view.Row
	Actions         []view.Action
	// Done is the action that was just carried out.
	Done string
	// HasUpgrade says whether the tab of the upgrade has anything to say.
	HasUpgrade bool
}

// cluster reads the one in the request's path, if the user may get it. It answers itself and returns nil otherwise: one that the user may not see
// looks the same as one that is not there.
func (c *Console) cluster(w http.ResponseWriter, r *http.Request, u *user) *v1.PostgresCluster {
	key := keyOf(r)
	allowed, err := c.access.may(r.Context(), u, right{"get", clusters, key.Namespace, key.Name})
	if err != nil {
		c.unavailable(w, r, err)
		return nil
	}
	found := &v1.PostgresCluster{}
	if allowed {
		err = c.objects.Get(r.Context(), key, found)
	}
	switch {
	case !allowed, apierrors.IsNotFound(err):
		c.pages.problem(w, http.StatusNotFound, "No such cluster", "There is no such PostgresCluster, or you may not see it.")
		return nil
	case err != nil:
		c.unavailable(w, r, err)
		return nil
	}
	return found
}

func (c *Console) base(r *http.Request, u *user, found *v1.PostgresCluster, tab string) clusterBase {
	base := clusterBase{
		page:      c.page(found.Name, u, "/live/"+found.Namespace+"/"+found.Name),
		Namespace: found.Namespace, Name: found.Name, Tab: tab, Row: view.RowOf(found),
		Actions: c.offered(r.Context(), u, found), HasUpgrade: view.UpgradeOf(found, c.now()) != nil,
	}
	base.State = base.Row.State
	base.Done = done[view.ActionName(r.URL.Query().Get("done"))]
	return base
}

type clusterData struct {
	clusterBase
	Cluster view.Cluster
	// EventsHidden says that the user may not see events.
	EventsHidden bool
}

func (c *Console) clusterPage(w http.ResponseWriter, r *http.Request, u *user) {
	found := c.cluster(w, r, u)
	if found == nil {
		return
	}
	allowed, err := c.access.may(r.Context(), u, right{verb: "list", resource: events, namespace: found.Namespace})
	if err != nil {
		c.unavailable(w, r, err)
		return
	}
	var list []corev1.Event
	if allowed {
		if list, err = c.eventsOf(r.Context(), found); err != nil {
			c.unavailable(w, r, err)
			return
		}
	}
	c.pages.show(w, http.StatusOK, "cluster", clusterData{
		clusterBase: c.base(r, u, found, "cluster"), Cluster: view.ClusterOf(found, list), EventsHidden: !allowed,
	})
}

// eventsOf are the events of this very cluster, not of an earlier one of its name.
func (c *Console) eventsOf(ctx context.Context, found *v1.PostgresCluster) ([]corev1.Event, error) {
	var list corev1.EventList
	if err := c.objects.List(ctx, &list, client.InNamespace(found.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing events: %w", err)
	}
	var own []corev1.Event
	for _, e := range list.Items {
		if e.InvolvedObject.Kind == "PostgresCluster" && e.InvolvedObject.Name == found.Name &&
			(e.InvolvedObject.UID == "" || e.InvolvedObject.UID == found.UID) {
			own = append(own, e)
		}
	}
	return own, nil
}

type upgradeData struct {
	clusterBase
	Upgrade *view.Upgrade
	Version string
}

func (c *Console) upgradePage(w http.ResponseWriter, r *http.Request, u *user) {
	if found := c.cluster(w, r, u); found != nil {
		c.pages.show(w, http.StatusOK, "upgrade", upgradeData{
			clusterBase: c.base(r, u, found, "upgrade"), Upgrade: view.UpgradeOf(found, c.now()), Version: found.Spec.Version,
		})
	}
}

type backupsData struct {
	clusterBase
	Backups view.Backups
	Version string
	// Hidden says that the user may not see PostgresBackups.
	Hidden bool
}

func (c *Console) backupsPage(w http.ResponseWriter, r *http.Request, u *user) {
	found := c.cluster(w, r, u)
	if found == nil {
		return
	}
	allowed, err := c.access.may(r.Context(), u, right{verb: "list", resource: backups, namespace: found.Namespace})
	if err != nil {
		c.unavailable(w, r, err)
		return
	}
	var own []v1.PostgresBackup
	if allowed {
		var list v1.PostgresBackupList
		if err := c.objects.List(r.Context(), &list, client.InNamespace(found.Namespace)); err != nil {
			c.unavailable(w, r, err)
			return
		}
		for _, b := range list.Items {
			if b.Spec.Cluster == found.Name {
				own = append(own, b)
			}
		}
	}
	c.pages.show(w, http.StatusOK, "backups", backupsData{
		clusterBase: c.base(r, u, found, "backups"), Backups: view.BackupsOf(found, own, c.now()), Version: found.Spec.Version, Hidden: !allowed,
	})
}

func (c *Console) notFound(w http.ResponseWriter, _ *http.Request) {
	c.pages.problem(w, http.StatusNotFound, "No such page", "There is no such page.")
}

func (c *Console) refused(w http.ResponseWriter, _ *http.Request) {
	c.pages.problem(w, http.StatusForbidden, "Not accepted", "This form is too old, or not from this console. Go back, load the page again, and try once more.")
}

// unavailable is for when the API server cannot be asked: nobody sees anything that might not be for them.
func (c *Console) unavailable(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(r.Context().Err(), context.Canceled) {
		return // the browser has gone
	}
	if apierrors.IsUnauthorized(err) {
		http.Redirect(w, r, "/", http.StatusSeeOther) // the token has expired since it was looked at
		return
	}
	c.log.Error(err, "Could not ask the API server", "path", r.URL.Path)
	c.pages.problem(w, http.StatusServiceUnavailable, "Kubernetes does not answer", "What you may see cannot be found out just now. Try again in a moment.")
}

func (c *Console) failed(w http.ResponseWriter, r *http.Request, err error) {
	c.log.Error(err, "Could not answer a request", "path", r.URL.Path)
	c.pages.problem(w, http.StatusInternalServerError, "Something went wrong", "The console's log says what.")
}
