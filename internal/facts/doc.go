// Package facts holds what is known about one PostgresCluster at the beginning of a pass: plain structs, filled by observe and
// read by plan, build and status. It is pure. What is not known is a value too (Known), never a zero that looks like an answer.
// Now is the one clock of the pass.
package facts
