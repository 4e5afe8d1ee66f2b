// Package v1 holds the stored version of the pgsteward.io API: types, markers and validation rules, the phases, condition
// types and reasons. It has no behaviour.
//
// +kubebuilder:object:generate=true
// +groupName=pgsteward.io
package v1
