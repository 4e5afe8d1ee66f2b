package build_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/build"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/testing/expect"
)

func TestVolumes(t *testing.T) {
	t.Parallel()
	expect.YAML(t, `
		apiVersion: v1
		kind: PersistentVolumeClaim
		metadata:
		  name: prod-db-1-data
		  namespace: demo
		  labels:
		    app.kubernetes.io/name: postgresql
		    app.kubernetes.io/instance: prod-db
		    app.kubernetes.io/component: database
		    app.kubernetes.io/managed-by: pgsteward
		    pgsteward.io/cluster: prod-db
		    pgsteward.io/instance: prod-db-1
		spec:
		  accessModes: [ReadWriteOnce]
		  resources: {requests: {storage: 1Gi}}
	`, find(t, input(t, minimal), "PersistentVolumeClaim", "prod-db-1-data").Object)

	in := input(t, full)
	in.SystemIdentifier = "7123"
	claim := find(t, in, "PersistentVolumeClaim", "prod-db-2-data")
	expect.YAML(t, `
		accessModes: [ReadWriteOnce]
		storageClassName: fast
		resources: {requests: {storage: 10Gi}}
	`, claim.Object["spec"])
	assert.Equal(t, map[string]string{"pgsteward.io/system-identifier": "7123", "pgsteward.io/version": "17"}, claim.GetAnnotations())

	in.OnlyRemembered, in.Volumes = true, []facts.Volume{{Instance: "prod-db-1", SystemIdentifier: "7123", Version: "17"}}
	assert.Equal(t, "7123", find(t, in, "PersistentVolumeClaim", "prod-db-1-data").GetAnnotations()["pgsteward.io/system-identifier"])
	assert.Empty(t, find(t, in, "PersistentVolumeClaim", "prod-db-2-data").GetAnnotations(), "a new one is forgotten with the old one")
}

// TestVolumeOwners: the deletion policy is obeyed by the garbage collector, even while the operator is down.
func TestVolumeOwners(t *testing.T) {
	t.Parallel()
	for policy, owned := range map[v1.RetentionPolicy]bool{"": false, v1.Retain: false, v1.Delete: true} {
		in := input(t, minimal)
		in.Cluster.Spec.Deletion.Volumes = policy
		assert.Equal(t, owned, len(find(t, in, "PersistentVolumeClaim", "prod-db-1-data").GetOwnerReferences()) == 1, policy)
	}
}

// TestVolumesThatExist: what Kubernetes lets nobody change stays, so that the rest can be applied.
func TestVolumesThatExist(t *testing.T) {
	t.Parallel()
	const gi = int64(1) << 30
	for name, test := range map[string]struct {
		have facts.Volume
		want string
	}{
		"of the same kind": {facts.Volume{Class: "fast", Bytes: 10 * gi}, `{storageClassName: fast, resources: {requests: {storage: 10Gi}}, accessModes: [ReadWriteOnce]}`},
		"without a class":  {facts.Volume{Bytes: 10 * gi}, `{storageClassName: fast, resources: {requests: {storage: 10Gi}}, accessModes: [ReadWriteOnce]}`},
		"of another class": {facts.Volume{Class: "slow", Bytes: 10 * gi}, `{storageClassName: slow, resources: {requests: {storage: 10Gi}}, accessModes: [ReadWriteOnce]}`},
		"smaller: it grows": {
			facts.Volume{Class: "fast", Bytes: gi, Bound: true},
			`{storageClassName: fast, resources: {requests: {storage: 10Gi}}, accessModes: [ReadWriteOnce]}`,
		},
		"larger: it stays": {
			facts.Volume{Class: "fast", Bytes: 20 * gi, Bound: true},
			`{storageClassName: fast, resources: {requests: {storage: 20Gi}}, accessModes: [ReadWriteOnce]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := input(t, full)
			test.have.Instance = "prod-db-1"
			in.Volumes = []facts.Volume{test.have}
			expect.YAML(t, test.want, find(t, in, "PersistentVolumeClaim", "prod-db-1-data").Object["spec"])
		})
	}
}

func TestStorageSize(t *testing.T) {
	t.Parallel()
	small, large := build.StorageSize(parse(t, minimal)), build.StorageSize(parse(t, full))
	assert.Equal(t, "1Gi", small.String())
	assert.Equal(t, "10Gi", large.String())
}

// TestVolumesNoteThePrimary: whose data is the newest is known after the cluster is gone; nothing is forgotten while nobody is primary.
func TestVolumesNoteThePrimary(t *testing.T) {
	t.Parallel()
	noted := func(in build.Input, name string) bool {
		return find(t, in, "PersistentVolumeClaim", name).GetAnnotations()[naming.AnnotationDataRole] == naming.RolePrimary
	}
	in := input(t, minimal)
	assert.False(t, noted(in, "prod-db-1-data"))

	in.Holder = "prod-db-1"
	assert.True(t, noted(in, "prod-db-1-data"))
	assert.False(t, noted(in, "prod-db-2-data"))

	in.Holder, in.Volumes = "", []facts.Volume{{Instance: "prod-db-1", WasPrimary: true}, {Instance: "prod-db-2"}}
	assert.True(t, noted(in, "prod-db-1-data"))
	assert.False(t, noted(in, "prod-db-2-data"))

	in.Holder = "prod-db-2"
	assert.False(t, noted(in, "prod-db-1-data"))
	assert.True(t, noted(in, "prod-db-2-data"))
}
