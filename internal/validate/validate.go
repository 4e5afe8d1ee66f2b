package validate

import (
	"maps"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// Facts are what is known beside the object.
type Facts struct {
	// Classes are all StorageClasses.
	Classes facts.Known[[]facts.StorageClass]
	// Volumes are the data volumes that there are for a cluster of this name.
	Volumes []facts.Volume
	// Taken are the objects that have a name which the cluster needs and are not its own.
	Taken []facts.Object
}

// Verdict is what there is to say about an object.
type Verdict struct {
	// Errors are why it is refused.
	Errors field.ErrorList
	// Warnings are what its author should know.
	Warnings []string
}

// question is an object, the one before it (nil if it is new) and what is known.
type question struct {
	before, after *v1.PostgresCluster
	facts         Facts
}

// rule is one of the package's documentation.
type rule struct {
	name  string
	check func(q question) Verdict
}

var rules = []rule{
	{"version", version},
	{"storage-class", storageClass},
	{"storage-growth", storageGrowth},
	{"image", image},
	{"volumes", volumes},
	{"names", names},
	{"parameters", parameters},
	{"memory", memory},
	{"availability", availability},
	{"backup", backups},
	{"switchover-window", switchoverWindow},
	{"annotations", annotations},
}

// Create judges a new object.
func Create(c *v1.PostgresCluster, f Facts) Verdict {
	return judge(question{after: c, facts: f})
}

// Update judges a changed object, by what changed. One that is being deleted may become anything, lest it stay for ever.
func Update(before, after *v1.PostgresCluster, f Facts) Verdict {
	if !after.DeletionTimestamp.IsZero() || apiequality.Semantic.DeepEqual(before.Spec, after.Spec) && maps.Equal(before.Annotations, after.Annotations) {
		return Verdict{}
	}
	return judge(question{before: before, after: after, facts: f})
}

// Delete judges a deletion. One in the foreground has Kubernetes delete what belongs to the object at once, the instances too, while we are still
// to make the last backup of them (https://kubernetes.io/docs/concepts/architecture/garbage-collection/#foreground-deletion).
func Delete(c *v1.PostgresCluster, foreground bool) Verdict {
	if !foreground || c.Spec.Backup == nil || !c.Spec.Deletion.FinalBackup || c.Annotations[naming.AnnotationSkipFinalBackup] == "true" {
		return Verdict{}
	}
	return refuse(field.Forbidden(field.NewPath("spec", "deletion", "finalBackup"),
		"a deletion in the foreground (--cascade=foreground) removes the instances before the last backup can be made of them: delete without that, "+
			"which waits for the instances too; or set the annotation "+naming.AnnotationSkipFinalBackup+"=true to go without a last backup"))
}

// judge asks all rules. AnnotationValidation turns their errors into warnings.
func judge(q question) Verdict {
	var all Verdict
	for _, r := range rules {
		v := r.check(q)
		all.Errors = append(all.Errors, v.Errors...)
		all.Warnings = append(all.Warnings, v.Warnings...)
	}
	if q.after.Annotations[naming.AnnotationValidation] == naming.ValidationWarn {
		for _, e := range all.Errors {
			all.Warnings = append(all.Warnings, e.Error())
		}
		all.Errors = nil
	}
	return all
}

// refuse is a verdict of one error.
func refuse(err *field.Error) Verdict { return Verdict{Errors: field.ErrorList{err}} }

// class is the class that new volumes of the cluster get; false if there is none of that name, or no default.
func class(c *v1.PostgresCluster, classes []facts.StorageClass) (facts.StorageClass, bool) {
	i := slices.IndexFunc(classes, func(k facts.StorageClass) bool {
		if name := c.Spec.Storage.StorageClassName; name != nil {
			return k.Name == *name
		}
		return k.Default
	})
	if i < 0 {
		return facts.StorageClass{}, false
	}
	return classes[i], true
}
