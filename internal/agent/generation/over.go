package generation

import "github.com/pgsteward/pgsteward/internal/agentapi"

// Over is that an attempt has come to an end which no retry would change. The problem is for the user.
type Over struct{ Problem agentapi.Problem }

// Error implements error.
func (o *Over) Error() string { return o.Problem.Message }

// over is an Over of that reason.
func over(reason, message string) error {
	return &Over{Problem: agentapi.Problem{Reason: reason, Message: message}}
}

// Reasons of problems that end an attempt.
const (
	reasonSpace     = "NotEnoughSpace"
	reasonImage     = "ImageUnsuitable"
	reasonExtension = "ExtensionMissing"
	reasonSchema    = "SchemaNotCopied"
	reasonSource    = "SourceChanged"
	reasonSlot      = "SlotLost"
	reasonReplay    = "ReplayFailed"
	reasonConvert   = "PgUpgradeFailed"
	reasonMethod    = "MethodUnsuitable"
)
