package postgres

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSegment(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]Segment{
		"000000010000000000000001": {Timeline: 1, Number: 1},
		"0000000A00000002000000FF": {Timeline: 10, Number: 2*256 + 255},
	} {
		got, ok := ParseSegment(name)
		require.True(t, ok, name)
		require.Equal(t, want, got)
		require.Equal(t, name, got.String())
		first, last, ok := ParseLog(name[:16])
		require.True(t, ok)
		require.Equal(t, name[:16]+"00000000", first.String())
		require.Equal(t, name[:16]+"000000FF", last.String())
	}
	for _, name := range []string{"", "00000001.history", "000000010000000000000001.partial", "00000001000000000000010G", "000000010000000000000100"} {
		_, ok := ParseSegment(name)
		require.False(t, ok, name)
	}
	at := func(lsn string) string {
		position, err := ParseLSN(lsn)
		require.NoError(t, err)
		return SegmentAt(1, position).String()
	}
	require.Equal(t, "000000010000000000000002", at("0/3000000"), "what ends at a boundary needs nothing of the next file")
	require.Equal(t, "000000010000000000000003", at("0/3000001"))
	require.Equal(t, "000000010000000100000000", at("1/28"))
	require.Equal(t, "1/0", Segment{Timeline: 1, Number: 256}.Start().String())
}
