package build_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/build"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/testing/expect"
)

// TestVerifyJob: one Pod for each Job, which can reach nothing but the repository, and whose volume goes with it.
func TestVerifyJob(t *testing.T) {
	t.Parallel()
	in := input(t, expectSpec(`backup: {timeZone: Europe/Berlin, verify: {schedule: " 0 4 * * 0 "}}`))
	in.RepositoryImage = "registry.example/postgres:primary"
	job := find(t, in, "CronJob", "prod-db-verify").Object["spec"].(map[string]any)
	template := job["jobTemplate"].(map[string]any)["spec"].(map[string]any)["template"].(map[string]any)
	pod := template["spec"].(map[string]any)
	container := pod["containers"].([]any)[0].(map[string]any)
	volumes := pod["volumes"].([]any)
	delete(pod, "initContainers")
	delete(pod, "volumes")
	delete(container, "volumeMounts")
	expect.YAML(t, `
		schedule: 0 4 * * 0
		timeZone: Europe/Berlin
		concurrencyPolicy: Forbid
		startingDeadlineSeconds: 21600
		suspend: false
		successfulJobsHistoryLimit: 1
		failedJobsHistoryLimit: 1
		jobTemplate:
		  metadata:
		    labels: {app.kubernetes.io/instance: prod-db, app.kubernetes.io/managed-by: pgsteward, app.kubernetes.io/name: postgresql, pgsteward.io/cluster: prod-db}
		  spec:
		    backoffLimit: 0
		    podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget, status: "True"}]}]}
		    activeDeadlineSeconds: 194400
		    ttlSecondsAfterFinished: 21600
		    template:
		      metadata:
		        labels:
		          app.kubernetes.io/component: verification
		          app.kubernetes.io/instance: prod-db
		          app.kubernetes.io/managed-by: pgsteward
		          app.kubernetes.io/name: postgresql
		          pgsteward.io/cluster: prod-db
		      spec:
		        automountServiceAccountToken: false
		        enableServiceLinks: false
		        restartPolicy: Never
		        securityContext:
		          {fsGroup: 999, fsGroupChangePolicy: OnRootMismatch, runAsGroup: 999, runAsNonRoot: true, runAsUser: 999, seccompProfile: {type: RuntimeDefault}}
		        affinity:
		          podAntiAffinity:
		            preferredDuringSchedulingIgnoredDuringExecution:
		            - weight: 100
		              podAffinityTerm:
		                topologyKey: kubernetes.io/hostname
		                labelSelector:
		                  matchLabels: {app.kubernetes.io/component: database, pgsteward.io/cluster: prod-db, pgsteward.io/role: primary}
		        containers:
		        - name: verify
		          image: registry.example/postgres:primary
		          command: [/opt/pgsteward/pgsteward, verify, --timeout=48h0m0s]
		          terminationMessagePolicy: FallbackToLogsOnError
		          resources: {limits: {cpu: "1", memory: 1Gi}, requests: {cpu: 100m, memory: 256Mi}}
		          securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, readOnlyRootFilesystem: true}
	`, job)
	expect.YAML(t, `
		- name: data
		  ephemeral:
		    volumeClaimTemplate:
		      metadata: {labels: {app.kubernetes.io/component: verification, app.kubernetes.io/instance: prod-db, app.kubernetes.io/name: pgsteward}}
		      spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
		- {name: run, emptyDir: {}}
		- {name: tmp, emptyDir: {}}
		- {name: program, emptyDir: {}}
		- {name: config, configMap: {name: prod-db-config, defaultMode: 416}}
		- name: secrets
		  projected:
		    defaultMode: 416
		    sources:
		    - secret:
		        name: prod-db-server
		        items: [{key: tls.crt, path: server/tls.crt}, {key: tls.key, path: server/tls.key}, {key: ca.crt, path: server/ca.crt}]
	`, volumes)
}

// expectSpec is the smallest PostgresCluster with one more line in its spec.
func expectSpec(line string) string {
	return `
	apiVersion: pgsteward.io/v1
	kind: PostgresCluster
	metadata: {name: prod-db, namespace: demo, uid: uid-1, generation: 4}
	spec:
	  replicas: 3
	  version: "16"
	  ` + line + "\n"
}

// TestVerifyJobAsWanted: volume and resources are the spec's, nodes those of the instances, and a bucket's Secrets are there.
func TestVerifyJobAsWanted(t *testing.T) {
	t.Parallel()
	in := input(t, expectSpec(`storage: {size: 10Gi, storageClassName: fast}
	  scheduling: {nodeSelector: {disk: fast}, tolerations: [{key: dedicated, value: postgres, effect: NoSchedule}]}
	  backup:
	    repository: {s3: {endpoint: "https://s3.example.com", bucket: backups, credentialsSecret: s3-access}, encryption: {secret: cipher}}
	    verify: {schedule: "@weekly", storage: {size: 20Gi}, resources: {requests: {memory: 4Gi}}}`))
	in.Stopped = true
	job := find(t, in, "CronJob", "prod-db-verify").Object["spec"].(map[string]any)
	assert.Equal(t, true, job["suspend"])
	pod := job["jobTemplate"].(map[string]any)["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
	assert.Equal(t, map[string]any{"disk": "fast"}, pod["nodeSelector"])
	assert.Len(t, pod["tolerations"], 1)
	container := pod["containers"].([]any)[0].(map[string]any)
	assert.Equal(t, "registry.example/postgres:16", container["image"])
	expect.YAML(t, `{requests: {cpu: 100m, memory: 4Gi}}`, container["resources"])
	volumes := pod["volumes"].([]any)
	expect.YAML(t, `{accessModes: [ReadWriteOnce], storageClassName: fast, resources: {requests: {storage: 20Gi}}}`,
		volumes[0].(map[string]any)["ephemeral"].(map[string]any)["volumeClaimTemplate"].(map[string]any)["spec"])
	sources := volumes[5].(map[string]any)["projected"].(map[string]any)["sources"].([]any)
	var secrets []any
	for _, source := range sources {
		secrets = append(secrets, source.(map[string]any)["secret"].(map[string]any)["name"])
	}
	assert.Equal(t, []any{"prod-db-server", "s3-access", "cipher"}, secrets)
}

// TestVerifyJobBuckets: whatever the kind of bucket, its Secrets are there, and the account that may open it.
func TestVerifyJobBuckets(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]string{
		"gcs":   `gcs: {bucket: backups, keySecret: {name: access}}`,
		"azure": `azure: {account: shop, container: backups, keySecret: {name: access}}`,
	} {
		in := input(t, expectSpec(`backup: {repository: {`+kind+`, encryption: {secret: cipher}}, verify: {schedule: "@weekly"}}`))
		job := find(t, in, "CronJob", "prod-db-verify").Object["spec"].(map[string]any)
		pod := job["jobTemplate"].(map[string]any)["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
		assert.Equal(t, naming.ServiceAccount("prod-db"), pod["serviceAccountName"], name)
		assert.Equal(t, false, pod["automountServiceAccountToken"], name)
		var secrets []any
		for _, volume := range pod["volumes"].([]any) {
			projected, _ := volume.(map[string]any)["projected"].(map[string]any)
			sources, _ := projected["sources"].([]any)
			for _, source := range sources {
				if secret, ok := source.(map[string]any)["secret"].(map[string]any); ok {
					secrets = append(secrets, secret["name"])
				}
			}
		}
		assert.Equal(t, []any{"prod-db-server", "access", "cipher"}, secrets, name)
	}
}

// TestNoVerifyJob: without a schedule that can be carried out there is none, and one that is there goes. Instances do not notice.
func TestNoVerifyJob(t *testing.T) {
	t.Parallel()
	gone := build.Ref{Kind: "CronJob", Name: "prod-db-verify"}
	for _, line := range []string{"storage: {}", "backup: {}", `backup: {verify: {schedule: "0 0 30 2 *"}}`, `backup: {timeZone: Mars/Olympus, verify: {schedule: "@weekly"}}`} {
		in := input(t, expectSpec(line))
		for _, object := range build.Objects(in) {
			require.NotEqual(t, gone.Name, asUnstructured(t, object).GetName(), line)
		}
		assert.Contains(t, build.UnwantedBackups(in), gone, line)
	}
	with, without := input(t, expectSpec(`backup: {verify: {schedule: "@weekly"}}`)), input(t, expectSpec("backup: {}"))
	assert.NotContains(t, build.UnwantedBackups(with), gone)
	assert.Equal(t, find(t, without, "StatefulSet", "prod-db-1"), find(t, with, "StatefulSet", "prod-db-1"))
	assert.Equal(t, find(t, without, "ConfigMap", "prod-db-config"), find(t, with, "ConfigMap", "prod-db-config"))
}
