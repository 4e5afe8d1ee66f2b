package backrest

import (
	"context"
	"path"
	"strings"

	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

const (
	// logFilter is which folders of an archive have WAL, segmentFilter which files there are some: a checksum comes after the name.
	logFilter     = `^[0-9A-F]{16}$`
	segmentFilter = `^[0-9A-F]{24}-`
)

// Gap is WAL that the archive lacks for a recovery that begins with the backup, of those contents, as Follow has made them; nil: nothing. It lists one
// folder for each 4 GiB of WAL since the backup.
func (t *Tool) Gap(ctx context.Context, name string, contents backup.Contents, from backup.Backup) (*backup.Gap, error) {
	if contents.Archive == "" || from.Abandoned {
		return nil, nil //nolint:nilnil // there is none
	}
	folder := path.Join("archive", contents.Stanza, contents.Archive)
	logs, err := t.names(ctx, name, logFilter, folder)
	if err != nil {
		return nil, err
	}
	var wanted []string
	for _, log := range logs {
		if first, last, ok := postgres.ParseLog(log); ok && contents.Line.Needs(from, first, last) {
			wanted = append(wanted, log)
		}
	}
	var archived []postgres.Segment
	for _, log := range wanted {
		files, err := t.names(ctx, name, segmentFilter, path.Join(folder, log))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			file, _, _ = strings.Cut(file, "-")
			if s, ok := postgres.ParseSegment(file); ok {
				archived = append(archived, s)
			}
		}
	}
	gap, found := contents.Line.Gap(from, archived)
	if !found {
		return nil, nil //nolint:nilnil // there is none
	}
	return &gap, nil
}
