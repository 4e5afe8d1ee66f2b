package preflight

import (
	"maps"
	"slices"
	"strings"
)

// gone has the major in which a parameter of postgresql.conf was removed, and what to do about it. A parameter that was renamed and that
// PostgreSQL still knows by its old name is not here.
var gone = map[string]struct {
	in     int
	remedy string
}{
	"promote_trigger_file":     {16, "it has no successor"},
	"vacuum_defer_cleanup_age": {16, "hot_standby_feedback and replication slots do what it was for"},
	"db_user_namespace":        {17, "it has no successor"},
	"old_snapshot_threshold":   {17, "it has no successor; transaction_timeout may do what it was for"},
	"trace_recovery_messages":  {17, "it has no successor"},
}

// removed are the parameters that From knows and To does not.
func removed(in Input) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(gone)) {
		if first := gone[name].in; in.From < first && first <= in.To {
			names = append(names, name)
		}
	}
	return names
}

// removedParameters are those that the user has set and To does not know, and what to do about each.
func removedParameters(in Input) (names, remedies []string) {
	for _, name := range slices.Sorted(maps.Keys(in.Parameters)) {
		if known := strings.ToLower(strings.TrimSpace(name)); slices.Contains(removed(in), known) {
			names = append(names, name)
			remedies = append(remedies, name+": "+gone[known].remedy)
		}
	}
	return names, remedies
}
