package cmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"go.uber.org/zap/zapcore"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/pgsteward/pgsteward/internal/console"
)

type consoleFlags struct {
	address     string
	certificate console.Certificate
	keyFile     string
	sessionTime time.Duration
	tokenHeader string
	actions     bool
}

// Environment of the console, for those whose Deployment is OLM's: a Subscription can set it. The flags of the same names count more.
const (
	envConsoleActions     = "CONSOLE_ACTIONS"
	envConsoleTokenHeader = "CONSOLE_TOKEN_HEADER"
)

// consoleCommand runs the web console, which needs nothing of the operator but its API.
func consoleCommand() *cobra.Command {
	var flags consoleFlags
	command := &cobra.Command{
		Use:   "console",
		Short: "Serves web pages that show PostgresClusters to those who may see them",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return runConsole(ctrl.SetupSignalHandler(), flags) },
	}
	command.Flags().StringVar(&flags.address, "bind-address", ":8443", "address of the pages, over TLS")
	command.Flags().StringVar(&flags.certificate.CertFile, "tls-cert-file", "", "certificate of the server, read again when it changes; without it, or while there is none at the start, one that nobody has signed")
	command.Flags().StringVar(&flags.certificate.KeyFile, "tls-key-file", "", "private key of the certificate")
	command.Flags().StringVar(&flags.keyFile, "session-key-file", "", "file with at least 32 secret bytes that all replicas share; without it, or if there is none, they are made up, and sessions end with the process")
	command.Flags().DurationVar(&flags.sessionTime, "session-time", console.SessionTime, "how long a session lasts at most")
	command.Flags().StringVar(&flags.tokenHeader, "token-header", os.Getenv(envConsoleTokenHeader), "header in which a proxy gives the user's token, such as Authorization; there is no login then")
	command.Flags().BoolVar(&flags.actions, "actions", os.Getenv(envConsoleActions) == "true", "let users act on clusters, each with that one's own rights")
	command.MarkFlagsRequiredTogether("tls-cert-file", "tls-key-file")
	return command
}

func runConsole(ctx context.Context, flags consoleFlags) error {
	log := zap.New(zap.UseDevMode(false), func(o *zap.Options) {
		o.EncoderConfigOptions = append(o.EncoderConfigOptions, func(c *zapcore.EncoderConfig) { c.EncodeTime = zapcore.ISO8601TimeEncoder })
	})
	ctrl.SetLogger(log)
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("access to Kubernetes: %w", err)
	}
	options, err := consoleOptions(flags, log)
	if err != nil {
		return err
	}
	if _, err := os.Stat(flags.certificate.CertFile); errors.Is(err, fs.ErrNotExist) {
		flags.certificate = console.Certificate{}
	}
	c, err := console.New(config, options)
	if err != nil {
		return fmt.Errorf("making the console: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", flags.address)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	log.Info("Starting the console", "version", version, "address", listener.Addr().String(), "actions", flags.actions, "tokenHeader", flags.tokenHeader)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		if err := c.Start(ctx); err != nil {
			cancel(fmt.Errorf("watching clusters: %w", err))
		}
	}()
	if err := c.Serve(ctx, listener, flags.certificate); err != nil {
		return err
	}
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func consoleOptions(flags consoleFlags, log logr.Logger) (console.Options, error) {
	options := console.Options{
		SessionTime: flags.sessionTime, TokenHeader: flags.tokenHeader, Actions: flags.actions,
		Namespaces: watchedNamespaces(os.Getenv(envWatchNamespace)), Log: log, Now: time.Now,
	}
	if flags.keyFile == "" {
		return options, nil
	}
	key, err := os.ReadFile(flags.keyFile)
	if errors.Is(err, fs.ErrNotExist) {
		log.Info("Making up a key of sessions, which end with this process: there is no file with one", "file", flags.keyFile)
		return options, nil
	}
	if err != nil {
		return console.Options{}, fmt.Errorf("reading the key of sessions: %w", err)
	}
	options.Key = key
	return options, nil
}
