package logs

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/pgsteward/pgsteward/internal/postgres"
)

const (
	// pipeMode lets only the server's own user write.
	pipeMode = 0o600
	// maxLine bounds one record; the rest of a longer one is dropped.
	maxLine = 1 << 20
)

// Reader turns PostgreSQL's log into ours.
type Reader struct {
	log *slog.Logger
	// Words keeps the last words.
	Words *Words
}

// NewReader is a reader that writes to the handler.
func NewReader(log *slog.Logger) *Reader {
	return &Reader{log: log.With("logger", "postgres"), Words: &Words{}}
}

// Open makes the pipes in the directory and opens them, before PostgreSQL does. They are opened for writing too, so that
// reading goes on when a server ends. chown gives them to the server's user.
func Open(directory string, chown func(path string) error) ([]*os.File, error) {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return nil, fmt.Errorf("making the log directory: %w", err)
	}
	if err := chown(directory); err != nil {
		return nil, fmt.Errorf("giving away the log directory: %w", err)
	}
	var pipes []*os.File
	for _, name := range []string{postgres.LogName + ".json", postgres.LogName} {
		path := filepath.Join(directory, name)
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("removing an old log: %w", err)
		}
		if err := syscall.Mkfifo(path, pipeMode); err != nil {
			return nil, fmt.Errorf("making pipe %s: %w", path, err)
		}
		if err := chown(path); err != nil {
			return nil, fmt.Errorf("giving away pipe %s: %w", path, err)
		}
		pipe, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return nil, fmt.Errorf("opening pipe %s: %w", path, err)
		}
		pipes = append(pipes, pipe)
	}
	return pipes, nil
}

// Run reads the pipe until the context ends.
func (r *Reader) Run(ctx context.Context, pipe *os.File) {
	stop := context.AfterFunc(ctx, func() { _ = pipe.Close() })
	defer stop()
	lines := bufio.NewReaderSize(pipe, 64<<10)
	for {
		line, err := readLine(lines)
		if line != "" {
			r.Line(line)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && ctx.Err() == nil {
				r.log.Error("Reading PostgreSQL's log failed", "error", err)
			}
			return
		}
	}
}

// readLine reads one line. The rest of one that is too long is no line of its own: a client that logs a long text would choose
// what it says, and so speak for the server.
func readLine(from *bufio.Reader) (string, error) {
	var line strings.Builder
	for {
		part, isPrefix, err := from.ReadLine()
		if err != nil {
			return line.String(), err
		}
		if line.Len() < maxLine {
			line.Write(part)
		}
		if !isPrefix {
			return line.String(), nil
		}
	}
}

// Line takes one line that PostgreSQL wrote: a record in JSON, or plain text.
func (r *Reader) Line(line string) {
	var record map[string]any
	if strings.HasPrefix(line, "{") && json.Unmarshal([]byte(line), &record) == nil {
		severity, _ := record["error_severity"].(string)
		message, _ := record["message"].(string)
		if record["remote_host"] == "[local]" && strings.HasPrefix(message, "the database system is ") {
			return // the agent asks several times a second whether it is up
		}
		process, _ := record["backend_type"].(string)
		r.Words.add(severity, process, message)
		r.log.LogAttrs(context.Background(), level(severity), message, slog.Any("record", record))
		return
	}
	severity, message := split(line)
	if strings.HasPrefix(line, "{") {
		severity, message = "", line // a record that was cut: a severity in it is a client's text
	}
	r.Words.add(severity, "", message)
	r.log.LogAttrs(context.Background(), level(severity), message)
}

// split finds the severity in a line such as "2026-01-02 03:04:05.678 UTC [123] FATAL:  could not ...".
func split(line string) (severity, message string) {
	for _, severity := range []string{"PANIC", "FATAL", "ERROR", "WARNING", "LOG", "DETAIL", "HINT"} {
		if before, after, ok := strings.Cut(line, severity+":  "); ok && (before == "" || strings.HasSuffix(before, "] ") || strings.HasSuffix(before, ": ")) {
			return severity, after
		}
	}
	return "", line
}

func level(severity string) slog.Level {
	switch severity {
	case "PANIC", "FATAL", "ERROR":
		return slog.LevelError
	case "WARNING":
		return slog.LevelWarn
	}
	if strings.HasPrefix(severity, "DEBUG") {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}
