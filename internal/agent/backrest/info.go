package backrest

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/pgsteward/pgsteward/internal/backup"
)

// The parts of "pgbackrest info --output=json" that are of use (https://pgbackrest.org/command.html#command-info).
type infoStanza struct {
	Name   string       `json:"name"`
	Backup []infoBackup `json:"backup"`
	// Archive are the folders of WAL, one for each PostgreSQL system that the stanza had: with us, one.
	Archive []struct {
		ID string `json:"id"`
	} `json:"archive"`
	Status struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"status"`
	Repo []struct {
		Status struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		} `json:"status"`
	} `json:"repo"`
}

type infoBackup struct {
	Label      string            `json:"label"`
	Type       string            `json:"type"`
	Reference  []string          `json:"reference"`
	Error      bool              `json:"error"`
	Annotation map[string]string `json:"annotation"`
	Archive    struct {
		Start string `json:"start"`
		Stop  string `json:"stop"`
	} `json:"archive"`
	LSN struct {
		Start string `json:"start"`
		Stop  string `json:"stop"`
	} `json:"lsn"`
	Timestamp struct {
		Start int64 `json:"start"`
		Stop  int64 `json:"stop"`
	} `json:"timestamp"`
	Info struct {
		Size       int64 `json:"size"`
		Repository struct {
			Delta int64 `json:"delta"`
		} `json:"repository"`
	} `json:"info"`
}

const (
	// codeNoFolder and codeNoInfo are the statuses of a stanza that was not made, or not to its end.
	codeNoFolder = 1
	codeNoInfo   = 3
	// codeUnknown is the status of a stanza that cannot be read.
	codeUnknown = 99
	// annotationKey is under which name a backup's own is noted with it.
	annotationKey = "pgsteward"
)

var types = map[string]backup.Type{"full": backup.Full, "diff": backup.Differential, "incr": backup.Incremental}

// parseInfo reads what "info" says. A stanza without backups is there; one that was not made is not, and that is no error.
func parseInfo(text []byte) ([]backup.Contents, error) {
	var stanzas []infoStanza
	if err := json.Unmarshal(text, &stanzas); err != nil {
		return nil, fmt.Errorf("reading what pgbackrest info says: %w", err)
	}
	all := make([]backup.Contents, 0, len(stanzas))
	for _, stanza := range stanzas {
		switch stanza.Status.Code {
		case codeNoFolder, codeNoInfo:
			continue
		case codeUnknown:
			message := stanza.Status.Message
			for _, repo := range stanza.Repo {
				message = repo.Status.Message
			}
			return nil, fmt.Errorf("the repository cannot be read: %s", message)
		}
		contents := backup.Contents{Stanza: stanza.Name}
		for _, archive := range stanza.Archive {
			contents.Archive = archive.ID
		}
		for _, b := range stanza.Backup {
			contents.Backups = append(contents.Backups, backup.Backup{
				Label: b.Label, Type: types[b.Type], Needs: b.Reference, Name: b.Annotation[annotationKey],
				Started: time.Unix(b.Timestamp.Start, 0).UTC(), Stopped: time.Unix(b.Timestamp.Stop, 0).UTC(),
				StartLSN: b.LSN.Start, StopLSN: b.LSN.Stop, Timeline: timelineOf(b.Archive.Stop),
				Size: b.Info.Size, RepositorySize: b.Info.Repository.Delta, Damaged: b.Error,
			})
		}
		all = append(all, contents)
	}
	return all, nil
}

// timelineOf is the timeline in the name of a WAL file.
func timelineOf(file string) int64 {
	const digits = 8
	if len(file) < digits {
		return 0
	}
	timeline, err := strconv.ParseInt(file[:digits], 16, 64)
	if err != nil {
		return 0
	}
	return timeline
}
