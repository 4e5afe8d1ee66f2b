package cmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pgsteward/pgsteward/internal/agent/carry"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// carryCommand runs in an init container of the image that an instance had before a major upgrade.
func carryCommand() *cobra.Command {
	options := carry.Options{Root: "/", To: naming.PathCarried}
	command := &cobra.Command{
		Use:   "carry",
		Short: "Copies PostgreSQL's programs of this image for a major upgrade (in an instance's init container)",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			manifest, err := carry.Copy(options)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), "carried over: %q, missing: %q %s\n", manifest.Programs, manifest.Missing, manifest.Problem)
			return err
		},
	}
	command.Flags().IntVar(&options.Major, "major", 0, "the major version of PostgreSQL in this image")
	command.Flags().StringVar(&options.To, "to", options.To, "the folder to copy to")
	if err := command.MarkFlagRequired("major"); err != nil {
		panic(err) // the flag is defined above
	}
	return command
}
