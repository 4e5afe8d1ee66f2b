package backrest

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// historyFilter is which files of an archive are histories of timelines.
const historyFilter = `^[0-9A-F]{8}\.history$`

// Follow is the contents as they are to a recovery along that timeline; 0: along the newest, as PostgreSQL finds it. The histories are
// those in the archive, which is where a recovery reads them.
func (t *Tool) Follow(ctx context.Context, name string, contents backup.Contents, timeline int64) (backup.Contents, error) {
	if len(contents.Backups) == 0 {
		return contents, nil
	}
	line, err := t.line(ctx, name, contents, timeline)
	if err != nil {
		return contents, err
	}
	return contents.Follow(line), nil
}

// line is that timeline, or the newest, with its history. One that was skipped is not the newest: what comes after it is about to be
// archived. Neither is one that is older than a backup, since then histories are missing: it is not known which is.
func (t *Tool) line(ctx context.Context, name string, contents backup.Contents, wanted int64) (backup.Line, error) {
	if wanted == 1 || contents.Archive == "" {
		return backup.Line{Timeline: wanted}, nil
	}
	folder := path.Join("archive", contents.Stanza, contents.Archive)
	timelines, err := t.histories(ctx, name, folder)
	if err != nil {
		return backup.Line{}, err
	}
	for _, timeline := range slices.Backward(timelines) {
		if wanted > 0 && timeline != wanted {
			continue
		}
		content, err := t.bounded(ctx, name, "repo-get", path.Join(folder, postgres.HistoryFile(timeline)))
		if err != nil {
			return backup.Line{}, err
		}
		if wanted == 0 && datadir.IsReserved(content) {
			continue
		}
		history, err := postgres.ParseHistory(content)
		if err != nil {
			return backup.Line{}, fmt.Errorf("reading the history of timeline %d in the repository: %w", timeline, err)
		}
		if wanted == 0 && slices.ContainsFunc(contents.Backups, func(b backup.Backup) bool { return b.Timeline > timeline }) {
			return backup.Line{}, nil
		}
		return backup.Line{Timeline: timeline, History: history}, nil
	}
	return backup.Line{Timeline: wanted}, nil
}

// histories are the timelines whose histories are in that folder, the oldest first.
func (t *Tool) histories(ctx context.Context, name, folder string) ([]int64, error) {
	files, err := t.names(ctx, name, historyFilter, folder)
	if err != nil {
		return nil, err
	}
	var timelines []int64
	for _, file := range files {
		digits, _, _ := strings.Cut(file, ".")
		timeline, err := strconv.ParseInt(digits, 16, 64)
		if err != nil {
			return nil, fmt.Errorf("reading what pgbackrest repo-ls says: %q is no history of a timeline", file)
		}
		timelines = append(timelines, timeline)
	}
	slices.Sort(timelines)
	return timelines, nil
}

// names are those of what is in a folder of the repository and matches.
func (t *Tool) names(ctx context.Context, name, filter, folder string) ([]string, error) {
	output, err := t.bounded(ctx, name, "--filter="+filter, "repo-ls", folder)
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(output)), nil
}

// bounded runs a command that reads a little.
func (t *Tool) bounded(ctx context.Context, name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, infoBound, fmt.Errorf("the repository gave no answer for %s", infoBound))
	defer cancel()
	return t.run(ctx, name, append([]string{"--log-level-stderr=error"}, args...)...)
}
