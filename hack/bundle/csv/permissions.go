package main

import "fmt"

// clusterScoped are the resources we use that belong to no namespace, by group and name.
var clusterScoped = map[string]bool{
	"storage.k8s.io/storageclasses":                                true,
	"rbac.authorization.k8s.io/clusterroles":                       true,
	"apiextensions.k8s.io/customresourcedefinitions":               true,
	"admissionregistration.k8s.io/validatingwebhookconfigurations": true,
	"/nodes":             true,
	"/namespaces":        true,
	"/persistentvolumes": true,
	"snapshot.storage.k8s.io/volumesnapshotclasses": true,
	"authentication.k8s.io/tokenreviews":            true,
	"authorization.k8s.io/subjectaccessreviews":     true,
}

// split moves, in an install strategy, what is about objects in namespaces from clusterPermissions to permissions; both lists have one
// element for each service account. operator-sdk sorts by how a role is bound in config/, where there is no OLM and the operator
// watches all namespaces. OLM grants permissions in the namespaces that the operator watches, and that may be a few.
func split(strategy object) error {
	wide, _ := strategy["clusterPermissions"].([]any)
	narrow, _ := strategy["permissions"].([]any)
	var keep []any
	for _, item := range wide {
		of, ok := item.(object)
		if !ok {
			return fmt.Errorf("clusterPermissions has %v", item)
		}
		rules, _ := of["rules"].([]any)
		var stay, move []any
		for _, rule := range rules {
			a, b, err := splitRule(rule)
			if err != nil {
				return err
			}
			stay, move = append(stay, a...), append(move, b...)
		}
		if narrow = grant(narrow, of["serviceAccountName"], move); len(stay) > 0 {
			keep = append(keep, object{"rules": stay, "serviceAccountName": of["serviceAccountName"]})
		}
	}
	strategy["clusterPermissions"], strategy["permissions"] = keep, narrow
	return nil
}

// grant puts rules before those of a service account, which gets an element if it has none.
func grant(to []any, account any, rules []any) []any {
	for _, item := range to {
		of, ok := item.(object)
		if !ok || of["serviceAccountName"] != account {
			continue
		}
		more, _ := of["rules"].([]any)
		of["rules"] = append(rules, more...)
		return to
	}
	return append(to, object{"rules": rules, "serviceAccountName": account})
}

// splitRule takes a rule apart into what is about the cluster's own resources and what is about objects in namespaces.
func splitRule(rule any) (wide, narrow []any, err error) {
	r, ok := rule.(object)
	if !ok {
		return nil, nil, fmt.Errorf("a rule is %v", rule)
	}
	groups, _ := r["apiGroups"].([]any)
	resources, _ := r["resources"].([]any)
	if len(resources) == 0 {
		return []any{r}, nil, nil // URLs
	}
	var wideResources, narrowResources []any
	for _, resource := range resources {
		if len(groups) == 1 && clusterScoped[fmt.Sprintf("%v/%v", groups[0], resource)] {
			wideResources = append(wideResources, resource)
		} else {
			narrowResources = append(narrowResources, resource)
		}
	}
	return about(r, wideResources), about(r, narrowResources), nil
}

// about is a rule with other resources; with none it is no rule.
func about(rule object, resources []any) []any {
	if len(resources) == 0 {
		return nil
	}
	other := object{}
	for key, value := range rule {
		other[key] = value
	}
	other["resources"] = resources
	return []any{other}
}
