package facts

import (
	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/backup"
)

// Recovery is what is wanted of a recovery in place, and what the status remembers of it.
type Recovery struct {
	// Wish is what the annotation asks for; nil: nothing, or what cannot be understood, and BadWish says why.
	Wish    *backup.InPlace
	BadWish string
	// Status is what was last written; nil: there never was one.
	Status *v1.RecoveryStatus
	// Safety is the backup that it waits for; nil: it waits for none.
	Safety *WantedBackup
}
