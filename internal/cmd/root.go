package cmd

import (
	"fmt"
	"os"
	_ "time/tzdata" // the operator's image has no time zones, and schedules have one

	"github.com/spf13/cobra"
)

// version is set by the linker.
var version = "dev"

// Run runs the program that the arguments name and returns the exit code.
func Run(args []string) int {
	root := &cobra.Command{
		Use:           "pgsteward",
		Short:         "Runs PostgreSQL clusters on Kubernetes",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(managerCommand(), agentCommand(), watchdogCommand(), installCommand(), carryCommand(), repositoryCommand(), backupCommand(), verifyCommand(), consoleCommand())
	root.SetArgs(args)
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "pgsteward:", err)
		return 1
	}
	return 0
}
