// Package logs reads PostgreSQL's log from named pipes and writes each record as one line of JSON on the agent's output, with
// all of PostgreSQL's fields, beside the agent's own log. It also keeps PostgreSQL's last words, so that a status can say why
// a server ended or a standby does not stream.
//
// Output is between the logs and standard output, so that nobody who logs waits for it.
package logs
