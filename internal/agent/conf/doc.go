// Package conf puts the user's parameters and pg_hba lines in force, and keeps out what PostgreSQL would refuse: a bad line
// must never stop a running server nor keep one from starting.
//
// A wanted configuration is accepted in three steps. Check has PostgreSQL itself read it, with `postgres -C`, before anything
// is written. What passes is written and put in force. When a server has run with it, it is proven, and kept on disk; if
// instead a server does not start with it, Revert goes back to the proven one. What was refused is not tried again until it
// changes.
package conf
