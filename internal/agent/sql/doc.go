// Package sql is what an agent says to its own PostgreSQL, over the Unix socket as the superuser: Observe asks for the
// server's state, Setup makes roles, passwords, database and replication slots as the configuration wants them.
//
// Every statement has a bound. Setup may be repeated at any time and changes only what differs. Passwords never leave the
// agent: PostgreSQL is given SCRAM verifiers, and only when the present one does not fit the password.
package sql
