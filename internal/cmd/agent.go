package cmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/pgsteward/pgsteward/internal/agent"
	"github.com/pgsteward/pgsteward/internal/agent/lease"
	"github.com/pgsteward/pgsteward/internal/agent/role"
	"github.com/pgsteward/pgsteward/internal/agent/supervise"
)

// Variables of the agent's environment.
const (
	envInstance  = "PGSTEWARD_INSTANCE"
	envNamespace = "POD_NAMESPACE"
	envPod       = "POD_NAME"
	envPodUID    = "POD_UID"
	// envStopBound is optional: how many seconds a fast shutdown may take.
	envStopBound = "PGSTEWARD_STOP_SECONDS"
)

// agentCommand runs in the container of PostgreSQL, as its PID 1.
func agentCommand() *cobra.Command {
	var debug bool
	command := &cobra.Command{
		Use:   "agent",
		Short: "Runs one PostgreSQL instance (in its Pod)",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			options, err := agentOptions(debug)
			if err != nil {
				return err
			}
			return agent.New(options).Run(ctx)
		},
	}
	command.Flags().BoolVar(&debug, "debug", false, "log more")
	return command
}

// watchdogName is the command that an agent starts as its watchdog.
const watchdogName = "watchdog"

// watchdogCommand is not for people.
func watchdogCommand() *cobra.Command {
	return &cobra.Command{
		Use:    watchdogName,
		Short:  "Stops PostgreSQL when the agent that started it does not",
		Args:   cobra.NoArgs,
		Hidden: true,
		Run:    func(*cobra.Command, []string) { supervise.Guard() },
	}
}

// agentOptions are those of an agent in a Pod of ours.
func agentOptions(debug bool) (agent.Options, error) {
	options := agent.Options{
		Instance: os.Getenv(envInstance), Namespace: os.Getenv(envNamespace), Pod: os.Getenv(envPod), PodUID: os.Getenv(envPodUID),
		Version: version, Paths: agent.DefaultPaths(), Ports: agent.DefaultPorts(),
		MemoryLimit: memoryLimit(), StopBound: agent.DefaultStopBound, FollowBound: agent.DefaultFollowBound,
		Output: os.Stdout, LogLevel: slog.LevelInfo,
	}
	if program, err := os.Executable(); err == nil {
		options.Watchdog = []string{program, watchdogName}
	}
	if debug {
		options.LogLevel = slog.LevelDebug
	}
	for name, value := range map[string]string{
		envInstance: options.Instance, envNamespace: options.Namespace, envPod: options.Pod, envPodUID: options.PodUID,
	} {
		if value == "" {
			return options, fmt.Errorf("%s is not set; the agent is started by the operator, in an instance's Pod", name)
		}
	}
	if seconds, err := strconv.Atoi(os.Getenv(envStopBound)); err == nil && seconds > 0 {
		options.StopBound = time.Duration(seconds) * time.Second
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return options, fmt.Errorf("finding the API server: %w", err)
	}
	if options.Labeler, err = role.NewKubernetes(config, options.Namespace); err != nil {
		return options, err
	}
	options.Lease = func(name string) (lease.API, error) {
		if name == "" {
			return nil, errors.New("the configuration names no lease")
		}
		return lease.NewKubernetes(config, options.Namespace, name)
	}
	return options, nil
}

// memoryLimit is the container's memory limit in bytes, as its cgroup has it (version 2 or 1); 0 if it has none.
func memoryLimit() int64 {
	for _, path := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		content, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		limit, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
		if err == nil && limit > 0 && limit < 1<<50 { // "no limit" is a very great number in version 1
			return limit
		}
	}
	return 0
}
