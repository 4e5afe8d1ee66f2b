// Package admission is the operator's webhook: it converts PostgresClusters between versions (apis) and judges them before they
// are stored (internal/validate). Every replica of the operator answers, the leader or not.
//
// What it cannot find out in time is not known, and gives no objection. The webhook may be out altogether: its failurePolicy is
// Ignore, and reconcile asks the same rules.
package admission
