package admission

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pgsteward/pgsteward/internal/naming"
)

// TestSchema: what the object alone shows to be wrong is refused by the API server, in words that name field, value and remedy.
func TestSchema(t *testing.T) {
	t.Parallel()
	s := needServer(t)
	s.class(t, "schema", true)
	namespace := s.namespace(t, "schema")
	fifty := strings.Repeat("n", 50)
	for what, bad := range map[string]struct{ version, name, spec, words string }{
		"a good v1":                  {"v1", fifty, `{version: "16", storage: {storageClassName: schema}}`, ""},
		"a good v1alpha1":            {"v1alpha1", "db", `{replicas: 1, postgresVersion: "16", storage: {size: 1Gi, storageClassName: schema}}`, ""},
		"replicas 0":                 {"v1", "db", `{version: "16", replicas: 0}`, "spec.replicas"},
		"replicas 10":                {"v1", "db", `{version: "16", replicas: 10}`, "spec.replicas"},
		"version 14":                 {"v1", "db", `{version: "14"}`, `spec.version: Unsupported value: "14"`},
		"a long name":                {"v1", fifty + "n", `{version: "16"}`, "metadata.name: must have at most 50 characters"},
		"a name with a digit":        {"v1", "1db", `{version: "16"}`, "metadata.name: must begin with a lower-case letter"},
		"a small volume":             {"v1", "db", `{version: "16", storage: {size: 64Mi}}`, "spec.storage.size: Invalid value: \"64Mi\": must be a quantity of at least 128Mi"},
		"a small volume in bytes":    {"v1", "db", `{version: "16", storage: {size: 10}}`, "must be a quantity of at least 128Mi"},
		"a word for a size":          {"v1", "db", `{version: "16", storage: {size: big}}`, "spec.storage.size"},
		"an image with a space":      {"v1", "db", `{version: "16", image: "postgres: 16"}`, `spec.image: Invalid value: "postgres: 16": is not the name of an image`},
		"memory over its limit":      {"v1", "db", `{version: "16", resources: {requests: {memory: 2Gi}, limits: {memory: 1Gi}}}`, "the request of 2Gi memory exceeds the limit of 1Gi"},
		"CPU over its limit":         {"v1", "db", `{version: "16", resources: {requests: {cpu: 2}, limits: {cpu: 500m}}}`, "the request of 2 CPU exceeds the limit of 500m"},
		"a verification":             {"v1", "db", `{version: "16", storage: {storageClassName: schema}, backup: {verify: {schedule: "0 4 * * 0", storage: {size: 2Gi}, resources: {requests: {memory: 2Gi}}}}}`, ""},
		"no time to verify":          {"v1", "db", `{version: "16", backup: {verify: {schedule: " "}}}`, "spec.backup.verify.schedule: Invalid value: \" \": must not be empty"},
		"four fields to verify":      {"v1", "db", `{version: "16", backup: {verify: {schedule: "0 4 * *"}}}`, "spec.backup.verify.schedule: Invalid value: \"0 4 * *\": must have five fields"},
		"no schedule to verify":      {"v1", "db", `{version: "16", backup: {verify: {}}}`, "spec.backup.verify.schedule: Required value"},
		"too much for its limit":     {"v1", "db", `{version: "16", backup: {verify: {schedule: "@weekly", resources: {requests: {memory: 2Gi}, limits: {memory: 1Gi}}}}}`, "the request of 2Gi memory exceeds the limit of 1Gi"},
		"no room to verify":          {"v1", "db", `{version: "16", backup: {verify: {schedule: "@weekly", storage: {size: 1Mi}}}}`, "spec.backup.verify.storage.size"},
		"claims":                     {"v1", "db", `{version: "16", resources: {claims: [{name: x}]}}`, "claims are not supported"},
		"a parameter's name":         {"v1", "db", `{version: "16", postgresql: {parameters: {Work-Mem: "1"}}}`, "Work-Mem: a name has lower-case letters"},
		"parameters of ours":         {"v1", "db", `{version: "16", postgresql: {parameters: {port: "1", ssl: "off", work_mem: 1MB}}}`, ": pgsteward sets this itself"},
		"two lines in one of pg_hba": {"v1", "db", `{version: "16", postgresql: {pgHBA: ["host a a all trust\nlocal a a trust"]}}`, "spec.postgresql.pgHBA"},
		"a reserved database":        {"v1", "db", `{version: "16", bootstrap: {initdb: {database: postgres}}}`, "spec.bootstrap.initdb.database"},
		"a reserved role":            {"v1", "db", `{version: "16", bootstrap: {initdb: {owner: pg_x}}}`, `spec.bootstrap.initdb.owner: Invalid value: "pg_x"`},
		"an unknown field":           {"v1", "db", `{version: "16", replica: 1}`, `unknown field "spec.replica"`},
		"old: 13":                    {"v1alpha1", "db", `{replicas: 1, postgresVersion: "13.4", storage: {size: 1Gi, storageClassName: schema}}`, "PostgreSQL 13.4 is not supported any more; use a version of 15 to 18"},
		"old: 14":                    {"v1alpha1", "db", `{replicas: 1, postgresVersion: "14.11", storage: {size: 1Gi, storageClassName: schema}}`, "PostgreSQL 14.11 is not supported any more"},
		"old: 19":                    {"v1alpha1", "db", `{replicas: 1, postgresVersion: "19.0", storage: {size: 1Gi, storageClassName: schema}}`, "spec.postgresVersion"},
		"old: a word":                {"v1alpha1", "db", `{replicas: 1, postgresVersion: latest, storage: {size: 1Gi, storageClassName: schema}}`, "spec.postgresVersion"},
		"old: a number":              {"v1alpha1", "db", `{replicas: 1, postgresVersion: 15.2, storage: {size: 1Gi, storageClassName: schema}}`, "spec.postgresVersion"},
		"old: replicas 0":            {"v1alpha1", "db", `{replicas: 0, postgresVersion: "15.2", storage: {size: 1Gi, storageClassName: schema}}`, "spec.replicas"},
		"old: no replicas":           {"v1alpha1", "db", `{postgresVersion: "15.2", storage: {size: 1Gi, storageClassName: schema}}`, "spec.replicas: Required"},
		"old: no version":            {"v1alpha1", "db", `{replicas: 1, storage: {size: 1Gi, storageClassName: schema}}`, "spec.postgresVersion: Required"},
		"old: no storage":            {"v1alpha1", "db", `{replicas: 1, postgresVersion: "15.2"}`, "spec.storage: Required"},
		"old: no class":              {"v1alpha1", "db", `{replicas: 1, postgresVersion: "15.2", storage: {size: 1Gi}}`, "spec.storage.storageClassName: Required"},
		"old: a field of v1":         {"v1alpha1", "db", `{replicas: 1, postgresVersion: "15.2", storage: {size: 1Gi, storageClassName: schema}, suspend: true}`, `unknown field "spec.suspend"`},
		"old: a small volume":        {"v1alpha1", "db", `{replicas: 1, postgresVersion: "15.2", storage: {size: 1Mi, storageClassName: schema}}`, "must be a quantity of at least 128Mi"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			err := s.kube.Create(t.Context(), cluster(t, bad.version, namespace, bad.name, bad.spec), client.DryRunAll, client.FieldValidation("Strict"))
			if bad.words == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, bad.words)
			t.Log(err)
		})
	}
}

// TestRepositories: of the kinds of repositories there is one, with names and a URL that can be right, and with a key or the word that none
// is needed.
func TestRepositories(t *testing.T) {
	t.Parallel()
	s := needServer(t)
	s.class(t, "repositories", true)
	namespace := s.namespace(t, "repositories")
	const secret = "keySecret: {name: access}"
	for what, bad := range map[string]struct{ repository, words string }{
		"a volume":                     {`volume: {size: 1Gi}`, ""},
		"S3":                           {`s3: {endpoint: "https://s3.example.com", bucket: backups, credentialsSecret: access}`, ""},
		"GCS":                          {`gcs: {bucket: my_backups.example.com, prefix: a/b, ` + secret + `}`, ""},
		"GCS by the Pod's identity":    {`gcs: {bucket: backups, keyType: auto}`, ""},
		"Azure":                        {`azure: {account: shop, container: my-backups, ` + secret + `}`, ""},
		"Azure by signature":           {`azure: {account: shop, container: abc, keyType: sas, keySecret: {name: access, key: sas}}`, ""},
		"Azure by the node's identity": {`azure: {account: shop, container: backups, keyType: auto}`, ""},
		"two kinds":                    {`gcs: {bucket: backups, keyType: auto}, azure: {account: shop, container: backups, keyType: auto}`, "must have at most one of s3, gcs, azure and volume"},
		"a bucket and a volume":        {`gcs: {bucket: backups, keyType: auto}, volume: {}`, "must have at most one of s3, gcs, azure and volume"},
		"GCS: no key":                  {`gcs: {bucket: backups}`, "spec.backup.repository.gcs.keySecret: Invalid value: must name the Secret with the service account's key"},
		"GCS: a key too many":          {`gcs: {bucket: backups, keyType: auto, ` + secret + `}`, "unless keyType is auto, which needs none"},
		"GCS: a type of Azure's":       {`gcs: {bucket: backups, keyType: sas, ` + secret + `}`, `Unsupported value: "sas": supported values: "service", "auto"`},
		"GCS: a bucket":                {`gcs: {bucket: My_Bucket, ` + secret + `}`, "must be the name of a bucket: 3 to 222 lower-case letters, digits, -, _ and ., not My_Bucket"},
		"GCS: no TLS":                  {`gcs: {endpoint: "http://gcs.example.com", bucket: backups, ` + secret + `}`, "must be a URL such as https://minio.storage.svc:9000, with https:// and without a path, not http://gcs.example.com"},
		"GCS: a prefix":                {`gcs: {bucket: backups, prefix: /a, ` + secret + `}`, "spec.backup.repository.gcs.prefix"},
		"GCS: the name of a key":       {`gcs: {bucket: backups, keySecret: {name: access, key: a/b}}`, "spec.backup.repository.gcs.keySecret.key"},
		"Azure: no key":                {`azure: {account: shop, container: backups}`, "spec.backup.repository.azure.keySecret: Invalid value: must name the Secret with the account's key"},
		"Azure: a key too many":        {`azure: {account: shop, container: backups, keyType: auto, ` + secret + `}`, "unless keyType is auto, which needs none"},
		"Azure: an account":            {`azure: {account: my-shop, container: backups, ` + secret + `}`, "must be the name of a storage account: 3 to 24 lower-case letters and digits, not my-shop"},
		"Azure: a container":           {`azure: {account: shop, container: my--backups, ` + secret + `}`, "must be the name of a container: 3 to 63 lower-case letters, digits and single - between them, not my--backups"},
		"Azure: a short container":     {`azure: {account: shop, container: ab, ` + secret + `}`, "must be the name of a container"},
		"Azure: no scheme":             {`azure: {account: shop, container: backups, endpoint: blob.example.com, ` + secret + `}`, "must be a URL such as"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			spec := `{version: "16", storage: {storageClassName: repositories}, backup: {repository: {` + bad.repository + `}}}`
			err := s.kube.Create(t.Context(), cluster(t, "v1", namespace, "db", spec), client.DryRunAll, client.FieldValidation("Strict"))
			if bad.words == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, bad.words)
			t.Log(err)
		})
	}
}

// cluster is a PostgresCluster of that API version.
func cluster(t *testing.T, version, namespace, name, spec string) client.Object {
	t.Helper()
	return object(t, fmt.Sprintf("{apiVersion: pgsteward.io/%s, kind: PostgresCluster, metadata: {name: %s, namespace: %s}, spec: %s}", version, name, namespace, spec))
}

// TestTransitions: what may not change, or only one way.
func TestTransitions(t *testing.T) {
	t.Parallel()
	s := needServer(t)
	s.class(t, "transitions", true)
	namespace := s.namespace(t, "transitions")
	for what, c := range map[string]struct{ version, from, to, words string }{
		"a major up":              {"v1", `version: "16"`, `version: "17"`, ""},
		"a major down":            {"v1", `version: "16"`, `version: "15"`, "cannot go down from 16 to 15"},
		"a volume shrinks":        {"v1", `version: "16", storage: {size: 2Gi}`, `version: "16", storage: {size: 1Gi}`, "a volume cannot shrink from 2Gi"},
		"a volume grows":          {"v1", `version: "16", storage: {size: 2Gi}`, `version: "16", storage: {size: 3Gi}`, ""},
		"the database":            {"v1", `version: "16", bootstrap: {initdb: {database: a}}`, `version: "16", bootstrap: {initdb: {database: b}}`, "spec.bootstrap.initdb: Invalid value: "},
		"a bootstrap comes":       {"v1", `version: "16"`, `version: "16", bootstrap: {}`, "spec.bootstrap: Invalid value: "},
		"another bucket of GCS":   {"v1", `version: "16", backup: {repository: {gcs: {bucket: one, keyType: auto}}}`, `version: "16", backup: {repository: {gcs: {bucket: two, keyType: auto}}}`, "endpoint, bucket and prefix cannot be changed"},
		"a prefix of GCS comes":   {"v1", `version: "16", backup: {repository: {gcs: {bucket: one, keyType: auto}}}`, `version: "16", backup: {repository: {gcs: {bucket: one, prefix: a, keyType: auto}}}`, "endpoint, bucket and prefix cannot be changed"},
		"a key for GCS":           {"v1", `version: "16", backup: {repository: {gcs: {bucket: one, keyType: auto}}}`, `version: "16", backup: {repository: {gcs: {bucket: one, keySecret: {name: a}}}}`, ""},
		"another Azure account":   {"v1", `version: "16", backup: {repository: {azure: {account: one, container: one, keyType: auto}}}`, `version: "16", backup: {repository: {azure: {account: two, container: one, keyType: auto}}}`, "endpoint, account, container and prefix cannot be changed"},
		"a style for Azure":       {"v1", `version: "16", backup: {repository: {azure: {account: one, container: one, keyType: auto}}}`, `version: "16", backup: {repository: {azure: {account: one, container: one, pathStyle: true, keyType: auto}}}`, ""},
		"from a volume to GCS":    {"v1", `version: "16", backup: {}`, `version: "16", backup: {repository: {gcs: {bucket: one, keyType: auto}}}`, "cannot be changed to one of another kind (s3, gcs, azure or volume)"},
		"from GCS to Azure":       {"v1", `version: "16", backup: {repository: {gcs: {bucket: one, keyType: auto}}}`, `version: "16", backup: {repository: {azure: {account: one, container: one, keyType: auto}}}`, "cannot be changed to one of another kind"},
		"from Azure to a volume":  {"v1", `version: "16", backup: {repository: {azure: {account: one, container: one, keyType: auto}}}`, `version: "16", backup: {}`, "cannot be changed to one of another kind"},
		"an initdb comes":         {"v1", `version: "16", bootstrap: {}`, `version: "16", bootstrap: {initdb: {}}`, "spec.bootstrap.initdb: Invalid value: "},
		"old: the minor":          {"v1alpha1", `replicas: 1, postgresVersion: "16.1", storage: {size: 1Gi, storageClassName: transitions}`, `replicas: 1, postgresVersion: "16.2", storage: {size: 1Gi, storageClassName: transitions}`, ""},
		"old: a volume shrinks":   {"v1alpha1", `replicas: 1, postgresVersion: "16", storage: {size: 2Gi, storageClassName: transitions}`, `replicas: 1, postgresVersion: "16", storage: {size: 1Gi, storageClassName: transitions}`, "a volume cannot shrink from 2Gi"},
		"old: to another class":   {"v1alpha1", `replicas: 1, postgresVersion: "16", storage: {size: 2Gi, storageClassName: transitions}`, `replicas: 1, postgresVersion: "16", storage: {size: 2Gi, storageClassName: gone}`, `there is no StorageClass "gone"`},
		"old: to a default class": {"v1alpha1", `replicas: 1, postgresVersion: "16", storage: {size: 2Gi, storageClassName: transitions}`, `replicas: 1, postgresVersion: "16", storage: {size: 2Gi, storageClassName: ""}`, "there is no default StorageClass"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			name := "c" + strings.Map(func(r rune) rune {
				if r >= 'a' && r <= 'z' {
					return r
				}
				return '-'
			}, what)
			name = strings.Trim(strings.ReplaceAll(name, "--", "-"), "-")
			made := object(t, fmt.Sprintf("{apiVersion: pgsteward.io/%s, kind: PostgresCluster, metadata: {name: %s, namespace: %s, annotations: {%s: %s}}, spec: {%s}}",
				c.version, name, namespace, naming.AnnotationValidation, naming.ValidationWarn, c.from))
			require.NoError(t, s.kube.Create(t.Context(), made))
			changed := object(t, fmt.Sprintf("{apiVersion: pgsteward.io/%s, kind: PostgresCluster, metadata: {name: %s, namespace: %s, resourceVersion: %q}, spec: {%s}}",
				c.version, name, namespace, made.GetResourceVersion(), c.to))
			err := s.kube.Update(t.Context(), changed)
			if c.words == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.words)
			t.Log(err)
		})
	}
}

// warnings are what the API server said beside its answers.
type warnings struct {
	sync.Mutex
	said []string
}

func (w *warnings) HandleWarningHeader(_ int, _ string, text string) {
	w.Lock()
	defer w.Unlock()
	w.said = append(w.said, text)
}

// TestSurroundings: what only the webhook can know.
func TestSurroundings(t *testing.T) {
	t.Parallel()
	s := needServer(t)
	s.class(t, "rigid", false)
	s.class(t, "elastic", true)
	namespace := s.namespace(t, "surroundings")
	heard := &warnings{}
	config := rest.CopyConfig(s.config)
	config.WarningHandler = heard
	kube, err := client.New(config, client.Options{Scheme: scheme()})
	require.NoError(t, err)

	t.Run("a class that does not exist", func(t *testing.T) {
		for version, spec := range map[string]string{
			"v1":       `{version: "16", storage: {storageClassName: gone}}`,
			"v1alpha1": `{replicas: 1, postgresVersion: "16.14", storage: {size: 1Gi, storageClassName: gone}}`,
		} {
			err := kube.Create(t.Context(), cluster(t, version, namespace, "db", spec))
			require.ErrorContains(t, err, `spec.storage.storageClassName: Invalid value: "gone": there is no StorageClass "gone"`, version)
		}
	})
	t.Run("names that are taken", func(t *testing.T) {
		foreign := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "taken-rw"},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}
		require.NoError(t, kube.Create(t.Context(), foreign))
		err := kube.Create(t.Context(), cluster(t, "v1", namespace, "taken", `{version: "16", storage: {storageClassName: elastic}}`))
		require.ErrorContains(t, err, "Service taken-rw, whose name this cluster needs, exists and does not belong to a PostgresCluster")
	})
	t.Run("volumes of an earlier cluster", func(t *testing.T) {
		claim := volumeClaim(namespace, "kept", "rigid")
		claim.Annotations = map[string]string{naming.AnnotationVersion: "15"}
		require.NoError(t, kube.Create(t.Context(), claim))
		require.Eventually(t, func() bool {
			err := kube.Create(t.Context(), cluster(t, "v1", namespace, "kept", `{version: "16", storage: {storageClassName: elastic}}`), client.DryRunAll)
			return err != nil && strings.Contains(err.Error(), "PersistentVolumeClaim kept-1-data was kept from an earlier cluster of this name and has data of PostgreSQL 15")
		}, 5*time.Second, 50*time.Millisecond, "once the cache has heard of it")
		require.NoError(t, kube.Create(t.Context(), cluster(t, "v1", namespace, "kept", `{version: "15", storage: {storageClassName: elastic}}`)))
	})
	t.Run("volumes that cannot grow", func(t *testing.T) {
		c := cluster(t, "v1", namespace, "grows", `{version: "16", storage: {size: 1Gi, storageClassName: rigid}}`)
		require.NoError(t, kube.Create(t.Context(), c))
		claim := volumeClaim(namespace, "grows", "rigid")
		claim.Spec.VolumeName = "bound"
		require.NoError(t, kube.Create(t.Context(), claim))
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"storage":{"size":"2Gi"}}}`))
		require.Eventually(t, func() bool {
			err := kube.Patch(t.Context(), c, patch, client.DryRunAll)
			return err != nil && strings.Contains(err.Error(), "PersistentVolumeClaim grows-1-data cannot grow, since StorageClass rigid does not expand volumes; keep 1Gi")
		}, 5*time.Second, 50*time.Millisecond, "once the cache has heard of it")
		scale := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":5}}`))
		require.NoError(t, kube.Patch(t.Context(), c, scale), "it can still be scaled")
	})
	t.Run("what is only odd is a warning", func(t *testing.T) {
		require.NoError(t, kube.Create(t.Context(), cluster(t, "v1", namespace, "odd",
			`{version: "16", image: "postgres:17-alpine", storage: {storageClassName: elastic}, postgresql: {parameters: {max_conections: "9"}}}`)))
		heard.Lock()
		defer heard.Unlock()
		require.Contains(t, strings.Join(heard.said, "\n"), `the tag "17-alpine" looks like PostgreSQL 17`)
		require.Contains(t, strings.Join(heard.said, "\n"), "did you mean max_connections?")
	})
	t.Run("warn instead of refuse", func(t *testing.T) {
		c := cluster(t, "v1", namespace, "lenient", `{version: "16", storage: {storageClassName: gone}}`)
		c.SetAnnotations(map[string]string{naming.AnnotationValidation: naming.ValidationWarn})
		require.NoError(t, kube.Create(t.Context(), c))
	})
	t.Run("in milliseconds", func(t *testing.T) {
		var took []time.Duration
		for range 50 {
			begin := time.Now()
			require.NoError(t, kube.Create(t.Context(), cluster(t, "v1", namespace, "fast", `{version: "16", replicas: 9, storage: {storageClassName: elastic}}`), client.DryRunAll))
			took = append(took, time.Since(begin))
		}
		slices.Sort(took)
		t.Logf("a cluster of nine is created (dry run) in %s, median of %d; slowest %s", took[len(took)/2], len(took), took[len(took)-1])
	})
}

func volumeClaim(namespace, cluster, class string) *corev1.PersistentVolumeClaim {
	instance := naming.Instance(cluster, 1)
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: naming.DataVolume(instance), Labels: naming.InstanceLabels(cluster, instance)},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: &class,
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}

// TestSamples: what config/samples shows is accepted as it stands.
func TestSamples(t *testing.T) {
	t.Parallel()
	s := needServer(t)
	s.class(t, "standard", true)
	namespace := s.namespace(t, "samples")
	files, err := filepath.Glob(filepath.Join("..", "..", "config", "samples", "pgsteward_*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			sample := object(t, string(text))
			sample.SetNamespace(namespace)
			if _, found, _ := unstructured.NestedString(sample.Object, "spec", "storage", "storageClassName"); !found {
				// a cluster that names no class needs a default one, which the other tests must not have
				sample.SetAnnotations(map[string]string{naming.AnnotationValidation: naming.ValidationWarn})
			}
			err = s.kube.Create(t.Context(), sample, client.DryRunAll, client.FieldValidation("Strict"))
			require.NoError(t, err)
		})
	}
}

// TestForeground: a deletion in the foreground would remove the instances before the last backup of them is made.
func TestForeground(t *testing.T) {
	t.Parallel()
	s := needServer(t)
	s.class(t, "foreground", true)
	c := cluster(t, "v1", s.namespace(t, "foreground"), "db",
		`{version: "17", storage: {storageClassName: foreground}, backup: {retention: 30d}, deletion: {finalBackup: true}}`)
	require.NoError(t, s.kube.Create(t.Context(), c))
	err := s.kube.Delete(t.Context(), c, client.PropagationPolicy(metav1.DeletePropagationForeground))
	require.ErrorContains(t, err, "spec.deletion.finalBackup: Forbidden: a deletion in the foreground (--cascade=foreground) removes the instances")
	require.NoError(t, s.kube.Delete(t.Context(), c, client.PropagationPolicy(metav1.DeletePropagationBackground)))
}
