package controllers_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/testing/apiserver"
	"github.com/pgsteward/pgsteward/internal/testing/expect"
)

// simple is the resource that the README begins with.
const simple = `
	apiVersion: pgsteward.io/v1
	kind: PostgresCluster
	metadata: {name: prod-db}
	spec: {replicas: 3, version: "16"}
`

// written is a PostgresCluster as a user wrote it.
func written(t *testing.T, namespace, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(expect.Dedent(text)), &u.Object))
	u.SetNamespace(namespace)
	return u
}

// ofSpec is a PostgresCluster of that spec.
func ofSpec(t *testing.T, namespace, spec string) *unstructured.Unstructured {
	t.Helper()
	u := written(t, namespace, simple)
	var fields map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(spec), &fields))
	u.Object["spec"] = fields
	return u
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	c := apiserver.Client(t)
	const availability = `availability: {leaseDuration: 8s, renewDeadline: 5s, renewInterval: 2s, failsafe: true, maximumLag: 16Mi, nodeLostAfter: 5m, synchronous: {mode: none, number: 1}}`
	const upgrade = `upgrade: {method: Automatic, switchover: Automatic, rollbackWindow: 1h, maxWritePause: 5s}`
	for spec, want := range map[string]string{
		`{replicas: 3, version: "16"}`:             `{replicas: 3, version: "16", storage: {size: 1Gi}, deletion: {volumes: Retain, backups: Retain}, AVAILABILITY, UPGRADE}`,
		`{version: "18"}`:                          `{replicas: 3, version: "18", storage: {size: 1Gi}, deletion: {volumes: Retain, backups: Retain}, AVAILABILITY, UPGRADE}`,
		`{version: "15", bootstrap: {initdb: {}}}`: `{replicas: 3, version: "15", storage: {size: 1Gi}, deletion: {volumes: Retain, backups: Retain}, AVAILABILITY, UPGRADE, bootstrap: {initdb: {database: app, owner: app}}}`,
		`{version: "17", storage: {storageClassName: fast}, deletion: {volumes: Delete}}`: `{replicas: 3, version: "17", storage: {size: 1Gi, storageClassName: fast}, deletion: {volumes: Delete, backups: Retain}, AVAILABILITY, UPGRADE}`,
	} {
		u := ofSpec(t, apiserver.Namespace(t, c), spec)
		require.NoError(t, c.Create(t.Context(), u))
		expect.YAML(t, strings.NewReplacer("AVAILABILITY", availability, "UPGRADE", upgrade).Replace(want), u.Object["spec"])
	}
}

// TestRefused: bad input is refused with a message that names the field, the value where it is short, and what would be right.
func TestRefused(t *testing.T) {
	t.Parallel()
	c := apiserver.Client(t)
	namespace := apiserver.Namespace(t, c)
	long := "a" + strings.Repeat("b", 69)
	for name, test := range map[string]struct {
		spec string
		want []string
	}{
		"no instances":                     {`{replicas: 0, version: "16"}`, []string{"spec.replicas", "0", "greater than or equal to 1"}},
		"fewer than none":                  {`{replicas: -1, version: "16"}`, []string{"spec.replicas", "-1", "greater than or equal to 1"}},
		"too many instances":               {`{replicas: 10, version: "16"}`, []string{"spec.replicas", "10", "less than or equal to 9"}},
		"half an instance":                 {`{replicas: 1.5, version: "16"}`, []string{"spec.replicas", "integer"}},
		"no version":                       {`{replicas: 3}`, []string{"spec.version", "Required"}},
		"no such version":                  {`{version: invalid}`, []string{"spec.version", `"invalid"`, `"15", "16", "17", "18"`}},
		"an old version":                   {`{version: "14"}`, []string{"spec.version", `"14"`, `"15", "16", "17", "18"`}},
		"a minor version":                  {`{version: "16.4"}`, []string{"spec.version", `"16.4"`, `"15", "16", "17", "18"`}},
		"a number for a version":           {`{version: 16}`, []string{"spec.version", "string"}},
		"storage without a unit":           {`{version: "16", storage: {size: "10"}}`, []string{"spec.storage.size", `"10"`, "at least 128Mi, such as 10Gi"}},
		"storage as a small number":        {`{version: "16", storage: {size: 10}}`, []string{"spec.storage.size", "10", "at least 128Mi, such as 10Gi"}},
		"negative storage":                 {`{version: "16", storage: {size: "-1Gi"}}`, []string{"spec.storage.size", `"-1Gi"`, "at least 128Mi, such as 10Gi"}},
		"no storage":                       {`{version: "16", storage: {size: "0"}}`, []string{"spec.storage.size", `"0"`, "at least 128Mi, such as 10Gi"}},
		"storage that is no quantity":      {`{version: "16", storage: {size: big}}`, []string{"spec.storage.size"}},
		"too little storage":               {`{version: "16", storage: {size: 127Mi}}`, []string{"spec.storage.size", `"127Mi"`, "at least 128Mi, such as 10Gi"}},
		"no storage class":                 {`{version: "16", storage: {storageClassName: ""}}`, []string{"spec.storage.storageClassName", "at least 1 char"}},
		"a parameter of ours":              {`{version: "16", postgresql: {parameters: {port: "5433"}}}`, []string{"spec.postgresql.parameters", "port: pgsteward sets this itself", "remove it"}},
		"a parameter of TLS":               {`{version: "16", postgresql: {parameters: {ssl_ca_file: x}}}`, []string{"spec.postgresql.parameters", "ssl_ca_file: pgsteward sets this itself", "remove it"}},
		"a parameter of replication":       {`{version: "16", postgresql: {parameters: {primary_conninfo: x}}}`, []string{"spec.postgresql.parameters", "primary_conninfo: pgsteward sets this itself", "remove it"}},
		"a parameter in capitals":          {`{version: "16", postgresql: {parameters: {Work_Mem: 1MB}}}`, []string{"spec.postgresql.parameters", "Work_Mem: a name has lower-case letters"}},
		"a parameter of two lines":         {`{version: "16", postgresql: {parameters: {work_mem: "1MB\nport = 1"}}}`, []string{"spec.postgresql.parameters", "work_mem"}},
		"a parameter that is a number":     {`{version: "16", postgresql: {parameters: {max_connections: 100}}}`, []string{"spec.postgresql.parameters.max_connections", "string"}},
		"two lines of pg_hba in one":       {`{version: "16", postgresql: {pgHBA: ["host all all all trust\nhost all all all trust"]}}`, []string{"spec.postgresql.pgHBA[0]", "must be one line"}},
		"a comment in pg_hba":              {`{version: "16", postgresql: {pgHBA: ["# comment"]}}`, []string{"spec.postgresql.pgHBA[0]", "# comment", "must be one line that begins with local, host"}},
		"a database that exists":           {`{version: "16", bootstrap: {initdb: {database: postgres}}}`, []string{"spec.bootstrap.initdb.database", "choose another name"}},
		"a template's name":                {`{version: "16", bootstrap: {initdb: {database: template1}}}`, []string{"spec.bootstrap.initdb.database", "choose another name"}},
		"a database's name with a quote":   {`{version: "16", bootstrap: {initdb: {database: "a'b"}}}`, []string{"spec.bootstrap.initdb.database", "a'b"}},
		"a reserved owner":                 {`{version: "16", bootstrap: {initdb: {owner: postgres}}}`, []string{"spec.bootstrap.initdb.owner", "reserved", "choose another one"}},
		"an owner of PostgreSQL's":         {`{version: "16", bootstrap: {initdb: {owner: pg_monitor}}}`, []string{"spec.bootstrap.initdb.owner", "reserved", "choose another one"}},
		"an unknown deletion policy":       {`{version: "16", deletion: {volumes: Keep}}`, []string{"spec.deletion.volumes", `"Keep"`, `"Retain", "Delete"`}},
		"two parameters of ours":           {`{version: "16", postgresql: {parameters: {port: "1", work_mem: 1MB, wal_level: minimal}}}`, []string{"spec.postgresql.parameters", ": pgsteward sets this itself", "remove it"}},
		"as many synchronous as there are": {`{replicas: 2, version: "16", availability: {synchronous: {mode: required, number: 2}}}`, []string{"spec.availability.synchronous.number", "must be less than replicas"}},
		"a window of ten minutes":          {`{version: "16", upgrade: {switchoverWindow: {schedule: "0 2 * * 6", duration: 10m}}}`, []string{"spec.upgrade.switchoverWindow.duration", "must be from 1h to 168h, not 10m"}},
		"a window of words":                {`{version: "16", upgrade: {switchoverWindow: {schedule: "on Saturdays"}}}`, []string{"spec.upgrade.switchoverWindow.schedule", "must have five fields", `not "on Saturdays"`}},
		"a window without a schedule":      {`{version: "16", upgrade: {switchoverWindow: {duration: 2h}}}`, []string{"spec.upgrade.switchoverWindow.schedule", "Required"}},
		"a short lease":                    {`{version: "16", availability: {leaseDuration: 4s}}`, []string{"spec.availability.leaseDuration", "must be from 5s to 60s, not 4s"}},
		"a long lease":                     {`{version: "16", availability: {leaseDuration: 2m}}`, []string{"spec.availability.leaseDuration", "must be from 5s to 60s, not 2m"}},
		"a lease of half a second more":    {`{version: "16", availability: {leaseDuration: 8.5s}}`, []string{"spec.availability.leaseDuration", "8.5s"}},
		"a deadline as late as the lease":  {`{version: "16", availability: {renewDeadline: 8s}}`, []string{"spec.availability.renewDeadline", "more than 1s shorter than leaseDuration (8s)", "lower it from 8s"}},
		"a deadline 1s before the lease":   {`{version: "16", availability: {renewDeadline: 7s}}`, []string{"spec.availability.renewDeadline", "lower it from 7s"}},
		"a renewal that comes too late":    {`{version: "16", availability: {renewInterval: 3s}}`, []string{"spec.availability.renewInterval", "at most half of renewDeadline (5s)", "lower it from 3s"}},
		"a negative lag":                   {`{version: "16", availability: {maximumLag: "-1"}}`, []string{"spec.availability.maximumLag", "at least 0, such as 16Mi"}},
		"a node that is lost at once":      {`{version: "16", availability: {nodeLostAfter: 10s}}`, []string{"spec.availability.nodeLostAfter", "at least 1m, not 10s"}},
		"an unknown mode":                  {`{version: "16", availability: {synchronous: {mode: quorum}}}`, []string{"spec.availability.synchronous.mode", `"none", "preferred", "required"`}},
		"an empty image":                   {`{version: "16", image: ""}`, []string{"spec.image", "at least 1 char"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := c.Create(t.Context(), ofSpec(t, namespace, test.spec))
			require.Error(t, err)
			require.True(t, apierrors.IsInvalid(err), err)
			for _, words := range test.want {
				assert.Contains(t, err.Error(), words)
			}
			t.Log(err)
		})
	}

	for name, want := range map[string][]string{
		long:      {"metadata.name", "at most 50 characters", "choose a shorter name"},
		"9lives":  {"metadata.name", "begin with a lower-case letter"},
		"prod.db": {"metadata.name", "only lower-case letters, digits and '-'"},
	} {
		t.Run("name "+name, func(t *testing.T) {
			t.Parallel()
			u := written(t, namespace, simple)
			u.SetName(name)
			err := c.Create(t.Context(), u)
			require.Error(t, err)
			require.True(t, apierrors.IsInvalid(err), err)
			for _, words := range want {
				assert.Contains(t, err.Error(), words)
			}
			t.Log(err)
		})
	}
}

// TestAccepted: what is at the edge, and still good.
func TestAccepted(t *testing.T) {
	t.Parallel()
	c := apiserver.Client(t)
	for name, spec := range map[string]string{
		"one instance":          `{replicas: 1, version: "16"}`,
		"nine instances":        `{replicas: 9, version: "16"}`,
		"little storage":        `{version: "16", storage: {size: 128Mi}}`,
		"storage as a number":   `{version: "16", storage: {size: 1073741824}}`,
		"storage with a dot":    `{version: "16", storage: {size: "1.5Gi"}}`,
		"an extension's":        `{version: "16", postgresql: {parameters: {auto_explain.log_min_duration: "250ms", work_mem: ""}}}`,
		"every kind of pg_hba":  `{version: "16", postgresql: {pgHBA: ["local all all peer", "host\tall all 10.0.0.0/8 md5", "hostssl all all all cert", "hostnossl all all all reject"]}}`,
		"a database and owner":  `{version: "16", bootstrap: {initdb: {database: my-shop_1, owner: clerk}}}`,
		"an image with a port":  `{version: "16", image: "registry.example:5000/pg@sha256:0123"}`,
		"limits of all sorts":   `{version: "16", resources: {limits: {memory: 1Gi, cpu: 500m}, requests: {cpu: 100m}}}`,
		"suspended":             `{version: "16", suspend: true}`,
		"secrets for the image": `{version: "16", imagePullSecrets: [{name: a}, {name: b}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, c.Create(t.Context(), ofSpec(t, apiserver.Namespace(t, c), spec)))
		})
	}
	t.Run("a name of fifty characters", func(t *testing.T) {
		t.Parallel()
		u := written(t, apiserver.Namespace(t, c), simple)
		u.SetName("a" + strings.Repeat("b", 49))
		require.NoError(t, c.Create(t.Context(), u))
	})
}

// TestChanges: what may be changed of a cluster that exists, and what not.
func TestChanges(t *testing.T) {
	t.Parallel()
	c := apiserver.Client(t)
	for name, test := range map[string]struct {
		before, after string
		want          []string // empty: accepted
	}{
		"storage grows":            {`{version: "16", storage: {size: 1Gi}}`, `{version: "16", storage: {size: 2Gi}}`, nil},
		"storage in other words":   {`{version: "16", storage: {size: 1Gi}}`, `{version: "16", storage: {size: 1024Mi}}`, nil},
		"storage shrinks":          {`{version: "16", storage: {size: 10Gi}}`, `{version: "16", storage: {size: 9Gi}}`, []string{"spec.storage.size", "cannot shrink", "cannot shrink from 10Gi", "keep the size or choose a larger one"}},
		"storage shrinks by unit":  {`{version: "16", storage: {size: 2Gi}}`, `{version: "16", storage: {size: 2000Mi}}`, []string{"spec.storage.size", "cannot shrink"}},
		"storage back to default":  {`{version: "16", storage: {size: 10Gi}}`, `{version: "16"}`, []string{"spec.storage.size", "cannot shrink"}},
		"storage as a number":      {`{version: "16", storage: {size: 2Gi}}`, `{version: "16", storage: {size: 1073741824}}`, []string{"spec.storage.size", "cannot shrink"}},
		"version up":               {`{version: "16"}`, `{version: "17"}`, nil},
		"version up by two":        {`{version: "15"}`, `{version: "17"}`, nil},
		"version down":             {`{version: "16"}`, `{version: "15"}`, []string{"spec.version", "cannot go down from 16 to 15", "restore a backup into a new cluster"}},
		"version that is none":     {`{version: "16"}`, `{version: "19"}`, []string{"spec.version", `"19"`, `"15", "16", "17", "18"`}},
		"scaled":                   {`{replicas: 3, version: "16"}`, `{replicas: 1, version: "16"}`, nil},
		"database":                 {`{version: "16", bootstrap: {initdb: {database: a}}}`, `{version: "16", bootstrap: {initdb: {database: b}}}`, []string{"spec.bootstrap.initdb", "cannot be changed"}},
		"bootstrap added":          {`{version: "16"}`, `{version: "16", bootstrap: {initdb: {database: b}}}`, []string{"spec.bootstrap", "cannot be added or removed"}},
		"bootstrap emptied":        {`{version: "16", bootstrap: {initdb: {database: a}}}`, `{version: "16", bootstrap: {}}`, []string{"spec.bootstrap.initdb", "cannot be added or removed"}},
		"bootstrap removed":        {`{version: "16", bootstrap: {initdb: {database: a}}}`, `{version: "16"}`, []string{"spec.bootstrap", "cannot be added or removed"}},
		"image, class, parameters": {`{version: "16"}`, `{version: "16", image: x, storage: {storageClassName: fast}, postgresql: {parameters: {work_mem: 1MB}}}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := apiserver.Namespace(t, c)
			u := ofSpec(t, namespace, test.before)
			require.NoError(t, c.Create(t.Context(), u))
			u.Object["spec"] = ofSpec(t, namespace, test.after).Object["spec"]
			err := c.Update(t.Context(), u)
			if len(test.want) == 0 {
				require.NoError(t, err)
				return
			}
			require.Error(t, err)
			for _, words := range test.want {
				assert.Contains(t, err.Error(), words)
			}
			t.Log(err)
		})
	}
}

// TestScale: `kubectl scale` and autoscalers work on the scale subresource, within the same bounds.
func TestScale(t *testing.T) {
	t.Parallel()
	c := apiserver.Client(t)
	u := written(t, apiserver.Namespace(t, c), simple)
	require.NoError(t, c.Create(t.Context(), u))
	cluster := &v1.PostgresCluster{}
	key := client.ObjectKeyFromObject(u)
	require.NoError(t, c.Get(t.Context(), key, cluster))
	cluster.Status = v1.PostgresClusterStatus{Replicas: 3, Selector: "pgsteward.io/cluster=prod-db"}
	require.NoError(t, c.Status().Update(t.Context(), cluster))

	scale := &autoscalingv1.Scale{}
	require.NoError(t, c.SubResource("scale").Get(t.Context(), cluster, scale))
	assert.Equal(t, autoscalingv1.ScaleSpec{Replicas: 3}, scale.Spec)
	assert.Equal(t, autoscalingv1.ScaleStatus{Replicas: 3, Selector: "pgsteward.io/cluster=prod-db"}, scale.Status)

	scale.Spec.Replicas = 5
	require.NoError(t, c.SubResource("scale").Update(t.Context(), cluster, client.WithSubResourceBody(scale)))
	require.NoError(t, c.Get(t.Context(), key, cluster))
	assert.EqualValues(t, 5, *cluster.Spec.Replicas)

	scale.Spec.Replicas = 10
	scale.ResourceVersion = ""
	assert.ErrorContains(t, c.SubResource("scale").Update(t.Context(), cluster, client.WithSubResourceBody(scale)), "spec.replicas")
}
