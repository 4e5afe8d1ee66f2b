package generation

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// Marker is what the volume says of a major upgrade. What is not in it can be observed.
type Marker struct {
	// ID is that of the attempt; From and To are its majors.
	ID   string `json:"id"`
	From int    `json:"from"`
	To   int    `json:"to"`
	// Stage and Since: how far the seed has come.
	Stage agentapi.SeedStage `json:"stage,omitempty"`
	Since time.Time          `json:"since"`
	// Method and Why, as chosen.
	Method agentapi.UpgradeMethod `json:"method,omitempty"`
	Why    string                 `json:"why,omitempty"`
	// Source is the instance, System its PostgreSQL system; Timeline is the one on which the slots were made.
	Source   string `json:"source,omitempty"`
	System   string `json:"system,omitempty"`
	Timeline int64  `json:"timeline,omitempty"`
	// Position is X; Databases are those that are carried over, by their oid on the source.
	Position  string            `json:"position,omitempty"`
	Databases map[string]uint32 `json:"databases,omitempty"`
	// Schemas are the databases whose schema was copied (logical).
	Schemas []string `json:"schemas,omitempty"`
	// UsedUp says that the data directory of From on this volume is no standby's any more: it must be copied again before it serves.
	UsedUp bool `json:"usedUp,omitempty"`
	// Linked says that pg_upgrade has begun to link files: the old data directory must not be started any more.
	Linked bool `json:"linked,omitempty"`
	// Converted says that pg_upgrade has come to its end: the new data directory is complete, under whichever name.
	Converted bool `json:"converted,omitempty"`
	// Analyzed says that extensions are updated and statistics made.
	Analyzed bool `json:"analyzed,omitempty"`
	// Failed is why the attempt is over.
	Failed *agentapi.Problem `json:"failed,omitempty"`
	// Switching is the instance to which writes are being moved from here. Origin says that they were: this server is the way back.
	Switching string `json:"switching,omitempty"`
	Origin    bool   `json:"origin,omitempty"`
	// Reverse are the slots' positions of the way back, by database, as the new primary made them.
	Reverse map[string]string `json:"reverse,omitempty"`
}

func markerPath(volume *datadir.Volume) string {
	return filepath.Join(volume.AgentDir(), naming.FileUpgradeMarker)
}

// ReadMarker is the volume's marker; nil if there is none.
func ReadMarker(volume *datadir.Volume) (*Marker, error) {
	content, err := os.ReadFile(markerPath(volume))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the upgrade's marker: %w", err)
	}
	marker := &Marker{}
	if err := json.Unmarshal(content, marker); err != nil {
		return nil, fmt.Errorf("reading the upgrade's marker: %w", err)
	}
	return marker, nil
}

// Write puts the marker on the volume; when it returns it is on disk.
func (m *Marker) Write(volume *datadir.Volume) error {
	content, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("writing the upgrade's marker: %w", err)
	}
	return volume.WriteFile(markerPath(volume), content)
}

// RemoveMarker removes it.
func RemoveMarker(volume *datadir.Volume) error {
	if err := os.Remove(markerPath(volume)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the upgrade's marker: %w", err)
	}
	return nil
}
