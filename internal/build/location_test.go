package build_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/build"
)

// TestBackupLocation: what a PostgresBackup says when its cluster is gone is where a person finds the data.
func TestBackupLocation(t *testing.T) {
	t.Parallel()
	c := &v1.PostgresCluster{}
	c.Name, c.Namespace = "prod-db", "shop"
	c.Status.Version, c.Status.SystemIdentifier = "16.14", "7123"
	assert.Empty(t, build.BackupLocation(c, "L"), "it has no repository")
	c.Spec.Backup = &v1.BackupSpec{}
	assert.Equal(t, "repository/backup/pg16-7123/20261130-100000F in PersistentVolumeClaim prod-db-repository", build.BackupLocation(c, "20261130-100000F"))
	c.Spec.Backup.Repository.S3 = &v1.S3Repository{Endpoint: "https://s3.example.com/", Bucket: "backups", Prefix: "production"}
	assert.Equal(t, "s3://backups/production/shop/prod-db/backup/pg16-7123/20261130-100000F at https://s3.example.com", build.BackupLocation(c, "20261130-100000F"))
	here, name := build.BackupLocation(c, "L"), build.RepositoryName(c)
	assert.True(t, build.InRepository(c, here))
	c.Spec.Backup.Repository.S3.Endpoint = "https://other.example.com"
	assert.False(t, build.InRepository(c, here), "the same bucket of another store")
	assert.NotEqual(t, name, build.RepositoryName(c))
	c.Spec.Backup.Repository = v1.RepositorySpec{GCS: &v1.GCSRepository{Endpoint: "https://storage.googleapis.com", Bucket: "backups"}}
	assert.Equal(t, "gs://backups/shop/prod-db/backup/pg16-7123/20261130-100000F at https://storage.googleapis.com", build.BackupLocation(c, "20261130-100000F"))
	c.Spec.Backup.Repository = v1.RepositorySpec{Azure: &v1.AzureRepository{Endpoint: "https://blob.core.windows.net", Account: "shop", Container: "backups", Prefix: "production"}}
	assert.Equal(t, "azure://shop/backups/production/shop/prod-db/backup/pg16-7123/20261130-100000F at https://blob.core.windows.net", build.BackupLocation(c, "20261130-100000F"))
	c.Status.SystemIdentifier = ""
	assert.Empty(t, build.BackupLocation(c, "L"), "its system is not known")
}
