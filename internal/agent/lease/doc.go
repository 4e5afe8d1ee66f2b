// Package lease keeps an agent's view of the primary Lease, and renews it while the agent wants to hold it.
//
// The Keeper writes the Lease only by compare-and-swap on the resource version it has seen: if its recorded holder is nobody or the
// agent's own instance; if another's has run out and the agent decided to campaign on that very version; or if its holder has said
// that it has stopped and gives up that very version. HandOver gives it away in one update. The Keeper counts what it holds from
// before the request that renewed it was sent, on a clock that goes on while the machine sleeps; so what it believes to hold has
// ended before anybody else, who counts from when the change is seen, may think so.
//
// While the API server does not answer, the promises of all members that may know of themselves that they are some count as a
// renewal. Promise gives one to another holder: until it has run out this agent does not become the primary, even if an update that
// it sent before is carried out late, unless that very holder hands over.
//
// A Lease that was deleted, or was made anew without a holder, is not lost to anybody: the holder goes on until its renewal
// runs out, and takes the new one by compare-and-swap.
//
// Renewal runs in a goroutine of its own and waits for nothing else. Guard stops the PostgreSQL server when renewal fails:
// fast in time, immediately before the duration ends, and by force at the end. Should the agent itself be stopped or starved, a
// process beside it (supervise.Watchdog) does the last, which is told until when the server may write with each renewal.
package lease
