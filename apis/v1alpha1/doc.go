// Package v1alpha1 holds the first version of the pgsteward.io API, still served for those who use it, and its conversion to and
// from v1, the stored version. New fields come to v1 only.
//
// # Conversion
//
// An object of either version survives the way to the other one and back unchanged. What the other version has no field for
// travels in an annotation:
//
//   - AnnotationV1 on a v1alpha1 object has the whole v1 spec and status. It is there only if v1alpha1's fields alone would not
//     give them back. On the way to v1 the fields that v1alpha1 does have win wherever somebody changed them since.
//   - v1.AnnotationPostgresVersion on a v1 object has the minor version that v1alpha1 asked for, such as 16.2.
//
// So a client that knows v1alpha1 only, and keeps the annotations of what it read as every client must, changes nothing that it
// cannot see.
//
// +kubebuilder:object:generate=true
// +groupName=pgsteward.io
package v1alpha1
