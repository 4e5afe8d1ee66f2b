// Package arch guards the shape of the source tree: which package may import which, and that the packages that decide stay
// pure. It has nothing but tests; the tables in rules_test.go are the rules, docs/architecture.md says why they are so.
package arch
