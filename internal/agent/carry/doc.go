// Package carry brings PostgreSQL's programs of one image into the container of another, for a major upgrade: the server that replays
// the last of the old data, and what pg_upgrade asks of the old side.
//
// An init container of the old image copies to a folder that both containers have: the programs, PostgreSQL's own libraries and shared
// files, and all shared libraries that they need, the C library and its loader among them. So they run as they did, whatever the new image
// has. They lie below Manifest.Root as they lay in the old image, since PostgreSQL finds its files relative to its program.
package carry
