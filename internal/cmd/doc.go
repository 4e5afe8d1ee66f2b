// Package cmd wires the programs that the one binary is: manager (the operator), agent (in each instance's Pod) and install
// (copies the binary into a Pod).
package cmd
