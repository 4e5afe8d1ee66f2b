package build_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pgsteward/pgsteward/internal/build"
	"github.com/pgsteward/pgsteward/internal/testing/expect"
)

func TestStatefulSet(t *testing.T) {
	t.Parallel()
	set := find(t, input(t, minimal), "StatefulSet", "prod-db-1")
	spec, ok := set.Object["spec"].(map[string]any)
	require.True(t, ok)
	expect.YAML(t, `
		replicas: 1
		serviceName: prod-db-instances
		podManagementPolicy: Parallel
		updateStrategy: {type: OnDelete}
		revisionHistoryLimit: 2
		selector: {matchLabels: {pgsteward.io/cluster: prod-db, pgsteward.io/instance: prod-db-1}}
		template:
		  metadata:
		    annotations: {kubectl.kubernetes.io/default-container: postgres, pgsteward.io/spec-hash: 44136fa355b3678a, pgsteward.io/version: "16"}
		    labels:
		      app.kubernetes.io/name: postgresql
		      app.kubernetes.io/instance: prod-db
		      app.kubernetes.io/component: database
		      app.kubernetes.io/managed-by: pgsteward
		      pgsteward.io/cluster: prod-db
		      pgsteward.io/instance: prod-db-1
		  spec:
		    serviceAccountName: prod-db-instance
		    automountServiceAccountToken: true
		    enableServiceLinks: false
		    terminationGracePeriodSeconds: 180
		    securityContext:
		      runAsNonRoot: true
		      runAsUser: 999
		      runAsGroup: 999
		      fsGroup: 999
		      fsGroupChangePolicy: OnRootMismatch
		      seccompProfile: {type: RuntimeDefault}
		    affinity:
		      podAntiAffinity:
		        preferredDuringSchedulingIgnoredDuringExecution:
		        - weight: 100
		          podAffinityTerm:
		            topologyKey: kubernetes.io/hostname
		            labelSelector: {matchLabels: {pgsteward.io/cluster: prod-db, app.kubernetes.io/component: database}}
		    topologySpreadConstraints:
		    - maxSkew: 1
		      topologyKey: topology.kubernetes.io/zone
		      whenUnsatisfiable: ScheduleAnyway
		      labelSelector: {matchLabels: {pgsteward.io/cluster: prod-db, app.kubernetes.io/component: database}}
		    initContainers:
		    - name: install
		      image: registry.example/pgsteward:1
		      args: [install]
		      securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
		      resources: {requests: {cpu: 10m, memory: 32Mi}, limits: {cpu: "1", memory: 128Mi}}
		      volumeMounts: [{name: program, mountPath: /opt/pgsteward}]
		    containers:
		    - name: postgres
		      image: registry.example/postgres:16
		      command: [/opt/pgsteward/pgsteward, agent]
		      env:
		      - {name: POD_NAME, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.name}}}
		      - {name: POD_NAMESPACE, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}}}
		      - {name: POD_UID, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.uid}}}
		      - {name: PGSTEWARD_INSTANCE, value: prod-db-1}
		      - {name: PGHOST, value: /var/run/postgresql}
		      - {name: PGDATA, value: /var/lib/pgsteward/pgdata/16}
		      ports:
		      - {name: postgres, containerPort: 5432, protocol: TCP}
		      - {name: agent, containerPort: 8443, protocol: TCP}
		      - {name: health, containerPort: 8081, protocol: TCP}
		      startupProbe: {httpGet: {path: /startupz, port: health, scheme: HTTP}, periodSeconds: 1, timeoutSeconds: 3, failureThreshold: 120}
		      livenessProbe: {httpGet: {path: /livez, port: health, scheme: HTTP}, periodSeconds: 10, timeoutSeconds: 3, failureThreshold: 3}
		      readinessProbe: {httpGet: {path: /readyz, port: health, scheme: HTTP}, periodSeconds: 2, timeoutSeconds: 3, failureThreshold: 2}
		      resources: {requests: {cpu: 100m, memory: 256Mi}}
		      securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
		      volumeMounts:
		      - {name: data, mountPath: /var/lib/pgsteward}
		      - {name: run, mountPath: /var/run/postgresql}
		      - {name: tmp, mountPath: /tmp}
		      - {name: shm, mountPath: /dev/shm}
		      - {name: program, mountPath: /opt/pgsteward, readOnly: true}
		      - {name: program, mountPath: /etc/passwd, subPath: passwd, readOnly: true}
		      - {name: config, mountPath: /etc/pgsteward/config, readOnly: true}
		      - {name: secrets, mountPath: /etc/pgsteward/secrets, readOnly: true}
		    volumes:
		    - {name: data, persistentVolumeClaim: {claimName: prod-db-1-data}}
		    - {name: run, emptyDir: {}}
		    - {name: tmp, emptyDir: {}}
		    - {name: shm, emptyDir: {medium: Memory}}
		    - {name: program, emptyDir: {}}
		    - {name: config, configMap: {name: prod-db-config, defaultMode: 416}}
		    - name: secrets
		      projected:
		        defaultMode: 416
		        sources:
		        - secret:
		            name: prod-db-server
		            items: [{key: tls.crt, path: server/tls.crt}, {key: tls.key, path: server/tls.key}, {key: ca.crt, path: server/ca.crt}]
		        - secret:
		            name: prod-db-replication
		            items: [{key: tls.crt, path: replication/tls.crt}, {key: tls.key, path: replication/tls.key}, {key: ca.crt, path: replication/ca.crt}]
		        - secret:
		            name: prod-db-app
		            items: [{key: user, path: app/user}, {key: password, path: app/password}, {key: dbname, path: app/dbname}]
		        - secret:
		            name: prod-db-superuser
		            items: [{key: user, path: superuser/user}, {key: password, path: superuser/password}]
	`, spec)
}

// TestStatefulSetOfTheSpec: what the spec changes in it, and nothing else.
func TestStatefulSetOfTheSpec(t *testing.T) {
	t.Parallel()
	pod := podSpec(t, find(t, input(t, full), "StatefulSet", "prod-db-2"))
	postgres := pod.Containers[0]
	assert.Equal(t, "registry.example/my/postgres:17", postgres.Image)
	assert.Equal(t, []corev1.LocalObjectReference{{Name: "pull-a"}, {Name: "pull-b"}}, pod.ImagePullSecrets)
	assert.Contains(t, postgres.Env, corev1.EnvVar{Name: "PGDATA", Value: "/var/lib/pgsteward/pgdata/17"})
	assert.Contains(t, postgres.Env, corev1.EnvVar{Name: "PGSTEWARD_INSTANCE", Value: "prod-db-2"})
	expect.YAML(t, `{requests: {cpu: 250m, memory: 2Gi}, limits: {cpu: "1", memory: 2Gi}}`, postgres.Resources)

	suspended := input(t, minimal)
	suspended.Stopped = true
	spec, ok := find(t, suspended, "StatefulSet", "prod-db-1").Object["spec"].(map[string]any)
	require.True(t, ok)
	assert.EqualValues(t, 0, spec["replicas"])
}

// TestTemplateIsStable: nothing that changes in the life of a cluster without the user's will may change the template, since then
// Pods would count as outdated.
func TestTemplateIsStable(t *testing.T) {
	t.Parallel()
	template := func(change func(*build.Input)) any {
		in := input(t, minimal)
		change(&in)
		spec, ok := find(t, in, "StatefulSet", "prod-db-1").Object["spec"].(map[string]any)
		require.True(t, ok)
		return spec["template"]
	}
	want := template(func(*build.Input) {})
	for name, change := range map[string]func(*build.Input){
		"scaled":       func(in *build.Input) { in.Members = members("prod-db", 1, 2, 3, 4) },
		"bootstrapped": func(in *build.Input) { in.Bootstrap, in.SystemIdentifier = "", "7123" },
		"certificates": func(in *build.Input) { in.Credentials.Server.Cert = []byte("renewed") },
		"password":     func(in *build.Input) { in.Credentials.AppPassword = "changed" },
		"parameters": func(in *build.Input) {
			in.Cluster = parse(t, full)
			in.Cluster.Spec = parse(t, minimal).Spec
			in.Cluster.Generation = 9
		},
		"suspended": func(in *build.Input) { in.Stopped = true },
	} {
		assert.Equal(t, want, template(change), name)
	}
}

func podSpec(t *testing.T, set *unstructured.Unstructured) corev1.PodSpec {
	t.Helper()
	typed := &appsv1.StatefulSet{}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(set.Object, typed))
	return typed.Spec.Template.Spec
}

// TestRestricted checks the Pods against the "restricted" Pod Security Standard, rule by rule
// (https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted), and for requests on every container.
func TestRestricted(t *testing.T) {
	t.Parallel()
	for _, text := range []string{minimal, full} {
		pod := podSpec(t, find(t, input(t, text), "StatefulSet", "prod-db-1"))
		assert.False(t, pod.HostNetwork || pod.HostPID || pod.HostIPC)
		assert.True(t, *pod.SecurityContext.RunAsNonRoot)
		assert.NotZero(t, *pod.SecurityContext.RunAsUser)
		assert.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)
		assert.Empty(t, pod.SecurityContext.Sysctls)
		for _, v := range pod.Volumes {
			allowed := v.ConfigMap != nil || v.EmptyDir != nil || v.PersistentVolumeClaim != nil || v.Projected != nil || v.Secret != nil
			assert.True(t, allowed, "volume %s", v.Name)
			assert.Nil(t, v.HostPath)
		}
		containers := append(pod.InitContainers, pod.Containers...)
		assert.Len(t, containers, 2)
		for _, c := range containers {
			s := c.SecurityContext
			require.NotNil(t, s, c.Name)
			assert.False(t, *s.AllowPrivilegeEscalation, c.Name)
			assert.Equal(t, []corev1.Capability{"ALL"}, s.Capabilities.Drop, c.Name)
			assert.Empty(t, s.Capabilities.Add, c.Name)
			assert.True(t, s.Privileged == nil || !*s.Privileged, c.Name)
			assert.True(t, s.RunAsUser == nil || *s.RunAsUser != 0, c.Name)
			assert.True(t, s.RunAsNonRoot == nil || *s.RunAsNonRoot, c.Name)
			assert.Nil(t, s.SeccompProfile, "that of the Pod holds for %s", c.Name)
			assert.True(t, *s.ReadOnlyRootFilesystem, c.Name)
			assert.False(t, c.Resources.Requests.Cpu().IsZero(), c.Name)
			assert.False(t, c.Resources.Requests.Memory().IsZero(), c.Name)
			for _, p := range c.Ports {
				assert.Zero(t, p.HostPort)
			}
		}
	}
}

func TestResources(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ spec, want string }{
		"none":                            {`{}`, `{requests: {cpu: 100m, memory: 256Mi}}`},
		"requests":                        {`{requests: {cpu: "2", memory: 4Gi}}`, `{requests: {cpu: "2", memory: 4Gi}}`},
		"limits are requests, too":        {`{limits: {memory: 1Gi}}`, `{requests: {cpu: 100m, memory: 1Gi}, limits: {memory: 1Gi}}`},
		"a small limit":                   {`{limits: {cpu: 50m, memory: 128Mi}}`, `{requests: {cpu: 50m, memory: 128Mi}, limits: {cpu: 50m, memory: 128Mi}}`},
		"both":                            {`{requests: {cpu: 100m}, limits: {cpu: "1"}}`, `{requests: {cpu: 100m, memory: 256Mi}, limits: {cpu: "1"}}`},
		"others":                          {`{limits: {ephemeral-storage: 1Gi}}`, `{requests: {cpu: 100m, memory: 256Mi, ephemeral-storage: 1Gi}, limits: {ephemeral-storage: 1Gi}}`},
		"the same in other words is same": {`{requests: {cpu: "0.1", memory: 1024Mi}}`, `{requests: {cpu: 100m, memory: 1Gi}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := strings.Replace(minimal, `version: "16"`, `version: "16", resources: `+test.spec, 1)
			expect.YAML(t, test.want, podSpec(t, find(t, input(t, c), "StatefulSet", "prod-db-1")).Containers[0].Resources)
		})
	}
}
