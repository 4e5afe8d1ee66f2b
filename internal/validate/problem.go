package validate

import (
	"slices"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// Problems are what the rules object to in a cluster that exists. Left out are those that others tell better, with what came of
// it: names that are taken (the writer, before each write), volumes with other data (the planner), parameters (PostgreSQL itself).
func Problems(c *v1.PostgresCluster, f Facts) []facts.Problem {
	var all []facts.Problem
	add := func(reason, path, message string) {
		if message != "" {
			all = append(all, facts.Problem{Reason: reason, Message: path + ": " + message})
		}
	}
	if waiting(f.Volumes) { // what is bound stays, whatever becomes of its class
		add(v1.ReasonStorageClassNotFound, classPath.String(), missingClass(c, f))
	}
	if size := c.Spec.Storage.Size; size != nil {
		add(v1.ReasonVolumeNotExpandable, sizePath.String(), rigidVolumes(*size, f))
	}
	add(v1.ReasonInvalidSpec, imagePath.String(), badImage(c.Spec.Image))
	add(v1.ReasonInvalidSpec, limitPath.String(), tooLittleMemory(c))
	add(v1.ReasonInvalidSpec, numberPath.String(), tooManySynchronous(c))
	add(v1.ReasonInvalidSpec, deadlinePath.String(), badTimings(c))
	for _, e := range slices.Concat(backupErrors(c), windowErrors(c)) {
		add(v1.ReasonInvalidSpec, e.Field, e.ErrorBody())
	}
	if len(c.Status.Instances) > 0 { // a new cluster's are not known yet
		if names := c.Annotations[naming.AnnotationFenced]; names != "" {
			add(v1.ReasonInvalidAnnotation, annotationsPath.Key(naming.AnnotationFenced).String(), unknownInstances(c, names))
		}
		if name := c.Annotations[naming.AnnotationForceFailover]; name != "" {
			add(v1.ReasonInvalidAnnotation, annotationsPath.Key(naming.AnnotationForceFailover).String(), unknownInstance(c, name))
		}
	}
	return all
}
