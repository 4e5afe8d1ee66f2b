// Package datadir is the instance's data volume: who may use it (Lock), what is on it (Inspect) and how data comes to be
// there (Seed).
//
//	<volume>/pgdata/<major>           the data directory; complete if it exists
//	<volume>/pgdata/<major>.seeding   one that is being made; whatever is found there is removed and begun again
//	<volume>/pgdata/<major>.old       one that could not follow, kept until its successor is complete
//	<volume>/pgdata/<major>.recovered the data of a recovery in place, beside the present one, which it is to replace
//	<volume>/pgdata/<major>.before    the data that it has replaced, until a server has run on it
//	<volume>/pgdata/<major>.dropping  one of these that is being removed
//	<volume>/pgsteward/               the agent's own files
//
// A data directory gets its name by one rename, after everything in it is on disk. So a crash at any moment leaves either a
// complete data directory or none.
package datadir
