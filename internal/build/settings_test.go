package build

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
)

func TestSettings(t *testing.T) {
	t.Parallel()
	settings := Settings{
		PostgresImages:   map[string]string{"15": "fifteen", "16": "sixteen", "16.12": "twelve"},
		PostgresVersions: map[string]string{"16": "16.14"},
	}
	for what, c := range map[string]struct{ version, asked, image, want, note string }{
		"a major":                       {"16", "", "", "sixteen", ""},
		"the default's version":         {"16", "16.14", "", "sixteen", ""},
		"another version that is known": {"16", "16.12", "", "twelve", ""},
		"a version that is not":         {"16", "16.2", "", "sixteen", "there is no image of PostgreSQL 16.2, which was asked for, so the instances run 16.14"},
		"a default of unknown version":  {"15", "15.2", "", "fifteen", "there is no image of PostgreSQL 15.2, which was asked for, so the instances run the default image of 15"},
		"a version of another major":    {"16", "15.2", "", "sixteen", ""},
		"an image of its own":           {"16", "16.12", "mine", "mine", ""},
		"a major without an image":      {"17", "", "", "", ""},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			cluster := &v1.PostgresCluster{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1.AnnotationPostgresVersion: c.asked}},
				Spec:       v1.PostgresClusterSpec{Version: c.version, Image: c.image},
			}
			require.Equal(t, c.want, settings.Image(cluster))
			require.Equal(t, c.image == "", len(settings.Versions(cluster)) > 0, "of an image of its own nothing is known")
			notes := settings.Notes(cluster)
			if c.note == "" {
				require.Empty(t, notes)
			} else {
				require.Equal(t, []string{c.note}, notes)
			}
		})
	}
}
