package observe

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// liveVersion is the major of the live generation: what the Lease says; else that of the primary's data, as its volume remembers; else
// that of the primary's server, as the status does. Only a cluster of which nothing is known yet has what its spec wants.
func liveVersion(c *v1.PostgresCluster, f *facts.Cluster, lease *coordinationv1.Lease) string {
	if lease != nil && lease.Annotations[naming.AnnotationVersion] != "" {
		return lease.Annotations[naming.AnnotationVersion]
	}
	known, _, _ := strings.Cut(c.Status.Version, ".")
	for _, v := range f.Volumes {
		was := v.Instance == f.Holder || f.Holder == "" && v.WasPrimary && known != ""
		if was && v.Version != "" {
			return v.Version
		}
	}
	return cmp.Or(known, f.Version)
}

// imagesOf are the images of the majors that instances run beside the one that the spec wants: as the upgrade's status remembers, else
// as their StatefulSets have it.
func imagesOf(c *v1.PostgresCluster, f *facts.Cluster, objects Objects) map[string]string {
	images := map[string]string{}
	if u := c.Status.Upgrade; u != nil && u.FromImage != "" {
		images[u.From] = u.FromImage
	}
	sets := slices.Clone(objects["StatefulSet"])
	slices.SortFunc(sets, func(a, b client.Object) int { // the primary's first
		switch {
		case a.GetName() == f.Holder:
			return -1
		case b.GetName() == f.Holder:
			return 1
		default:
			return strings.Compare(a.GetName(), b.GetName())
		}
	})
	for _, object := range sets {
		set, ok := object.(*appsv1.StatefulSet)
		if !ok {
			continue
		}
		version := cmp.Or(set.Spec.Template.Annotations[naming.AnnotationVersion], f.Live)
		if _, has := images[version]; !has {
			if image := imageOf(set.Spec.Template.Spec); image != "" {
				images[version] = image
			}
		}
	}
	delete(images, f.Version)
	return images
}

// imageOf is the image of PostgreSQL.
func imageOf(spec corev1.PodSpec) string {
	for _, container := range spec.Containers {
		if container.Name == naming.ContainerPostgres {
			return container.Image
		}
	}
	return ""
}

// closed is why writes may not move to a new version now; empty: they may.
func closed(w *v1.SwitchoverWindow, now time.Time) string {
	if w == nil {
		return ""
	}
	schedule, err := backup.ParseSchedule(w.Schedule)
	zone, errZone := backup.ParseTimeZone(w.TimeZone)
	open, errOpen := time.ParseDuration(string(cmp.Or(w.Duration, "2h")))
	if err := errors.Join(err, errZone, errOpen); err != nil {
		return "spec.upgrade.switchoverWindow is not one: " + err.Error()
	}
	if opens := schedule.Opening(now.In(zone), open); !opens.IsZero() {
		return "everything is ready; the window for the switchover opens at " + opens.Format(time.RFC3339)
	}
	return ""
}

// upgradeFacts are what is wanted of a major upgrade, and what the status remembers.
func upgradeFacts(c *v1.PostgresCluster, now time.Time) facts.Upgrade {
	spec := c.Spec.Upgrade
	u := facts.Upgrade{
		Status:   c.Status.Upgrade.DeepCopy(),
		Method:   cmp.Or(spec.Method, v1.UpgradeAutomatic),
		Manual:   spec.Switchover == v1.SwitchoverManual,
		Approved: c.Annotations[naming.AnnotationUpgradeSwitchover] == "now",
		Retry:    c.Annotations[naming.AnnotationUpgradeRetry],
		Check:    c.Annotations[naming.AnnotationUpgradePreflight],
		Closed:   closed(spec.SwitchoverWindow, now),
		Window:   time.Hour, MaxPause: 5 * time.Second,
	}
	if string(spec.RollbackWindow) == "0" {
		u.Window = 0
	} else if window, err := time.ParseDuration(string(spec.RollbackWindow)); err == nil && window >= 0 {
		u.Window = window
	}
	if pause, err := time.ParseDuration(string(spec.MaxWritePause)); err == nil && pause > 0 {
		u.MaxPause = pause
	}
	if s := c.Spec.Availability.Synchronous; s.Mode == v1.SynchronousRequired {
		u.SyncRequired = max(1, int(s.Number))
	}
	return u
}
