package backup

import "fmt"

// Instance is what matters of an instance for a backup.
type Instance struct {
	Name string
	// Primary and Standby say what it is; neither if that is not known.
	Primary, Standby bool
	// Serves says whether its PostgreSQL runs and, as a standby, streams.
	Serves bool
	// Lag is how many bytes a standby is behind.
	Lag int64
}

// Place is where a backup is read: from the standby with the least lag, so that the primary is spared; it still begins and ends
// the backup. Standby is empty if there is none to read from.
type Place struct{ Primary, Standby string }

// FindPlace says where a backup can be read, or why nowhere.
func FindPlace(instances []Instance) (Place, error) {
	var place Place
	least := int64(0)
	for _, i := range instances {
		switch {
		case !i.Serves:
		case i.Primary:
			place.Primary = i.Name
		case i.Standby && (place.Standby == "" || i.Lag < least || i.Lag == least && i.Name < place.Standby):
			place.Standby, least = i.Name, i.Lag
		}
	}
	if place.Primary == "" {
		return Place{}, fmt.Errorf("there is no primary that serves")
	}
	return place, nil
}
