// Package agentapi is what operator and agents say to each other: the configuration that the operator leaves in the cluster's
// ConfigMap for the agents (Config), the state that an agent reports (Status), and the client that reads it over mutual TLS
// (Client).
//
// The wire format is JSON. Fields are only added, never renamed or given another meaning, since an operator works with agents
// of the minor version before its own.
package agentapi
