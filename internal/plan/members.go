package plan

import (
	"cmp"
	"slices"

	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// existing are the members that have a StatefulSet which is not being deleted.
func existing(f *facts.Cluster) []Member {
	var have []Member
	for _, i := range f.Instances {
		if !i.Deleting {
			have = append(have, Member{Name: i.Name, Ordinal: i.Ordinal})
		}
	}
	return have
}

// members are the instances that shall exist.
func members(f *facts.Cluster) []Member {
	all, _ := roster(f)
	return all
}

// roster is the members, those that exist and, if they are too few, new ones: first those that have a volume already, the
// primary's before the standbys', which may lack its last transactions; then the lowest free numbers. An instance that is still
// being deleted keeps its number, and its place: it may be on its way back. A volume with somebody else's data keeps its place too,
// and is refused, since another number in its place would hide that.
func roster(f *facts.Cluster) ([]Member, []Refusal) {
	have := existing(f)
	var refused []Refusal
	wanted := f.Replicas - (len(f.Instances) - len(have))
	taken := map[int]bool{}
	for _, i := range f.Instances {
		taken[i.Ordinal] = true
	}
	var candidates []int
	for _, primary := range []bool{true, false} {
		for _, v := range f.Volumes {
			if !v.Deleting && v.WasPrimary == primary {
				candidates = append(candidates, v.Ordinal)
			}
		}
	}
	for n := 1; n <= naming.MaxOrdinal; n++ {
		candidates = append(candidates, n)
	}
	for _, n := range candidates {
		if len(have) >= wanted {
			break
		}
		if taken[n] {
			continue
		}
		taken[n] = true
		name := naming.Instance(f.Name, n)
		if v, ok := f.Volume(name); ok {
			if conflict := f.Conflict(v); conflict != nil {
				refused = append(refused, Refusal{Reason: conflict.Reason, What: "creating " + name, Why: conflict.Message})
				wanted--
				continue
			}
		}
		have = append(have, Member{Name: name, Ordinal: n})
	}
	slices.SortFunc(have, func(a, b Member) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
	return have, refused
}

// bootstrap is the member that may make a new PostgreSQL system: the first one, as long as the cluster is not known to have data.
func bootstrap(f *facts.Cluster, m []Member) string {
	if f.HasData() || len(m) == 0 {
		return ""
	}
	return m[0].Name
}
