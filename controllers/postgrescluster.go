package controllers

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/apply"
	"github.com/pgsteward/pgsteward/internal/build"
	"github.com/pgsteward/pgsteward/internal/credential"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/observe"
	"github.com/pgsteward/pgsteward/internal/plan"
	"github.com/pgsteward/pgsteward/internal/status"
	"github.com/pgsteward/pgsteward/internal/validate"
)

const (
	// refusedRecheck is when something that a person must mend is tried again, in case it was mended elsewhere than in the spec.
	refusedRecheck = 30 * time.Second
	// outdatedRecheck is when the cache will have seen what was written last.
	outdatedRecheck = 50 * time.Millisecond
)

// PostgresCluster reconciles PostgresClusters.
type PostgresCluster struct {
	Reader   *observe.Reader
	Writer   *apply.Writer
	Recorder events.EventRecorder
	Settings build.Settings
}

// What the operator may do. Roles for instances can only give what the operator may do itself, hence leases and events. It has
// a right to Secrets only where it has bound itself to the ClusterRole pgsteward-secrets: in namespaces that have a cluster.
//
// +kubebuilder:rbac:groups=pgsteward.io,resources=postgresclusters,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=pgsteward.io,resources=postgresclusters/status,verbs=get;patch
// +kubebuilder:rbac:groups=pgsteward.io,resources=postgresclusters/finalizers,verbs=update
// +kubebuilder:rbac:groups=apps,resources=statefulsets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims;services;configmaps;serviceaccounts,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles;rolebindings,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=pgsteward-secrets,verbs=bind
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list
// +kubebuilder:rbac:groups="",resources=persistentvolumes,verbs=get
// +kubebuilder:rbac:groups="",resources=events,verbs=get;list
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile is one pass over one PostgresCluster.
func (r *PostgresCluster) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	c, err := r.Reader.Cluster(ctx, request.NamespacedName)
	if apierrors.IsNotFound(err) {
		r.Reader.Forget(request.NamespacedName)
		r.Writer.Forget(request.NamespacedName)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading PostgresCluster %s: %w", request.NamespacedName, err)
	}
	if r.Writer.Outdated(c) {
		return ctrl.Result{RequeueAfter: outdatedRecheck}, nil
	}
	if c.DeletionTimestamp.IsZero() {
		if err := r.Writer.Finalizer(ctx, c, true); err != nil {
			return ctrl.Result{}, err
		}
	}
	observed, err := r.Reader.Observe(ctx, c, r.wanted(c))
	if err != nil {
		return ctrl.Result{}, err
	}
	known := validate.Facts{Classes: facts.Know(observed.Facts.StorageClasses), Volumes: observed.Facts.Volumes}
	observed.Facts.Problems = append(observed.Facts.Problems, validate.Problems(c, known)...)
	observed.Facts.Notes = r.Settings.Notes(c)
	decision := plan.Decide(observed.Facts)
	renewAt, writeErr := r.write(ctx, c, observed, &decision)
	refused, transient := apply.Refusals(writeErr)
	if !decision.Quiet || len(refused) > 0 {
		if err := r.tell(ctx, c, observed.Facts, decision, refused); err != nil {
			return ctrl.Result{}, errors.Join(transient, err)
		}
	}
	if decision.Granted && c.Annotations[naming.AnnotationSwitchover] != "" {
		transient = errors.Join(transient, r.Writer.DropAnnotation(ctx, c, naming.AnnotationSwitchover))
	}
	if c.Annotations[naming.AnnotationUpgradeSwitchover] != "" && approvalSpent(observed.Facts, decision) {
		transient = errors.Join(transient, r.Writer.DropAnnotation(ctx, c, naming.AnnotationUpgradeSwitchover))
	}
	if decision.Forced {
		transient = errors.Join(transient, r.Writer.DropAnnotation(ctx, c, naming.AnnotationForceFailover))
	}
	if transient != nil {
		return ctrl.Result{}, transient
	}
	if _, ok := decision.Action.(plan.Release); ok {
		return ctrl.Result{}, r.Writer.Finalizer(ctx, c, false)
	}
	next := recheck(observed.Facts.Now, decision, renewAt, len(refused) > 0)
	for _, patience := range []time.Duration{status.ArchivingPatience(observed.Facts), status.SchedulePatience(observed.Facts)} {
		if patience > 0 && (next == 0 || patience < next) {
			next = patience
		}
	}
	return ctrl.Result{RequeueAfter: next}, nil
}

// wanted is what the spec means after defaults.
func (r *PostgresCluster) wanted(c *v1.PostgresCluster) observe.Wanted {
	size := build.StorageSize(c)
	schedule, zone, _ := build.Schedule(c)
	verify, verifyZone, _ := build.VerifySchedule(c)
	wanted := observe.Wanted{
		Image: r.Settings.Image(c), Versions: r.Settings.Versions(c), Storage: size.Value(), MaximumLag: build.MaximumLag(c), NodeLostAfter: build.NodeLostAfter(c),
		SpecHash: build.SpecHash(c), Outdated: func(pod *corev1.Pod) bool { return build.Outdated(c, pod) },
		Schedule: schedule, TimeZone: cmp.Or(zone, verifyZone), Verify: verify,
	}
	if c.Spec.Backup != nil {
		wanted.Retention = build.Period(c.Spec.Backup.Retention, build.DefaultRetention)
		wanted.Repository, wanted.InRepository = build.RepositoryName(c), func(location string) bool { return build.InRepository(c, location) }
	}
	return wanted
}

// write applies the objects of the decision's members and carries out its action, whose answer, if an agent was asked, becomes part
// of the decision. It returns when certificates want renewal.
func (r *PostgresCluster) write(ctx context.Context, c *v1.PostgresCluster, o observe.Observation, d *plan.Decision) (time.Time, error) {
	if o.Facts.Deleting {
		return time.Time{}, r.act(ctx, o, d.Action)
	}
	if d.Frozen {
		return time.Time{}, nil
	}
	if d.AccessOnly {
		return time.Time{}, r.Writer.Objects(ctx, c, o.Objects, build.Access(build.Input{Cluster: c, Settings: r.Settings}))
	}
	secrets, renewAt, err := credential.Complete(o.Credentials, credential.Cluster{Name: c.Name, Namespace: c.Namespace, Repository: build.HasRepositoryHost(c)}, o.Facts.Now, rand.Reader)
	if err != nil {
		return time.Time{}, fmt.Errorf("credentials of %s/%s: %w", c.Namespace, c.Name, err)
	}
	input := build.Input{
		Cluster: c, Members: d.Members, Bootstrap: d.Bootstrap, Stopped: d.Stopped, SystemIdentifier: o.Facts.SystemIdentifier,
		OnlyRemembered: o.Facts.OnlyRemembered,
		Holder:         o.Facts.Holder,
		Volumes:        o.Facts.Volumes,
		Credentials:    secrets, Settings: r.Settings, RepositoryVolume: o.Facts.RepositoryVolume,
		Live: o.Facts.Live, Images: o.Facts.Images, Upgrade: d.Upgrade, InPlace: d.InPlace, Floor: d.Floor, Reports: reports(o.Facts),
		Draining: d.Stopped && slices.ContainsFunc(o.Facts.Instances, func(i facts.Instance) bool { return i.Pod != nil }),
	}
	if o.Facts.Backup != nil {
		input.RepositoryImage = o.Facts.Backup.Image
	}
	if version := build.MissingImage(input); version != "" {
		return time.Time{}, &apply.Refused{
			Reason:  v1.ReasonImageUnknown,
			Message: fmt.Sprintf("spec.image: the operator has no default image of PostgreSQL %s; name one", version),
		}
	}
	errs := []error{r.Writer.Objects(ctx, c, o.Objects, build.Objects(input))}
	input.Unwritten = errs[0] != nil
	for _, unwanted := range append(build.Unwanted(input), build.UnwantedBackups(input)...) {
		errs = append(errs, r.Writer.Delete(ctx, o.Objects.Get(unwanted.Kind, unwanted.Name)))
	}
	for _, pod := range build.Pods(input, o.Facts) {
		errs = append(errs, r.Writer.Pod(ctx, pod))
	}
	if o.Facts.Backup != nil {
		for _, expired := range o.Facts.Backup.Expired {
			errs = append(errs, r.Writer.ForgetBackup(ctx, o.Facts.Namespace, expired.Name, expired.UID))
		}
	}
	if name := firstBackup(o.Facts, *d); name != "" {
		errs = append(errs, r.Writer.CreateBackup(ctx, c.Namespace, c.Name, name, v1.BackupFull))
	}
	if d.Backup != "" {
		errs = append(errs, r.Writer.CreateBackup(ctx, c.Namespace, c.Name, d.Backup, "")) // as the method says
	}
	return renewAt, errors.Join(append(errs, r.carryOut(ctx, o, d))...)
}

// reports are what the agents say, by instance.
func reports(f facts.Cluster) map[string]agentapi.Status {
	said := map[string]agentapi.Status{}
	for _, i := range f.Instances {
		if report, known := i.Report.Get(); known {
			said[i.Name] = report
		}
	}
	return said
}

// firstBackup is the name of the backup to ask for because there is a schedule and none yet, or none that leads to where the cluster is:
// until there is one nothing can be recovered, and the next one that is due may be far away. The new version of a major upgrade is where the cluster
// is as soon as it has the writes. Empty: none is to be asked for.
func firstBackup(f facts.Cluster, d plan.Decision) string {
	observes := f.Upgrade.Status != nil && f.Upgrade.Status.Phase == v1.UpgradeObserve
	if f.Backup == nil || f.Backup.Interval == 0 || len(f.Backup.Asked) > 0 || d.Rule != "done" && !observes {
		return ""
	}
	if report, known := f.Backup.Repository.Get(); !known || !report.Ready {
		return ""
	}
	return f.Backup.First
}

// carryOut carries out the decision's action and puts an agent's answer into the decision.
func (r *PostgresCluster) carryOut(ctx context.Context, o observe.Observation, d *plan.Decision) error {
	err := r.act(ctx, o, d.Action)
	var declined *apply.Declined
	switch {
	case err == nil:
	case errors.As(err, &declined):
		*d = d.Declined(declined.Reason, declined.Why, o.Facts.Now)
		return nil
	default:
		*d = d.Unanswered()
	}
	return err
}

// act carries out the decision's action.
func (r *PostgresCluster) act(ctx context.Context, o observe.Observation, action plan.Action) error {
	switch a := action.(type) {
	case plan.None:
		return nil
	case plan.Release: // what is left if it is forced
		return r.forgetBackups(ctx, o)
	case plan.RemoveInstance:
		// the volume first: it stays until the Pod is gone, and if we end here the instance is still there to be removed
		if a.DeleteVolume {
			if err := r.Writer.Delete(ctx, o.Objects.Get("PersistentVolumeClaim", naming.DataVolume(a.Instance))); err != nil {
				return err
			}
		}
		return r.Writer.Delete(ctx, o.Objects.Get("StatefulSet", a.Instance))
	case plan.RestartInstance:
		return r.Writer.DeletePod(ctx, o.Facts.Namespace, naming.Pod(a.Instance), a.PodUID)
	case plan.ForgetPod:
		return r.Writer.ForgetPod(ctx, o.Facts.Namespace, naming.Pod(a.Instance), a.PodUID)
	case plan.ReplaceInstance: // the volume first, and unless it changed meanwhile
		if err := r.Writer.DeleteUnchanged(ctx, o.Objects.Get("PersistentVolumeClaim", naming.DataVolume(a.Instance))); err != nil {
			return err
		}
		return r.Writer.ForgetPod(ctx, o.Facts.Namespace, naming.Pod(a.Instance), a.PodUID)
	case plan.Switchover, plan.RestartServer, plan.SwitchVersion:
		return r.ask(ctx, o, action)
	case plan.ReplaceVolume: // unless it was bound meanwhile
		return r.Writer.DeleteUnchanged(ctx, o.Objects.Get("PersistentVolumeClaim", naming.DataVolume(a.Instance)))
	case plan.MakeFinalBackup:
		return r.Writer.CreateBackup(ctx, o.Facts.Namespace, o.Facts.Name, a.Name, v1.BackupFull)
	case plan.RemoveInstances:
		return r.deleteAll(ctx, o, func(kind, name string) bool { // the repository host takes their last WAL
			return kind == "StatefulSet" && name != naming.Repository(o.Facts.Name)
		})
	case plan.RemoveRest:
		return errors.Join(r.forgetBackups(ctx, o), r.deleteAll(ctx, o, func(kind, name string) bool {
			if name == naming.RepositoryVolume(o.Facts.Name) {
				return a.DeleteBackups || kind != "PersistentVolumeClaim"
			}
			return kind != "PersistentVolumeClaim" || a.DeleteVolumes
		}))
	default:
		return fmt.Errorf("controllers: no action %T", action)
	}
}

// ask asks an agent for what the operator cannot do itself.
func (r *PostgresCluster) ask(ctx context.Context, o observe.Observation, action plan.Action) error {
	agent := func(instance, podUID string) (*agentapi.Client, string, error) {
		client, host, ok := r.Reader.Agents.Ask(types.NamespacedName{Namespace: o.Facts.Namespace, Name: o.Facts.Name}, instance, podUID)
		if !ok {
			return nil, "", fmt.Errorf("the agent of %s/%s is not followed any more", o.Facts.Namespace, instance)
		}
		return client, host, nil
	}
	switch a := action.(type) {
	case plan.Switchover:
		client, host, err := agent(a.From, a.PodUID)
		if err != nil {
			return err
		}
		return r.Writer.Switchover(ctx, client, host, a.From, a.To)
	case plan.SwitchVersion:
		client, host, err := agent(a.From, a.PodUID)
		if err != nil {
			return err
		}
		return r.Writer.SwitchVersion(ctx, client, host, a.From, a.Request)
	case plan.RestartServer:
		client, host, err := agent(a.Instance, a.PodUID)
		if err != nil {
			return err
		}
		return r.Writer.RestartServer(ctx, client, host, a.Instance, agentapi.RestartRequest{Why: a.Why, ServerStarted: a.Started})
	default:
		return nil
	}
}

// deleteAll deletes the cluster's objects of the kinds that match; RoleBindings last, since one lets us at the Secrets.
func (r *PostgresCluster) deleteAll(ctx context.Context, o observe.Observation, match func(kind, name string) bool) error {
	kinds := slices.SortedFunc(maps.Keys(o.Objects), func(a, b string) int {
		return cmp.Or(compareBool(a == "RoleBinding", b == "RoleBinding"), cmp.Compare(a, b))
	})
	var errs []error
	for _, kind := range kinds {
		for _, object := range o.Objects[kind] {
			if !match(kind, object.GetName()) {
				continue
			}
			errs = append(errs, r.Writer.Delete(ctx, object))
		}
	}
	return errors.Join(errs...)
}

// forgetBackups deletes the PostgresBackups that go with the cluster.
func (r *PostgresCluster) forgetBackups(ctx context.Context, o observe.Observation) error {
	var errs []error
	for _, record := range o.Facts.BackupRecords {
		errs = append(errs, r.Writer.ForgetBackup(ctx, o.Facts.Namespace, record.Name, record.UID))
	}
	return errors.Join(errs...)
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// tell writes the status and says what is new in events.
func (r *PostgresCluster) tell(ctx context.Context, c *v1.PostgresCluster, f facts.Cluster, d plan.Decision, refused []*apply.Refused) error {
	input := status.Input{Facts: f, Decision: d, Previous: *c.Status.DeepCopy()}
	for _, refusal := range refused {
		input.Problems = append(input.Problems, facts.Problem{Reason: refusal.Reason, Message: refusal.Message})
	}
	s := status.Compute(input)
	if err := r.Writer.Status(ctx, c, s); err != nil {
		return err
	}
	for _, event := range status.Events(input, s) {
		kind := corev1.EventTypeNormal
		if event.Warning {
			kind = corev1.EventTypeWarning
		}
		r.Recorder.Eventf(c, nil, kind, event.Reason, event.Action, "%s", event.Message)
	}
	return nil
}

// recheck is when the next pass is due even if nothing is heard; zero: only when something changes.
func recheck(now time.Time, d plan.Decision, renewAt time.Time, refused bool) time.Duration {
	next := d.Recheck
	shorten := func(to time.Duration) {
		if next == 0 || to < next {
			next = to
		}
	}
	if refused {
		shorten(refusedRecheck)
	}
	if !renewAt.IsZero() {
		shorten(max(renewAt.Sub(now), time.Minute))
	}
	return next
}

// approvalSpent says whether the approval of a switchover to another major was for one that has been, or for an upgrade that was called off: it is not
// one of the next.
func approvalSpent(f facts.Cluster, d plan.Decision) bool {
	u := d.UpgradeStatus
	if u == nil {
		u = f.Upgrade.Status
	}
	return u != nil && (u.SwitchedOverAt != nil || u.Phase.Final() && f.Version == f.Live)
}
