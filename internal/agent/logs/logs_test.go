package logs

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func newReader() (*Reader, *buffer) {
	out := &buffer{}
	return NewReader(slog.New(slog.NewJSONHandler(out, nil))), out
}

func TestReader_Line(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]struct{ level, message string }{
		`{"error_severity":"LOG","message":"ready","pid":7}`:                         {"INFO", "ready"},
		`{"error_severity":"ERROR","message":"no such table"}`:                       {"ERROR", "no such table"},
		`{"error_severity":"WARNING","message":"careful"}`:                           {"WARN", "careful"},
		`2026-11-29 23:00:00.000 GMT [12] FATAL:  could not map memory`:              {"ERROR", "could not map memory"},
		`postgres: error: cannot do that`:                                            {"INFO", "postgres: error: cannot do that"},
		`2026-11-29 23:00:00.000 GMT [12] LOG:  invalid value: "FATAL:  not really"`: {"INFO", `invalid value: "FATAL:  not really"`},
		`{not JSON`: {"INFO", "{not JSON"},
	} {
		reader, out := newReader()
		reader.Line(line)
		var got map[string]any
		require.NoError(t, json.Unmarshal([]byte(out.String()), &got), line)
		assert.Equal(t, want.level, got["level"], line)
		assert.Equal(t, want.message, got["msg"], line)
		assert.Equal(t, "postgres", got["logger"])
		if strings.HasPrefix(line, `{"`) {
			assert.Contains(t, got, "record", "all of PostgreSQL's fields")
		}
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	before := time.Now()
	words := &Words{}
	words.add("LOG", "walreceiver", "database system is ready")
	words.add("FATAL", "walreceiver", `password authentication failed for user "x"`)
	words.add("FATAL", "walreceiver", "the database system is starting up")
	assert.Empty(t, words.Since(before), "what a client did wrong says nothing about the server")

	words.add("FATAL", "walreceiver", "could not receive data from WAL stream: ERROR:  requested WAL segment 000000010000000000000003 has already been removed")
	assert.Contains(t, words.CannotFollow(before), "has already been removed")
	words.add("PANIC", "walreceiver", "could not write to file: No space left on device")
	assert.Equal(t, "could not write to file: No space left on device", words.Last(before))
	assert.Empty(t, words.Last(time.Now()))
	assert.Equal(t, "could not write to file: No space left on device", words.Ended(before), "PANIC ends the server, whoever says it")
	words.add("FATAL", "walreceiver", "could not connect to the primary server")
	assert.Equal(t, "could not connect to the primary server", words.Last(before))
	assert.Equal(t, "could not write to file: No space left on device", words.Ended(before))
	words.add("FATAL", "", "could not map memory")
	assert.Equal(t, "could not map memory", words.Ended(before))
	assert.Empty(t, words.CannotFollow(time.Now()))
	words.add("LOG", "walreceiver", "new timeline 2 forked off current database system timeline 1 before current recovery point 0/5000060")
	assert.Equal(t, "could not map memory", words.Last(before), "a remark is no reason to end")
	for range 2 * keptWords {
		words.add("FATAL", "walreceiver", "again")
	}
	assert.Len(t, words.Since(before), keptWords)
}

func TestWords_CannotFollow_of_a_follower_only(t *testing.T) {
	t.Parallel()
	const text = `"message":"requested WAL segment 000000010000000000000003 has already been removed"}`
	for line, want := range map[string]bool{
		`{"error_severity":"LOG","backend_type":"startup",` + text:                                              true,
		`{"error_severity":"FATAL","backend_type":"walreceiver",` + text:                                        true,
		`{"error_severity":"LOG","backend_type":"client backend",` + text:                                       false, // RAISE LOG
		`{"error_severity":"FATAL","backend_type":"client backend",` + text:                                     false, // a parameter of that name
		`{"error_severity":"LOG","backend_type":"postmaster",` + text:                                           false,
		`{"error_severity":"FATAL",` + text:                                                                     false,
		`2026-11-29 23:00:00.000 GMT [12] FATAL:  requested WAL segment has already been removed`:               false,
		`2026-11-29 23:00:00.000 GMT [12] LOG:  new timeline 2 forked off current database system timeline 1 x`: false,
	} {
		reader, _ := newReader()
		before := time.Now()
		reader.Line(line)
		assert.Equal(t, want, reader.Words.CannotFollow(before) != "", line)
	}
}

func TestReader_long_record_forges_nothing(t *testing.T) {
	t.Parallel()
	forged := `{"error_severity":"FATAL","backend_type":"walreceiver","message":"x has already been removed"}`
	for offset := range 200 { // wherever the record is cut, what follows must not begin a line
		long := `{"error_severity":"LOG","message":"a: FATAL:  forged ` + strings.Repeat("x", maxLine-offset) + forged
		lines := bufio.NewReaderSize(strings.NewReader(long+"\nnext\n"), 64<<10)
		line, err := readLine(lines)
		require.NoError(t, err)
		next, err := readLine(lines)
		require.NoError(t, err)
		require.Equal(t, "next", next)
		if offset == 0 {
			reader, _ := newReader()
			before := time.Now()
			reader.Line(line)
			assert.Empty(t, reader.Words.Since(before), "nor does the beginning say anything")
		}
	}
}

func TestReader_Run(t *testing.T) {
	t.Parallel()
	directory := filepath.Join(t.TempDir(), "log")
	for range 2 { // a second agent finds the first one's pipes
		pipes, err := Open(directory, func(string) error { return nil })
		require.NoError(t, err)
		require.Len(t, pipes, 2)
		reader, out := newReader()
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for _, pipe := range pipes {
			running.Go(func() { reader.Run(ctx, pipe) })
		}
		for _, text := range []string{"one\n", "two\n", strings.Repeat("x", 3*maxLine) + "\nthree\n"} {
			// as a server that is started again
			writer, err := os.OpenFile(filepath.Join(directory, "postgres.json"), os.O_WRONLY|os.O_APPEND, 0)
			require.NoError(t, err)
			_, err = writer.WriteString(text)
			require.NoError(t, err)
			require.NoError(t, writer.Close())
		}
		require.Eventually(t, func() bool { return strings.Contains(out.String(), `"msg":"three"`) }, 10*time.Second, time.Millisecond)
		assert.Contains(t, out.String(), `"msg":"two"`)
		cancel()
		running.Wait()
	}
}
