package agent

import (
	"os"
	"testing"

	"github.com/pgsteward/pgsteward/internal/agent/supervise"
)

// watchdogArgument makes this test's program a watchdog.
const watchdogArgument = "watchdog"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == watchdogArgument {
		supervise.Guard()
		return
	}
	os.Exit(m.Run())
}
