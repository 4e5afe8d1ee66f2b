package build

import (
	"cmp"
	"strings"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// bucketScheme begins the address of what is in a bucket, as it is told to persons.
var bucketScheme = map[string]string{agentapi.RepositoryS3: "s3", agentapi.RepositoryGCS: "gs", agentapi.RepositoryAzure: "azure"}

// credentialsKey is the key of a Secret by type, if the spec names none.
var credentialsKey = map[string]string{
	agentapi.KeyService: naming.KeyGCSService, agentapi.KeyShared: naming.KeyAzureShared, agentapi.KeySAS: naming.KeyAzureSAS,
}

// bucketOf is the bucket of a repository, with the prefix for its path; empty: the repository is a volume.
func bucketOf(spec v1.RepositorySpec) agentapi.Repository {
	switch {
	case spec.S3 != nil:
		s3 := spec.S3
		return agentapi.Repository{
			Kind: agentapi.RepositoryS3, Path: string(s3.Prefix), Endpoint: endpoint(s3.Endpoint),
			Bucket: s3.Bucket, Region: s3.Region, PathStyle: s3.PathStyle == nil || *s3.PathStyle, CredentialsSecret: s3.CredentialsSecret,
		}
	case spec.GCS != nil:
		gcs := spec.GCS
		return withCredentials(agentapi.Repository{
			Kind: agentapi.RepositoryGCS, Path: string(gcs.Prefix), Endpoint: endpoint(gcs.Endpoint), Bucket: gcs.Bucket, KeyType: string(gcs.KeyType),
		}, gcs.KeySecret)
	case spec.Azure != nil:
		azure := spec.Azure
		return withCredentials(agentapi.Repository{
			Kind: agentapi.RepositoryAzure, Path: string(azure.Prefix), Endpoint: endpoint(azure.Endpoint), Account: azure.Account,
			Bucket: azure.Container, PathStyle: azure.PathStyle, KeyType: string(azure.KeyType),
		}, azure.KeySecret)
	}
	return agentapi.Repository{}
}

func endpoint(url v1.StoreURL) string { return strings.TrimSuffix(string(url), "/") }

// withCredentials is the bucket with the key that it is opened with, if the spec names a Secret.
func withCredentials(bucket agentapi.Repository, secret *v1.SecretKey) agentapi.Repository {
	if secret != nil {
		bucket.CredentialsSecret, bucket.CredentialsKey = secret.Name, cmp.Or(secret.Key, credentialsKey[bucket.KeyType])
	}
	return bucket
}
