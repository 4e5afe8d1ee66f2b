package view

import (
	"cmp"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
)

// PageSize is how many clusters are on one page of the fleet.
const PageSize = 500

// Row is one cluster of the fleet.
type Row struct {
	Namespace, Name string
	State           State
	Phase           v1.Phase
	// Reason and Message are those of the condition that explains the state.
	Reason, Message string
	Version         string
	Primary         string
	Ready, Replicas int32
	// Lag is the greatest of the standbys'; nil: there is none, or it is not known.
	Lag *int64
	// Upgrade is nil if none is under way.
	Upgrade *UpgradeProgress
	// LastBackup is nil if there is none; Backups says whether there should be any.
	LastBackup *time.Time
	Backups    bool
}

// UpgradeProgress is how far a major upgrade is.
type UpgradeProgress struct {
	From, To string
	Phase    v1.UpgradePhase
	// Step of Steps is what it does.
	Step, Steps int
}

// RowOf is the cluster's row.
func RowOf(c *v1.PostgresCluster) Row {
	row := Row{
		Namespace: c.Namespace, Name: c.Name, State: StateOf(c), Phase: c.Status.Phase,
		Version: cmp.Or(c.Status.Version, c.Spec.Version), Primary: c.Status.CurrentPrimary,
		Ready: c.Status.ReadyReplicas, Replicas: replicas(c),
		LastBackup: timeOf(c.Status.LastBackup), Backups: c.Spec.Backup != nil,
	}
	row.Reason, row.Message = explanation(c)
	for _, i := range c.Status.Instances {
		if i.LagBytes != nil && i.Role == v1.RoleStandby && (row.Lag == nil || *i.LagBytes > *row.Lag) {
			row.Lag = i.LagBytes
		}
	}
	if u := c.Status.Upgrade; u != nil && !u.Phase.Final() {
		step, steps := place(u)
		row.Upgrade = &UpgradeProgress{From: u.From, To: u.To, Phase: u.Phase, Step: step, Steps: steps}
	}
	return row
}

// replicas is how many instances the spec wants.
func replicas(c *v1.PostgresCluster) int32 {
	if c.Spec.Replicas == nil {
		return c.Status.Replicas
	}
	return *c.Spec.Replicas
}

// explanation is the reason and message of the condition that has most to say about the state.
func explanation(c *v1.PostgresCluster) (reason, message string) {
	if len(c.Status.Conditions) == 0 {
		return "NotSeenYet", "No operator has looked at this cluster yet"
	}
	for _, name := range []string{v1.ConditionDegraded, v1.ConditionReady, v1.ConditionContinuousArchiving, v1.ConditionBackupHealthy} {
		condition := apimeta.FindStatusCondition(c.Status.Conditions, name)
		if condition != nil && conditionTone(*condition) == ToneWarn {
			return condition.Reason, condition.Message
		}
	}
	if ready := apimeta.FindStatusCondition(c.Status.Conditions, v1.ConditionReady); ready != nil {
		return ready.Reason, ready.Message
	}
	return "", ""
}

// Filter says which clusters of the fleet are shown, and in which order.
type Filter struct {
	// Search are words that must all occur in what the row says.
	Search    string
	State     State
	Namespace string
	// Sort is a key of sortings; Descending turns the order round.
	Sort       string
	Descending bool
	// Page counts from 1.
	Page int
}

// Fleet is the page with all clusters.
type Fleet struct {
	Filter Filter
	Rows   []Row
	// All is how many clusters there are, Found how many the filter leaves, First and Last which of these the page has, from 1.
	All, Found, First, Last int
	Pages                   int
	// Counts are the clusters of each state, whatever the filter says.
	Counts []StateCount
	// Namespaces that have clusters.
	Namespaces []string
}

// StateCount is how many clusters are in a state.
type StateCount struct {
	State State
	Count int
}

// sortings are the orders of the fleet.
var sortings = map[string]func(a, b Row) int{
	"name":      func(a, b Row) int { return cmp.Compare(a.Name, b.Name) },
	"namespace": func(a, b Row) int { return cmp.Compare(a.Namespace, b.Namespace) },
	"state":     func(a, b Row) int { return cmp.Compare(a.State.urgency(), b.State.urgency()) },
	"version":   func(a, b Row) int { return compareVersions(a.Version, b.Version) },
	"primary":   func(a, b Row) int { return cmp.Compare(a.Primary, b.Primary) },
	"ready":     func(a, b Row) int { return cmp.Compare(a.Ready-a.Replicas, b.Ready-b.Replicas) },
	"lag":       func(a, b Row) int { return cmp.Compare(lagOf(a), lagOf(b)) },
	"upgrade":   func(a, b Row) int { return cmp.Compare(stepOf(a), stepOf(b)) },
	"backup":    func(a, b Row) int { return backupOf(a).Compare(backupOf(b)) },
}

// FleetOf is the page of these clusters that the filter asks for. What a filter says that makes no sense is left out of it.
func FleetOf(clusters []*v1.PostgresCluster, filter Filter) Fleet {
	if sortings[filter.Sort] == nil {
		filter.Sort = "name"
	}
	if !slices.Contains(States, filter.State) {
		filter.State = ""
	}
	fleet := Fleet{All: len(clusters)}
	counts, namespaces := map[State]int{}, map[string]bool{}
	words := strings.Fields(strings.ToLower(filter.Search))
	var rows []Row
	for _, c := range clusters {
		row := RowOf(c)
		counts[row.State]++
		namespaces[row.Namespace] = true
		if (filter.State == "" || filter.State == row.State) && (filter.Namespace == "" || filter.Namespace == row.Namespace) && row.has(words) {
			rows = append(rows, row)
		}
	}
	sortRows(rows, filter)
	for _, state := range States {
		fleet.Counts = append(fleet.Counts, StateCount{State: state, Count: counts[state]})
	}
	for namespace := range namespaces {
		fleet.Namespaces = append(fleet.Namespaces, namespace)
	}
	slices.Sort(fleet.Namespaces)
	fleet.paginate(rows, &filter)
	fleet.Filter = filter
	return fleet
}

func sortRows(rows []Row, filter Filter) {
	by := sortings[filter.Sort]
	slices.SortFunc(rows, func(a, b Row) int {
		order := by(a, b)
		if filter.Descending {
			order = -order
		}
		return cmp.Or(order, cmp.Compare(a.Name, b.Name), cmp.Compare(a.Namespace, b.Namespace))
	})
}

func (f *Fleet) paginate(rows []Row, filter *Filter) {
	f.Found = len(rows)
	f.Pages = max(1, (f.Found+PageSize-1)/PageSize)
	filter.Page = min(max(filter.Page, 1), f.Pages)
	first := (filter.Page - 1) * PageSize
	f.Rows = rows[first:min(first+PageSize, f.Found)]
	f.First, f.Last = first+1, first+len(f.Rows)
}

// has says whether all words, in lower case, occur in what the row says.
func (r Row) has(words []string) bool {
	text := strings.ToLower(strings.Join([]string{r.Namespace + "/" + r.Name, string(r.State), string(r.Phase), r.Reason, r.Version, r.Primary}, " "))
	for _, word := range words {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}

func lagOf(r Row) int64 {
	if r.Lag == nil {
		return -1
	}
	return *r.Lag
}

func stepOf(r Row) int {
	if r.Upgrade == nil {
		return 0
	}
	return r.Upgrade.Step
}

func backupOf(r Row) time.Time {
	if r.LastBackup == nil {
		return time.Time{}
	}
	return *r.LastBackup
}

// compareVersions compares such as 16.9 and 16.14 by their numbers, whose digits it makes as many.
func compareVersions(a, b string) int {
	padded := func(version string) string {
		parts := strings.Split(version, ".")
		for n, part := range parts {
			parts[n] = strings.Repeat("0", max(0, 6-len(part))) + part
		}
		return strings.Join(parts, ".")
	}
	return cmp.Compare(padded(a), padded(b))
}
