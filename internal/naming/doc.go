// Package naming holds every name, label, selector, port and path that pgsteward gives. It is pure. A name that others rely
// on is made here and nowhere else.
package naming
