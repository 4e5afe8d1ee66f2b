package backup

import (
	"errors"
	"slices"
)

// Instance is what matters of an instance for a backup.
type Instance struct {
	Name string
	// Primary and Standby say what it is; neither if that is not known.
	Primary, Standby bool
	// Serves says whether its PostgreSQL runs and, as a standby, streams.
	Serves bool
	// Lag is how many bytes a standby is behind.
	Lag int64
	// System is the identifier of the PostgreSQL system whose data it has.
	System string
}

// Place is where a backup is read: from the standby with the least lag, so that the primary is spared; it still begins and ends
// the backup. Standby is empty if there is none to read from.
type Place struct{ Primary, Standby string }

// FindPlace says where a backup can be read, or why nowhere. A standby of another system than the primary's is of the other generation of
// a major upgrade: it streams, but from another server, and its data is not what is to be backed up.
func FindPlace(instances []Instance) (Place, error) {
	primary := slices.IndexFunc(instances, func(i Instance) bool { return i.Serves && i.Primary })
	if primary < 0 {
		return Place{}, errors.New("there is no primary that serves")
	}
	place := Place{Primary: instances[primary].Name}
	least := int64(0)
	for _, i := range instances {
		if !i.Serves || !i.Standby || i.System != instances[primary].System {
			continue
		}
		if place.Standby == "" || i.Lag < least || i.Lag == least && i.Name < place.Standby {
			place.Standby, least = i.Name, i.Lag
		}
	}
	return place, nil
}
