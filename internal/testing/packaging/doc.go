// Package packaging checks what the Operator Lifecycle Manager gets from us: the bundle, the released bundles and the catalog. It
// has nothing but tests. Each check takes what it judges as an argument and returns what is wrong, one sentence each, so that
// rejects_test.go can show broken copies to the same checks that pass over the tree.
//
// They repeat much of what operator-sdk and opm check, with the same library where there is one: a tool that cannot be had must
// not stop the checking.
package packaging
