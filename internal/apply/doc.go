// Package apply is the only writer: server-side apply under one field owner, exact deletes, and the status. It decides nothing.
//
// An object is written only if it differs: its hash annotation is not that of the desired state (something was added, changed or
// removed there), or the object as it is does not have everything that is desired (somebody changed it by hand). So a second pass
// over a settled cluster writes nothing, and what other tools add is left alone. After a Secret that could not be written nothing
// else is written: what is in it was made for this pass.
package apply
