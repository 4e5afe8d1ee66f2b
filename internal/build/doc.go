// Package build makes the Kubernetes objects of a PostgresCluster: spec and facts in, apply configurations out, one file per
// concern. It is pure: random values (Credentials) are arguments. Two calls with the same input give the same output.
package build
