// Command pgsteward is the operator of PostgresClusters and, in each instance's Pod, its agent.
package main

import (
	"os"

	"github.com/pgsteward/pgsteward/internal/cmd"
)

func main() { os.Exit(cmd.Run(os.Args[1:])) }
