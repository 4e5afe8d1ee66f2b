package plan

import "github.com/pgsteward/pgsteward/internal/facts"

// noteForce adds to a decision that the instance which a user forces to take over runs as the primary.
func noteForce(f *facts.Cluster, d *Decision) { d.Forced = f.ForceDone() && !d.Frozen && !d.AccessOnly }
