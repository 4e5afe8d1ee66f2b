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

	recovered, err := ParseHistory([]byte("1\t0/80000A0\tx\n2\t0/C0000A0\tx\n3\t0/8013398\tbefore 2026-11-30 17:46:34.387476+00\n4\t0/D0000A0\tx\n"))
	require.NoError(t, err)
	assert.Equal(t, History{{1, 0x80000A0}, {2, 0x8013398}, {3, 0x8013398}, {4, 0xD0000A0}}, recovered, "2 was left where 3 says, before 3 began")

	history, err = ParseHistory(nil)
	require.NoError(t, err)
	assert.Equal(t, LSN(0), history.Start())

	for _, bad := range []string{"1", "one\t0/3", "0\t0/3", "1\t3", "2\t0/3\n1\t0/4"} {
		_, err := ParseHistory([]byte(bad))
		require.Error(t, err, bad)
	}
}
