package validate

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/pgsteward/pgsteward/internal/naming"
)

var imagePath = field.NewPath("spec", "image")

// reference is the name of an image: an optional registry, a path in lower case, an optional tag and an optional digest
// (https://github.com/distribution/reference).
var reference = regexp.MustCompile(`^(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?(?::[0-9]+)?/)?` +
	`[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*` +
	`(?::(\w[\w.-]{0,127}))?(?:@sha256:[a-f0-9]{64}|@sha512:[a-f0-9]{128})?$`)

// tagMajor is a major at the beginning of a tag, as in 16, 16.4-bookworm and 17-alpine. Years and commits do not look so.
var tagMajor = regexp.MustCompile(`^v?(9|1[0-9]|2[0-9])(?:[.-]|$)`)

// image: the name is one. That the image's PostgreSQL is of the right major is known when it runs; its tag may say it before.
func image(q question) Verdict {
	name := q.after.Spec.Image
	if name == "" || q.before != nil && q.before.Spec.Image == name && q.before.Spec.Version == q.after.Spec.Version {
		return Verdict{}
	}
	if q.before != nil && q.before.Spec.Version != q.after.Spec.Version && q.before.Spec.Image == name {
		return refuse(field.Invalid(imagePath, name, fmt.Sprintf(
			"is the image of PostgreSQL %s; change it together with spec.version, to an image of PostgreSQL %s, or remove it", q.before.Spec.Version, q.after.Spec.Version)))
	}
	if message := badImage(name); message != "" {
		return refuse(field.Invalid(imagePath, name, message))
	}
	tag := reference.FindStringSubmatch(name)[1]
	found := tagMajor.FindStringSubmatch(tag)
	if found == nil || found[1] == q.after.Spec.Version {
		return Verdict{}
	}
	return Verdict{Warnings: []string{fmt.Sprintf(
		"%s: the tag %q looks like PostgreSQL %s, while spec.version is %s; an instance whose image is of another major does not start", imagePath, tag, found[1], q.after.Spec.Version)}}
}

// badImage says what is wrong with an image's name; nothing if it can be one.
func badImage(name string) string {
	if name == "" || reference.MatchString(name) {
		return ""
	}
	if lower := strings.ToLower(name); reference.MatchString(lower) {
		return "an image's name is in lower case; use " + lower
	}
	return "is not the name of an image; use one such as registry.example.com/" + naming.ContainerPostgres + ":16"
}
