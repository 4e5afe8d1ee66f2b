// Package serve is what an agent answers: its status to the operator and to other members over mutual TLS (API), and probes
// and metrics to the kubelet and to Prometheus (Health). Board keeps the status and tells watchers of changes.
//
// Probes tell the truth about different things. /livez is about the agent: its loop goes round; a PostgreSQL that is down is
// no reason to kill the agent that is about to start it. /startupz is true once the agent has decided something: seeding and
// recovery may take hours and must not be cut short. /readyz is true when clients should come.
package serve
