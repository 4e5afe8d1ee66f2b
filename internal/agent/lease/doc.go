// Package lease keeps an agent's view of the primary Lease, and renews it while the agent wants to hold it.
//
// The Keeper writes the Lease only if its recorded holder is empty or the agent's own instance, and only by compare-and-swap
// on the resource version it has seen. It counts what it holds from before the request that renewed it was sent, on a clock
// that goes on while the machine sleeps; so what it believes to hold has ended before anybody else, who counts from when the
// change is seen, may think so.
//
// A Lease that was deleted, or was made anew without a holder, is not lost to anybody: the holder goes on until its renewal
// runs out, and takes the new one by compare-and-swap.
//
// Renewal runs in a goroutine of its own and waits for nothing else. Guard stops the PostgreSQL server when renewal fails:
// fast in time, immediately before the duration ends, and by force at the end.
package lease
