// Package metrics shows what the statuses say of backups and major upgrades to Prometheus, at the moment that it asks. It keeps nothing, so that a
// restarted operator tells the same, and it must not decide anything.
package metrics
