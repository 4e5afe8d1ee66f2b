//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRejected: what can be seen to be wrong from the object alone is refused by the API server, in words that name the field.
func TestRejected(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	seventy := strings.Repeat("n", 70)
	cases := map[string]struct{ name, spec, words string }{
		"replicas 0":               {"db", `{version: "16", replicas: 0}`, "spec.replicas"},
		"replicas -1":              {"db", `{version: "16", replicas: -1}`, "spec.replicas"},
		"replicas 10":              {"db", `{version: "16", replicas: 10}`, "spec.replicas"},
		"version invalid":          {"db", `{version: "invalid"}`, "spec.version"},
		"version 14":               {"db", `{version: "14"}`, "spec.version"},
		"version a number":         {"db", `{version: 16}`, "spec.version"},
		"no version":               {"db", `{replicas: 3}`, "spec.version"},
		"storage 10":               {"db", `{version: "16", storage: {size: "10"}}`, "spec.storage.size"},
		"storage -1Gi":             {"db", `{version: "16", storage: {size: "-1Gi"}}`, "spec.storage.size"},
		"storage 0":                {"db", `{version: "16", storage: {size: "0"}}`, "spec.storage.size"},
		"storage a word":           {"db", `{version: "16", storage: {size: "big"}}`, "spec.storage.size"},
		"a name of 70":             {seventy, `{version: "16"}`, "metadata.name"},
		"a name with a digit":      {"1db", `{version: "16"}`, "metadata.name"},
		"a name with a dot":        {"my.db", `{version: "16"}`, "metadata.name"},
		"a parameter of ours":      {"db", `{version: "16", postgresql: {parameters: {wal_level: minimal}}}`, "spec.postgresql.parameters"},
		"a parameter with newline": {"db", `{version: "16", postgresql: {parameters: {work_mem: "1MB\nssl=off"}}}`, "spec.postgresql.parameters"},
		"a pg_hba line of two":     {"db", `{version: "16", postgresql: {pgHBA: ["host all all all trust\nlocal all all trust"]}}`, "spec.postgresql.pgHBA"},
		"a reserved database":      {"db", `{version: "16", bootstrap: {initdb: {database: template1}}}`, "spec.bootstrap.initdb.database"},
		"a reserved role":          {"db", `{version: "16", bootstrap: {initdb: {owner: postgres}}}`, "spec.bootstrap.initdb.owner"},
		"a policy there is not":    {"db", `{version: "16", deletion: {volumes: Maybe}}`, "spec.deletion.volumes"},
		"a field there is not":     {"db", `{version: "16", replica: 3}`, `unknown field "spec.replica"`},
	}
	for what, bad := range cases {
		t.Run(what, func(t *testing.T) {
			_, err := kubectl(t.Context(), manifest(bad.name, bad.spec), "-n", namespace, "create", "--dry-run=server", "-f", "-")
			require.Error(t, err)
			require.ErrorContains(t, err, bad.words)
			t.Log(err)
		})
	}
	t.Run("a good one is not", func(t *testing.T) {
		_, err := kubectl(t.Context(), manifest("db", `{version: "16"}`), "-n", namespace, "create", "--dry-run=server", "-f", "-")
		require.NoError(t, err)
	})
}

// manifest is a PostgresCluster with that spec.
func manifest(name, spec string) string {
	return "apiVersion: pgsteward.io/v1\nkind: PostgresCluster\nmetadata: {name: " + name + "}\nspec: " + spec + "\n"
}
