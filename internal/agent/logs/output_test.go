package logs

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestOutput_blocked has a writer that blocks until it is let go.
func TestOutput_blocked(t *testing.T) {
	t.Parallel()
	read, write := io.Pipe()
	output := NewOutput(write)
	output.limit = 10
	go output.Run()
	_, err := output.Write([]byte("first\n"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { // it is being written, which blocks
		output.mu.Lock()
		defer output.mu.Unlock()
		return output.waiting.Len() == 0
	}, 10*time.Second, time.Millisecond)
	for range 4 {
		n, err := output.Write([]byte("again\n"))
		require.NoError(t, err)
		assert.Equal(t, 6, n)
	}
	began := time.Now()
	output.Close(10 * time.Millisecond)
	assert.Less(t, time.Since(began), 10*time.Second, "it does not wait for ever")

	var text strings.Builder
	flowing := make(chan struct{})
	go func() { defer close(flowing); _, _ = io.Copy(&text, read) }()
	output.Close(10 * time.Second)
	require.NoError(t, write.Close())
	<-flowing
	got := text.String()
	assert.True(t, strings.HasPrefix(got, "first\nagain\n{"), got)
	assert.Contains(t, got, `"dropped":3`)
	assert.Equal(t, 3, strings.Count(got, "\n"), got)
}

func TestOutput_Close_writes_the_rest(t *testing.T) {
	t.Parallel()
	out := &buffer{}
	output := NewOutput(out)
	_, _ = output.Write([]byte("before it runs\n"))
	go output.Run()
	_, _ = output.Write([]byte("last\n"))
	output.Close(10 * time.Second)
	assert.Equal(t, "before it runs\nlast\n", out.String())
}
