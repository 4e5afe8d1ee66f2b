package packaging

import (
	"fmt"
	"maps"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// checkUpgrade compares CRDs with those of the release before: every object that was valid must stay so, or OLM refuses the upgrade
// in a cluster that has such an object. Rules (x-kubernetes-validations) are left out: OLM does not evaluate them, and the API server
// applies them only to what a change touches.
func checkUpgrade(before, now []*apiextensionsv1.CustomResourceDefinition) []string {
	var problems say
	byName := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, crd := range now {
		byName[crd.Name] = crd
	}
	for _, old := range before {
		crd, found := byName[old.Name]
		if !found {
			problems.add("CRD %s of the last release is gone", old.Name)
			continue
		}
		if old.Spec.Scope != crd.Spec.Scope || old.Spec.Names.Kind != crd.Spec.Names.Kind {
			problems.add("CRD %s: scope or kind changed, from %s %s to %s %s", old.Name,
				old.Spec.Scope, old.Spec.Names.Kind, crd.Spec.Scope, crd.Spec.Names.Kind)
		}
		problems = append(problems, checkVersions(old, crd)...)
	}
	return problems
}

// checkVersions wants every version of the last release still there, served unless it was deprecated, and no looser or stricter.
func checkVersions(old, crd *apiextensionsv1.CustomResourceDefinition) []string {
	var problems say
	versions := map[string]apiextensionsv1.CustomResourceDefinitionVersion{}
	for _, v := range crd.Spec.Versions {
		versions[v.Name] = v
	}
	served := map[string]bool{}
	for _, was := range old.Spec.Versions {
		served[was.Name] = was.Served
		is, found := versions[was.Name]
		where := crd.Name + "/" + was.Name
		switch {
		case !found && was.Storage:
			problems.add("%s: the version that the last release stored is dropped", where)
		case !found:
			problems.add("%s: the version is dropped", where)
		case was.Served && !is.Served && !was.Deprecated:
			problems.add("%s: the version is not served any more, and was not deprecated in the last release", where)
		default:
			problems = append(problems, compareSchemas(where, schemaOf(was), schemaOf(is))...)
		}
	}
	for _, v := range crd.Spec.Versions {
		if v.Storage && !served[v.Name] {
			problems.add("%s/%s is stored, and the last release did not serve it: no way back", crd.Name, v.Name)
		}
	}
	return problems
}

func schemaOf(v apiextensionsv1.CustomResourceDefinitionVersion) *apiextensionsv1.JSONSchemaProps {
	if v.Schema == nil {
		return nil
	}
	return v.Schema.OpenAPIV3Schema
}

// compareSchemas says where the new schema refuses, or means otherwise, what the old one accepted.
func compareSchemas(path string, was, is *apiextensionsv1.JSONSchemaProps) []string {
	if was == nil {
		return nil
	}
	if is == nil {
		return []string{path + ": the field is dropped"}
	}
	var problems say
	for _, c := range []struct {
		what    string
		changed bool
	}{
		{"type", was.Type != is.Type},
		{"format", was.Format != is.Format && is.Format != ""},
		{"pattern", was.Pattern != is.Pattern && is.Pattern != ""},
		{"default", asJSON(was.Default) != asJSON(is.Default)},
		{"nullable", was.Nullable && !is.Nullable},
		{"x-kubernetes-int-or-string", was.XIntOrString != is.XIntOrString},
		{"x-kubernetes-list-type", asJSON(was.XListType) != asJSON(is.XListType)},
		{"x-kubernetes-list-map-keys", !slices.Equal(was.XListMapKeys, is.XListMapKeys)},
		{"x-kubernetes-preserve-unknown-fields", was.XPreserveUnknownFields != nil && is.XPreserveUnknownFields == nil},
	} {
		if c.changed {
			problems.add("%s: its %s changed", path, c.what)
		}
	}
	problems = append(problems, compareLimits(path, was, is)...)
	problems = append(problems, compareEnums(path, was.Enum, is.Enum)...)
	for _, name := range is.Required {
		if !slices.Contains(was.Required, name) {
			problems.add("%s.%s: became required", path, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(was.Properties)) {
		problems = append(problems, compareSchemas(path+"."+name, ptrTo(was.Properties, name), ptrTo(is.Properties, name))...)
	}
	if was.Items != nil && is.Items != nil {
		problems = append(problems, compareSchemas(path+"[]", was.Items.Schema, is.Items.Schema)...)
	}
	if was.AdditionalProperties != nil {
		if is.AdditionalProperties == nil {
			problems.add("%s: takes no more keys", path)
		} else {
			problems = append(problems, compareSchemas(path+"{}", was.AdditionalProperties.Schema, is.AdditionalProperties.Schema)...)
		}
	}
	return problems
}

func ptrTo(properties map[string]apiextensionsv1.JSONSchemaProps, name string) *apiextensionsv1.JSONSchemaProps {
	p, found := properties[name]
	if !found {
		return nil
	}
	return &p
}

// compareEnums wants every old value still taken.
func compareEnums(path string, was, is []apiextensionsv1.JSON) []string {
	var problems say
	if len(is) == 0 {
		return nil
	}
	if len(was) == 0 {
		problems.add("%s: takes only some values now", path)
	}
	for _, value := range was {
		if !slices.ContainsFunc(is, func(v apiextensionsv1.JSON) bool { return string(v.Raw) == string(value.Raw) }) {
			problems.add("%s: value %s is not taken any more", path, value.Raw)
		}
	}
	return problems
}

// compareLimits wants no limit lower, or newly there.
func compareLimits(path string, was, is *apiextensionsv1.JSONSchemaProps) []string {
	var problems say
	upper := func(what string, was, is *float64) {
		if is != nil && (was == nil || *is < *was) {
			problems.add("%s: its %s is tightened, from %s to %v", path, what, orNone(was), *is)
		}
	}
	lower := func(what string, was, is *float64) {
		if is != nil && (was == nil || *is > *was) {
			problems.add("%s: its %s is tightened, from %s to %v", path, what, orNone(was), *is)
		}
	}
	upper("maximum", was.Maximum, is.Maximum)
	lower("minimum", was.Minimum, is.Minimum)
	upper("maxLength", number(was.MaxLength), number(is.MaxLength))
	lower("minLength", number(was.MinLength), number(is.MinLength))
	upper("maxItems", number(was.MaxItems), number(is.MaxItems))
	lower("minItems", number(was.MinItems), number(is.MinItems))
	upper("maxProperties", number(was.MaxProperties), number(is.MaxProperties))
	lower("minProperties", number(was.MinProperties), number(is.MinProperties))
	return problems
}

func number(n *int64) *float64 {
	if n == nil {
		return nil
	}
	f := float64(*n)
	return &f
}

func orNone(n *float64) string {
	if n == nil {
		return "none"
	}
	return fmt.Sprint(*n)
}
