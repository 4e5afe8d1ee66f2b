package apply

import "reflect"

// covers says whether live, an object as the API server returns it, has everything that desired has. Both are in unstructured
// form. What live has beyond that belongs to others: defaults, status, what other tools add.
func covers(live, desired any) bool {
	switch want := desired.(type) {
	case map[string]any:
		have, ok := live.(map[string]any)
		if !ok {
			return len(want) == 0 && live == nil // an empty object may be left out
		}
		for key, value := range want {
			if !covers(have[key], value) {
				return false
			}
		}
		return true
	case []any:
		have, ok := live.([]any)
		if !ok {
			return len(want) == 0 && live == nil
		}
		return coversList(have, want)
	default:
		return reflect.DeepEqual(live, desired)
	}
}

// coversList compares lists of named things by name, since others may add theirs; all other lists must be equal.
func coversList(have, want []any) bool {
	byName := map[any]any{}
	for _, item := range have {
		if name := nameOf(item); name != nil {
			byName[name] = item
		}
	}
	for n, item := range want {
		if name := nameOf(item); name != nil {
			if !covers(byName[name], item) {
				return false
			}
			continue
		}
		if len(have) != len(want) || !covers(have[n], item) {
			return false
		}
	}
	return true
}

// nameOf is the key of an item in a list of named things; nil if it has none.
func nameOf(item any) any {
	fields, ok := item.(map[string]any)
	if !ok {
		return nil
	}
	for _, key := range []string{"mountPath", "uid", "name"} { // the list-map keys of mounts, owners, and most others
		if name, ok := fields[key]; ok {
			return name
		}
	}
	return nil
}
