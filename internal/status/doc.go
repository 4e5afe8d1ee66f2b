// Package status computes what is told to the user: facts, decision and the previous status in, status and events out. It is
// pure. Every condition is computed in every pass from what was observed in it; phase is derived from them.
//
// Ready is the summary: all instances that the spec asks for exist and serve. Its reason is the most telling that there is: a
// problem before a step that is being taken before what is waited for. Degraded is true while there is a problem. Progressing is
// true while something is being changed or waited for.
//
// Events are the differences between the previous status and the new one, so that each is said once.
package status
