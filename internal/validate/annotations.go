package validate

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/naming"
)

var annotationsPath = field.NewPath("metadata", "annotations")

// annotations: a wish names an instance that there is. Whether that can do what is wished is known when it is asked.
func annotations(q question) Verdict {
	var verdict Verdict
	check := func(key string, judge func(*v1.PostgresCluster, string) string) {
		value := q.after.Annotations[key]
		if value == "" || q.before != nil && q.before.Annotations[key] == value {
			return
		}
		if message := judge(q.after, value); message != "" {
			verdict.Errors = append(verdict.Errors, field.Invalid(annotationsPath.Key(key), value, message))
		}
	}
	check(naming.AnnotationSwitchover, BadSwitchover)
	check(naming.AnnotationFenced, unknownInstances)
	check(naming.AnnotationForceFailover, unknownInstance)
	check(naming.AnnotationRecoverInPlace, badRecovery)
	if len(verdict.Errors) == 0 && fencesAll(q.after) && (q.before == nil || !fencesAll(q.before)) {
		verdict.Warnings = append(verdict.Warnings, fmt.Sprintf(
			"%s: every instance is fenced, so PostgreSQL is stopped everywhere and nothing serves until the annotation is removed", annotationsPath.Key(naming.AnnotationFenced)))
	}
	return verdict
}

// BadSwitchover says why an instance cannot be the target of a switchover, whatever its state; nothing if it may.
func BadSwitchover(c *v1.PostgresCluster, target string) string {
	switch {
	case len(c.Status.Instances) < 2:
		return "there is no standby that could become primary"
	case target == naming.SwitchoverBest:
		return ""
	case target == c.Status.CurrentPrimary:
		return "is the primary already; name one of " + strings.Join(instancesBut(c, target), ", ") + ", or " + naming.SwitchoverBest
	case !hasInstance(c, target):
		return "there is no such instance; name one of " + strings.Join(instancesBut(c, c.Status.CurrentPrimary), ", ") + ", or " + naming.SwitchoverBest
	default:
		return ""
	}
}

// badRecovery says why a wish for a recovery in place cannot be understood, or can never be; nothing if it may. What depends on the moment is known
// when it begins.
func badRecovery(c *v1.PostgresCluster, text string) string {
	if _, err := backup.ParseInPlace(text); err != nil {
		return err.Error()
	}
	if c.Spec.Backup == nil {
		return "there is no spec.backup, so that there is nothing to recover from"
	}
	return ""
}

// unknownInstances says which of the names are of no instance; nothing if all are.
func unknownInstances(c *v1.PostgresCluster, names string) string {
	var unknown []string
	for _, name := range strings.Split(names, ",") {
		if name = strings.TrimSpace(name); name != naming.FencedAll && !hasInstance(c, name) {
			unknown = append(unknown, fmt.Sprintf("%q", name))
		}
	}
	if len(unknown) == 0 {
		return ""
	}
	return fmt.Sprintf("%s: there is no such instance; name some of %s, separated by commas, or %s for all", strings.Join(unknown, ", "), strings.Join(instancesBut(c, ""), ", "), naming.FencedAll)
}

// unknownInstance says that the name is of no instance; nothing if it is.
func unknownInstance(c *v1.PostgresCluster, name string) string {
	if hasInstance(c, name) {
		return ""
	}
	return "there is no such instance; name one of " + strings.Join(instancesBut(c, ""), ", ")
}

// fencesAll says whether no instance is left that may serve.
func fencesAll(c *v1.PostgresCluster) bool {
	names := strings.Split(strings.ReplaceAll(c.Annotations[naming.AnnotationFenced], " ", ""), ",")
	return slices.Contains(names, naming.FencedAll) || len(c.Status.Instances) > 0 &&
		!slices.ContainsFunc(c.Status.Instances, func(i v1.InstanceStatus) bool { return !slices.Contains(names, i.Name) })
}

func hasInstance(c *v1.PostgresCluster, name string) bool {
	return slices.ContainsFunc(c.Status.Instances, func(i v1.InstanceStatus) bool { return i.Name == name })
}

// instancesBut are the names of the instances but that one.
func instancesBut(c *v1.PostgresCluster, but string) []string {
	var names []string
	for _, i := range c.Status.Instances {
		if i.Name != but {
			names = append(names, i.Name)
		}
	}
	return names
}
