package role

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// TestKubernetes_Label looks at what is sent to the API server.
func TestKubernetes_Label(t *testing.T) {
	t.Parallel()
	var path, query, kind string
	var body map[string]any
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, query, kind = r.Method+" "+r.URL.Path, r.URL.RawQuery, r.Header.Get("Content-Type")
		content, _ := io.ReadAll(r.Body)
		body = nil
		_ = json.Unmarshal(content, &body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"Pod"}`))
	}))
	t.Cleanup(server.Close)
	labeler, err := NewKubernetes(&rest.Config{Host: server.URL}, "demo")
	require.NoError(t, err)

	require.NoError(t, labeler.Label(t.Context(), "db-1-0", "uid-1", "primary"))
	assert.Equal(t, "PATCH /api/v1/namespaces/demo/pods/db-1-0", path)
	assert.Contains(t, query, "fieldManager=pgsteward-agent")
	assert.Contains(t, query, "force=true")
	assert.Equal(t, "application/apply-patch+yaml", kind)
	assert.Equal(t, map[string]any{
		"name": "db-1-0", "uid": "uid-1", "labels": map[string]any{"pgsteward.io/role": "primary"},
	}, body["metadata"])

	require.NoError(t, labeler.Label(t.Context(), "db-2-0", "", "standby"))
	assert.NotContains(t, body["metadata"], "uid")
	status = http.StatusForbidden
	require.ErrorContains(t, labeler.Label(t.Context(), "db-2-0", "", "standby"), "db-2-0")
}
