package facts

import "github.com/pgsteward/pgsteward/internal/agentapi"

// ForceDone says whether the instance that a user lets take over whatever it lacks runs as the primary.
func (c *Cluster) ForceDone() bool {
	if c.Force == "" || c.Force != c.Holder {
		return false
	}
	primary, known := c.Primary()
	report, _ := primary.Report.Get()
	return known && report.State == agentapi.StateRunning && report.DataRole == agentapi.RolePrimary
}
