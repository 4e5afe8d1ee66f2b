// Package preflight looks, on the live primary, for what a major upgrade would not carry over as it is, and says for each what to do. It
// changes nothing.
//
// A check is a query of the catalogs whose rows are objects, once for the server or in each database. Checks are tables, in server.go and
// database.go: the list of them is the documentation of what is checked, together with docs/major-upgrades.md. What needs the new image is not
// seen from here: the seed looks for that.
package preflight
