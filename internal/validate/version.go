package validate

import "k8s.io/apimachinery/pkg/util/validation/field"

// version: there is one. The schema of v1 requires it, so it is missing only where an object came as v1alpha1 and nothing converted
// it: OLM takes the conversion off the CRD while it replaces the operator, for as long as an upgrade is held up.
func version(q question) Verdict {
	if q.after.Spec.Version != "" {
		return Verdict{}
	}
	return refuse(field.Required(field.NewPath("spec", "version"),
		"nothing converts between v1alpha1 and v1 at the moment, since the operator is being replaced; use v1, or try again when that is done"))
}
