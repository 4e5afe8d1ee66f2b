package agentapi

import "github.com/pgsteward/pgsteward/internal/backup"

// InPlace is a recovery of the cluster's own data that is under way.
type InPlace struct {
	// Name is that of the attempt.
	Name   string        `json:"name"`
	Target backup.Target `json:"target"`
	// Replace says that the recovered data may take the place of the primary's. Until then it is only made, beside it.
	Replace bool `json:"replace,omitempty"`
}

// Floor is that data of the PostgreSQL system from before that timeline must not take over: it was recovered in place since.
type Floor struct {
	SystemIdentifier string `json:"systemIdentifier"`
	Timeline         int64  `json:"timeline"`
}

// Excludes says whether data of that system on that timeline must not take over.
func (f *Floor) Excludes(system string, timeline int64) bool {
	return f != nil && f.SystemIdentifier == system && timeline < f.Timeline
}

// InPlaceStage is how far a primary's agent is with a recovery in place.
type InPlaceStage string

// The stages.
const (
	// InPlacePreparing: the recovered data is being made.
	InPlacePreparing InPlaceStage = "Preparing"
	// InPlacePrepared: it is there, beside the present.
	InPlacePrepared InPlaceStage = "Prepared"
	// InPlaceReplaced: it is in place, and PostgreSQL runs on it.
	InPlaceReplaced InPlaceStage = "Replaced"
	// InPlaceFailed: the present data stays; Error says why.
	InPlaceFailed InPlaceStage = "Failed"
)

// InPlaceReport is what a primary's agent says of a recovery in place.
type InPlaceReport struct {
	Name  string       `json:"name"`
	Stage InPlaceStage `json:"stage"`
	// Timeline is that of the recovered data, once it is there.
	Timeline int64 `json:"timeline,omitempty"`
	// Error is why it failed, or is tried again.
	Error string `json:"error,omitempty"`
}
