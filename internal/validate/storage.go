package validate

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
)

var (
	sizePath  = field.NewPath("spec", "storage", "size")
	classPath = field.NewPath("spec", "storage", "storageClassName")
)

// storageClass: the class exists.
func storageClass(q question) Verdict {
	name := ptr.Deref(q.after.Spec.Storage.StorageClassName, "")
	if q.before != nil && ptr.Deref(q.before.Spec.Storage.StorageClassName, "") == name {
		return Verdict{}
	}
	message := missingClass(q.after, q.facts)
	if message == "" {
		return Verdict{}
	}
	return refuse(field.Invalid(classPath, name, message))
}

// missingClass says what is wrong with the cluster's storage class; nothing if it exists, or is not known.
func missingClass(c *v1.PostgresCluster, f Facts) string {
	classes, known := f.Classes.Get()
	if _, exists := class(c, classes); exists || !known {
		return ""
	}
	if name := c.Spec.Storage.StorageClassName; name != nil {
		return fmt.Sprintf("there is no StorageClass %q; name one that exists (%s) or create it", *name, classNames(classes))
	}
	return fmt.Sprintf("none is named and there is no default StorageClass; name one (%s)", classNames(classes))
}

func classNames(classes []facts.StorageClass) string {
	if len(classes) == 0 {
		return "there is none at all"
	}
	all := make([]string, 0, len(classes))
	for _, c := range classes {
		all = append(all, c.Name)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// storageGrowth: volumes that are to grow are of classes that let them.
func storageGrowth(q question) Verdict {
	size := q.after.Spec.Storage.Size
	if size == nil || q.before == nil || q.before.Spec.Storage.Size != nil && q.before.Spec.Storage.Size.Cmp(*size) >= 0 {
		return Verdict{}
	}
	message := rigidVolumes(*size, q.facts)
	if message == "" {
		return Verdict{}
	}
	return refuse(field.Invalid(sizePath, size.String(), message))
}

// rigidVolumes says which volumes cannot grow to the size; nothing if all can, or it is not known.
func rigidVolumes(size resource.Quantity, f Facts) string {
	classes, known := f.Classes.Get()
	if !known {
		return ""
	}
	rigid := map[string]bool{}
	for _, k := range classes {
		rigid[k.Name] = !k.Expands
	}
	var claims, of []string
	var largest int64
	for _, v := range f.Volumes {
		if v.Bound && !v.Deleting && v.Bytes < size.Value() && rigid[v.Class] {
			claims, of, largest = append(claims, naming.DataVolume(v.Instance)), append(of, v.Class), max(largest, v.Bytes)
		}
	}
	if len(claims) == 0 {
		return ""
	}
	slices.Sort(of)
	return fmt.Sprintf("PersistentVolumeClaim %s cannot grow, since StorageClass %s does not expand volumes; keep %s, or set allowVolumeExpansion in the class if its driver can",
		strings.Join(claims, ", "), strings.Join(slices.Compact(of), ", "), resource.NewQuantity(largest, resource.BinarySI))
}

// volumes: what an earlier cluster of the name left behind is of the major that is wanted.
func volumes(q question) Verdict {
	if q.before != nil {
		return Verdict{}
	}
	var verdict Verdict
	for _, v := range q.facts.Volumes {
		if v.Deleting || v.Version == "" || v.Version == q.after.Spec.Version {
			continue
		}
		verdict.Errors = append(verdict.Errors, field.Invalid(field.NewPath("spec", "version"), q.after.Spec.Version, fmt.Sprintf(
			"PersistentVolumeClaim %s was kept from an earlier cluster of this name and has data of PostgreSQL %s; create the cluster with version %q, or delete the claim, or give the cluster another name",
			naming.DataVolume(v.Instance), v.Version, v.Version)))
	}
	return verdict
}

// waiting says whether a volume has yet to be made.
func waiting(all []facts.Volume) bool {
	return slices.ContainsFunc(all, func(v facts.Volume) bool { return !v.Bound && !v.Deleting })
}
