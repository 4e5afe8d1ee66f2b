package apply

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// TestCovers: what is desired must be there; what others added does not matter.
func TestCovers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		live, desired string
		want          bool
	}{
		"the same":                   {`{a: 1, b: {c: x}}`, `{a: 1, b: {c: x}}`, true},
		"more than desired":          {`{a: 1, b: {c: x, d: y}, status: {}}`, `{b: {c: x}}`, true},
		"less than desired":          {`{b: {}}`, `{b: {c: x}}`, false},
		"another value":              {`{a: 2}`, `{a: 1}`, false},
		"another type":               {`{a: "1"}`, `{a: 1}`, false},
		"a scalar for an object":     {`{a: 1}`, `{a: {b: 1}}`, false},
		"an object for a scalar":     {`{a: {b: 1}}`, `{a: 1}`, false},
		"false is not missing":       {`{}`, `{a: false}`, false},
		"null is missing":            {`{}`, `{a: null}`, true},
		"null is not something":      {`{a: 1}`, `{a: null}`, false},
		"an empty object left out":   {`{}`, `{a: {}}`, true},
		"an empty list left out":     {`{}`, `{a: []}`, true},
		"an empty object, inside":    {`{spec: {}}`, `{spec: {affinity: {}}}`, true},
		"nothing of a list":          {`{a: [1]}`, `{a: []}`, true},
		"named: the same":            {`{l: [{name: a, v: 1}]}`, `{l: [{name: a, v: 1}]}`, true},
		"named: others' between":     {`{l: [{name: x}, {name: a, v: 1, w: 2}]}`, `{l: [{name: a, v: 1}]}`, true},
		"named: another order":       {`{l: [{name: b}, {name: a}]}`, `{l: [{name: a}, {name: b}]}`, true},
		"named: one gone":            {`{l: [{name: a}]}`, `{l: [{name: a}, {name: b}]}`, false},
		"named: one changed":         {`{l: [{name: a, v: 2}]}`, `{l: [{name: a, v: 1}]}`, false},
		"named: all gone":            {`{}`, `{l: [{name: a}]}`, false},
		"mounts: by path, not name":  {`{l: [{name: p, mountPath: /b}, {name: p, mountPath: /a}]}`, `{l: [{name: p, mountPath: /a}, {name: p, mountPath: /b}]}`, true},
		"mounts: one gone":           {`{l: [{name: p, mountPath: /b}]}`, `{l: [{name: p, mountPath: /a}, {name: p, mountPath: /b}]}`, false},
		"owners: by uid":             {`{l: [{uid: u2, name: n}, {uid: u1, name: n}]}`, `{l: [{uid: u1, name: n}]}`, true},
		"owners: of an earlier life": {`{l: [{uid: u0, name: n}]}`, `{l: [{uid: u1, name: n}]}`, false},
		"scalars: the same":          {`{l: [a, b]}`, `{l: [a, b]}`, true},
		"scalars: one more":          {`{l: [a, b, c]}`, `{l: [a, b]}`, false},
		"scalars: another order":     {`{l: [b, a]}`, `{l: [a, b]}`, false},
		"unnamed: the same":          {`{l: [{secret: {name: s, x: 1}}]}`, `{l: [{secret: {name: s}}]}`, true},
		"unnamed: one more":          {`{l: [{secret: {name: s}}, {secret: {name: t}}]}`, `{l: [{secret: {name: s}}]}`, false},
		"a list for an object":       {`{l: [1]}`, `{l: {a: 1}}`, false},
		"an object for a list":       {`{l: {a: 1}}`, `{l: [1]}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.want, covers(object(t, test.live), object(t, test.desired)))
		})
	}
}

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var o map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &o))
	return o
}
