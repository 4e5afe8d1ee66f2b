package sql

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestVerifier compares with what PostgreSQL itself computed for this salt: the example of RFC 7677.
func TestVerifier(t *testing.T) {
	t.Parallel()
	salt, err := base64.StdEncoding.DecodeString("W22ZaJ0SNY7soEsUEjb6gQ==")
	require.NoError(t, err)
	text, err := verifier("pencil", salt, 4096)
	require.NoError(t, err)
	assert.Equal(t, "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=", text)
}

func TestFits(t *testing.T) {
	t.Parallel()
	for _, password := range []string{"secret", "it's", "pass wörd", "\u00a0", "日本", "with\nnewline"} {
		text, err := newVerifier(password)
		require.NoError(t, err)
		assert.True(t, fits(text, password), password)
		assert.False(t, fits(text, password+"x"))
	}
	for _, present := range []string{
		"", "md5abc", "SCRAM-SHA-256$", "SCRAM-SHA-256$4096", "SCRAM-SHA-256$x:c2FsdA==$a:b", "SCRAM-SHA-256$4096:!$a:b",
		"SCRAM-SHA-256$0:c2FsdA==$a:b", "SCRAM-SHA-256$99999999999:c2FsdA==$a:b", "SCRAM-SHA-256$4096:c2FsdA==$a:b",
	} {
		assert.False(t, fits(present, "secret"), present)
	}
}

func TestLiteral(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "'it''s'", literal("it's\x00"))
	assert.Equal(t, `"a""b"`, identifier(`a"b`))
}
