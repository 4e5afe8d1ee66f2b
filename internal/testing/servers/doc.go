// Package servers has what tests of major upgrades need: real servers of several majors, and a comparison of all rows of two sides.
package servers
