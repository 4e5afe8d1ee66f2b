package plan

import (
	"cmp"
	"slices"
	"time"

	"github.com/pgsteward/pgsteward/internal/facts"
)

const (
	// settleRecheck bounds how long a cluster that is not settled goes without another look, should an event be missed.
	settleRecheck = 30 * time.Second
	// refreshRecheck is when to see whether the kubelet has refreshed the instances' files.
	refreshRecheck = 3 * time.Second
	// accessPatience is how long it may take until Secrets can be read before it is a matter for the user.
	accessPatience = 15 * time.Second
	// deletionPatience is how long a deletion may take before it is said how to force it.
	deletionPatience = 2 * time.Minute
)

// rule is one named step of the decision; false: it does not apply.
type rule struct {
	name   string
	decide func(f *facts.Cluster) (Decision, bool)
}

// rules in the order of the package's documentation.
var rules = []rule{
	{"delete", deletion},
	{"pause", pause},
	{"access", access},
	{"suspend", suspend},
	{"switchover", switchover},
	{"replace-volume", replaceVolume},
	{"restart-broken", restartBroken},
	{"restart-revoked", restartRevoked},
	{"node-lost", nodeLost},
	{"recovery", recovering},
	{"upgrade", upgrading},
	{"create", create},
	{"scale-in", scaleIn},
	{"settle", settle},
	{"upgrade-waits", upgradeWaits},
	{"roll", roll},
	{"done", done},
}

// Decide says what to do. It does not change what f refers to, and the order in which things are listed means nothing.
func Decide(f facts.Cluster) Decision {
	f.Instances = slices.SortedFunc(slices.Values(f.Instances), func(a, b facts.Instance) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
	f.Volumes = slices.SortedFunc(slices.Values(f.Volumes), func(a, b facts.Volume) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
	for _, r := range rules {
		if d, ok := r.decide(&f); ok {
			d.Rule = r.name
			if d.Action == nil {
				d.Action = None{}
			}
			if !f.Deleting {
				d.Bootstrap = bootstrap(&f, d.Members)
				_, refused := roster(&f)
				noteSwitchover(&f, &d)
				noteForce(&f, &d)
				d.Refused = append(d.Refused, refused...)
				noteUpgrade(&f, &d)
				noteRecovery(&f, &d)
			}
			return d
		}
	}
	panic("plan: the last rule always applies")
}
