package v1

// AnnotationPostgresVersion has, on a PostgresCluster that was written as v1alpha1, the PostgreSQL version with the minor that its
// spec.postgresVersion asked for, such as 16.2. It counts as long as its major is that of spec.version.
const AnnotationPostgresVersion = Group + "/postgres-version"

// Hub makes v1 the version that others are converted to and from.
func (*PostgresCluster) Hub() {}
