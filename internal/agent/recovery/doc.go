// Package recovery makes data from a backup: that of a cluster's first instance, and that by which a backup is verified. It reads a
// repository and never writes to it; whose data it makes, and when, is not its business.
package recovery
