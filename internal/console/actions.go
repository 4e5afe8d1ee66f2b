package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/console/view"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// fieldManager owns what a user's actions write.
const fieldManager = "pgsteward-console"

// done is what is said when an action was accepted. That is not yet its success, which the cluster's status tells.
var done = map[view.ActionName]string{
	view.ActionSwitchover: "The switchover was asked for. Its outcome is told below.",
	view.ActionBackup:     "The backup was asked for.",
	view.ActionPreflight:  "The check was asked for. What it finds is told on the page of the upgrade.",
	view.ActionUpgrade:    "The upgrade was asked for.",
	view.ActionContinue:   "The upgrade may switch over.",
	view.ActionRetry:      "The upgrade was asked to begin again.",
	view.ActionRollBack:   "The version was set back.",
}

// rightFor is what a user must be allowed for an action.
func rightFor(name view.ActionName, c *v1.PostgresCluster) right {
	if name == view.ActionBackup {
		return right{verb: "create", resource: backups, namespace: c.Namespace}
	}
	return right{verb: "patch", resource: clusters, namespace: c.Namespace, name: c.Name}
}

// offered are the actions that make sense now and that the user may do. If that cannot be found out there are none.
func (c *Console) offered(ctx context.Context, u *user, found *v1.PostgresCluster) []view.Action {
	if !c.options.Actions {
		return nil
	}
	var list []view.Action
	for _, a := range view.Actions(found, c.now()) {
		if allowed, err := c.access.may(ctx, u, rightFor(a.Name, found)); err == nil && allowed {
			list = append(list, a)
		}
	}
	return list
}

type actionData struct {
	clusterBase
	Action  view.Action
	Problem string
}

// action finds the one in the request's path. It answers itself and returns nil if it is not offered.
func (c *Console) action(w http.ResponseWriter, r *http.Request, u *user) (*v1.PostgresCluster, *view.Action) {
	found := c.cluster(w, r, u)
	if found == nil {
		return nil, nil
	}
	name := view.ActionName(r.PathValue("action"))
	for _, a := range view.Actions(found, c.now()) {
		if a.Name != name {
			continue
		}
		allowed, err := c.access.may(r.Context(), u, rightFor(a.Name, found))
		if err != nil {
			c.unavailable(w, r, err)
			return nil, nil
		}
		if !allowed {
			c.pages.problem(w, http.StatusForbidden, "Not allowed", "You may see this cluster, and may not do this to it.")
			return nil, nil
		}
		return found, &a
	}
	c.pages.problem(w, http.StatusConflict, "Not possible now", "The cluster is not in a state in which this can be done. Its page says what it does.")
	return nil, nil
}

func (c *Console) actionPage(w http.ResponseWriter, r *http.Request, u *user) {
	if found, a := c.action(w, r, u); a != nil {
		c.pages.show(w, http.StatusOK, "action", c.confirmation(r, u, found, *a))
	}
}

// confirmation is the page that says what an action costs.
func (c *Console) confirmation(r *http.Request, u *user, found *v1.PostgresCluster, a view.Action) actionData {
	data := actionData{clusterBase: c.base(r, u, found, ""), Action: a}
	data.Live = "" // what one is about to confirm does not change under one's hands
	return data
}

// act does what was confirmed, with the user's own rights.
func (c *Console) act(w http.ResponseWriter, r *http.Request, u *user) {
	if !c.sealer.isFormValue(r.PostFormValue("form"), u.form) {
		c.refused(w, r)
		return
	}
	found, a := c.action(w, r, u)
	if a == nil {
		return
	}
	choice, again := r.PostFormValue("choice"), c.confirmation(r, u, found, *a)
	if !a.Has(choice) {
		again.Problem = "That is not one of the choices. Choose again."
		c.pages.show(w, http.StatusBadRequest, "action", again)
		return
	}
	log := c.log.WithValues("user", u.name, "action", a.Name, "choice", choice, "namespace", found.Namespace, "cluster", found.Name)
	if err := c.perform(r.Context(), u, found, a.Name, choice); err != nil {
		log.Info("Could not act for a user", "reason", err.Error())
		code := http.StatusBadGateway
		switch {
		case apierrors.IsForbidden(err):
			code = http.StatusForbidden
		case apierrors.IsInvalid(err), apierrors.IsConflict(err):
			code = http.StatusConflict
		}
		again.Problem = "Kubernetes refused it: " + err.Error()
		c.pages.show(w, code, "action", again)
		return
	}
	log.Info("Acted for a user")
	to := "/clusters/" + found.Namespace + "/" + found.Name
	switch a.Name {
	case view.ActionBackup:
		to += "/backups"
	case view.ActionPreflight, view.ActionUpgrade, view.ActionContinue, view.ActionRetry, view.ActionRollBack:
		to += "/upgrade"
	case view.ActionSwitchover:
	}
	http.Redirect(w, r, to+"?done="+string(a.Name), http.StatusSeeOther)
}

// perform writes what the action consists of: one request, which the API server takes or refuses.
func (c *Console) perform(ctx context.Context, u *user, found *v1.PostgresCluster, name view.ActionName, choice string) error {
	switch name {
	case view.ActionSwitchover:
		return annotate(ctx, u, found, naming.AnnotationSwitchover, choice)
	case view.ActionPreflight:
		return annotate(ctx, u, found, naming.AnnotationUpgradePreflight, choice)
	case view.ActionContinue:
		return annotate(ctx, u, found, naming.AnnotationUpgradeSwitchover, "now")
	case view.ActionRetry:
		return annotate(ctx, u, found, naming.AnnotationUpgradeRetry, c.now().UTC().Format(time.RFC3339))
	case view.ActionUpgrade:
		return setVersion(ctx, u, found, choice)
	case view.ActionRollBack:
		return setVersion(ctx, u, found, found.Status.Upgrade.From)
	case view.ActionBackup:
		return u.api.Create(ctx, &v1.PostgresBackup{
			ObjectMeta: metav1.ObjectMeta{Namespace: found.Namespace, GenerateName: found.Name + "-"},
			Spec:       v1.PostgresBackupSpec{Cluster: found.Name, Type: v1.BackupType(choice)},
		}, client.FieldOwner(fieldManager))
	}
	return fmt.Errorf("there is no action %q", name)
}

func annotate(ctx context.Context, u *user, found *v1.PostgresCluster, annotation, value string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":         found.UID, // not another of the same name
		"annotations": map[string]string{annotation: value},
	}})
	if err != nil {
		return fmt.Errorf("writing the annotation: %w", err)
	}
	return u.api.Patch(ctx, target(found), client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldManager))
}

// setVersion changes the version that the user saw, and no other.
func setVersion(ctx context.Context, u *user, found *v1.PostgresCluster, to string) error {
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": found.UID},
		{"op": "test", "path": "/spec/version", "value": found.Spec.Version},
		{"op": "replace", "path": "/spec/version", "value": to},
	})
	if err != nil {
		return fmt.Errorf("writing the version: %w", err)
	}
	return u.api.Patch(ctx, target(found), client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(fieldManager))
}

func target(found *v1.PostgresCluster) *v1.PostgresCluster {
	return &v1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: found.Namespace, Name: found.Name}}
}
