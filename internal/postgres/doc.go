// Package postgres knows PostgreSQL's own formats: positions in the WAL (LSN), versions, the control file, postgresql.conf,
// pg_hba.conf and connection strings. It is pure and needs only the standard library; it talks to no server and reads no file.
package postgres
