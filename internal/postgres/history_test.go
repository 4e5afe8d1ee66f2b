package postgres

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseHistory(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "0000001F.history", HistoryFile(31))
	history, err := ParseHistory([]byte("1\t0/3000148\tno recovery target specified\n\n# a comment\n2\t0/70000A0\tno recovery target specified\n"))
	require.NoError(t, err)
	assert.Equal(t, History{{1, 0x3000148}, {2, 0x70000A0}}, history)
	assert.Equal(t, LSN(0x70000A0), history.Start())
	end, known := history.End(1)
	assert.True(t, known)
	assert.Equal(t, LSN(0x3000148), end)
	_, known = history.End(3)
	assert.False(t, known, "it has not ended")

	history, err = ParseHistory(nil)
	require.NoError(t, err)
	assert.Equal(t, LSN(0), history.Start())

	for _, bad := range []string{"1", "one\t0/3", "0\t0/3", "1\t3", "2\t0/3\n1\t0/4"} {
		_, err := ParseHistory([]byte(bad))
		require.Error(t, err, bad)
	}
}
