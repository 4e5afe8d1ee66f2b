// Package supervise runs programs on behalf of an agent that is PID 1 of its container: Children reaps orphans without taking
// the exit status of commands that the agent itself waits for, and Server is the one PostgreSQL server of the instance.
//
// Every program of the agent is started through Children. A command that is not would be reaped by Reap, and its Wait would
// fail.
package supervise
