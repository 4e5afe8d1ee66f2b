package cmd

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	olmv2 "github.com/operator-framework/api/pkg/operators/v2"
	"github.com/spf13/cobra"
	"go.uber.org/zap/zapcore"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/apis/v1alpha1"
	"github.com/pgsteward/pgsteward/controllers"
	"github.com/pgsteward/pgsteward/internal/apply"
	"github.com/pgsteward/pgsteward/internal/build"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/observe"
)

// Timings of the operators' own leader election.
const (
	leaderDuration = 15 * time.Second
	leaderRenew    = 10 * time.Second
	leaderRetry    = 2 * time.Second
)

// Environment of the operator, set by its Deployment; the watched namespaces and the name of the OperatorCondition by OLM. RELATED_IMAGE_POSTGRES_16 is the default image of
// 16, POSTGRES_16_VERSION its version, and RELATED_IMAGE_POSTGRES_16_12 the image for those who ask for just 16.12.
const (
	envOperatorImage   = "OPERATOR_IMAGE"
	envServiceAccount  = "POD_SERVICE_ACCOUNT"
	envWatchNamespace  = "WATCH_NAMESPACE"
	envPostgresImage   = "RELATED_IMAGE_POSTGRES_"
	envPostgresPrefix  = "POSTGRES_"
	envPostgresVersion = "_VERSION"
	leaderElectionName = "pgsteward-manager"

	envOperatorCondition = "OPERATOR_CONDITION_NAME"
)

// majors are the PostgreSQL versions that spec.version allows.
var majors = []string{"15", "16", "17", "18"}

type managerFlags struct {
	leaderElect    bool
	metricsAddress string
	healthAddress  string
	webhookPort    int
}

func managerCommand() *cobra.Command {
	var flags managerFlags
	command := &cobra.Command{
		Use:   "manager",
		Short: "Runs the operator",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return runManager(flags) },
	}
	command.Flags().BoolVar(&flags.leaderElect, "leader-elect", false, "let several operators choose one that works")
	command.Flags().StringVar(&flags.metricsAddress, "metrics-bind-address", ":8080", `address of the metrics, "0" for none`)
	command.Flags().StringVar(&flags.healthAddress, "health-probe-bind-address", ":8081", "address of the probes")
	command.Flags().IntVar(&flags.webhookPort, "webhook-port", 9443, "port of the webhook for conversion and validation, 0 for none")
	return command
}

func runManager(flags managerFlags) error {
	log := zap.New(zap.UseDevMode(false), func(o *zap.Options) {
		o.EncoderConfigOptions = append(o.EncoderConfigOptions, func(c *zapcore.EncoderConfig) { c.EncodeTime = zapcore.ISO8601TimeEncoder })
	})
	ctrl.SetLogger(log)
	settings, err := settingsFromEnvironment()
	if err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("access to Kubernetes: %w", err)
	}
	if settings.UserAssigned, err = assignsUsers(config); err != nil {
		return err
	}
	options, err := managerOptions(flags)
	if err != nil {
		return err
	}
	mgr, err := newManager(config, options, newWebhooks(flags.webhookPort), settings)
	if err != nil {
		return err
	}
	log.Info("Starting the operator", "version", version, "operatorImage", settings.OperatorImage, "postgresImages", settings.PostgresImages)
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		return fmt.Errorf("running the operator: %w", err)
	}
	return nil
}

// newManager is the operator, wired together.
func newManager(config *rest.Config, options ctrl.Options, hooks webhooks, settings build.Settings) (manager.Manager, error) {
	options.WebhookServer = hooks.server()
	mgr, err := ctrl.NewManager(config, options)
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	reader, err := addControllers(mgr, settings)
	if err != nil {
		return nil, err
	}
	if err := hooks.add(mgr, reader); err != nil {
		return nil, err
	}
	if err := addMetrics(mgr, reader); err != nil {
		return nil, err
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping)); err != nil {
		return nil, fmt.Errorf("adding probes: %w", err)
	}
	return mgr, nil
}

func addControllers(mgr manager.Manager, settings build.Settings) (*observe.Reader, error) {
	changes, backupChanges := controllers.NewChanges(), controllers.NewChanges()
	reader := &observe.Reader{
		Secrets: secrets(mgr, settings, changes),
		Cache:   mgr.GetClient(),
		API:     mgr.GetAPIReader(),
		Agents: &observe.Agents{Changed: func(cluster types.NamespacedName) {
			changes.Changed(cluster)
			backupChanges.Changed(cluster)
		}, Log: mgr.GetLogger().WithName("agents")},
		Now: time.Now,
	}
	writer := &apply.Writer{Client: mgr.GetClient(), API: mgr.GetAPIReader()}
	controller := &controllers.PostgresCluster{
		Reader:   reader,
		Writer:   writer,
		Recorder: mgr.GetEventRecorder("pgsteward"),
		Settings: settings,
	}
	if err := controller.SetupWithManager(mgr, changes); err != nil {
		return nil, fmt.Errorf("setting up the controller: %w", err)
	}
	backups := &controllers.PostgresBackup{Reader: reader, Writer: writer, Recorder: mgr.GetEventRecorder("pgsteward")}
	if err := backups.SetupWithManager(mgr, backupChanges); err != nil {
		return nil, fmt.Errorf("setting up the controller of backups: %w", err)
	}
	condition := &controllers.OperatorCondition{
		Key:    types.NamespacedName{Namespace: settings.Namespace, Name: os.Getenv(envOperatorCondition)},
		Writer: writer,
		Now:    time.Now,
	}
	if err := condition.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("setting up the controller of the OperatorCondition: %w", err)
	}
	return reader, nil
}

// secrets reads Secrets only where the operator has a right to. Outside of Kubernetes, where it has no ServiceAccount, it has that
// of whoever runs it.
func secrets(mgr manager.Manager, settings build.Settings, changes controllers.Changes) *observe.Secrets {
	if settings.ServiceAccount == "" {
		return nil
	}
	return &observe.Secrets{
		Changed: changes.Changed,
		Log:     mgr.GetLogger().WithName("secrets"),
		NewCache: func(namespace string) (cache.Cache, error) {
			return cache.New(mgr.GetConfig(), cache.Options{
				HTTPClient:        mgr.GetHTTPClient(),
				Scheme:            mgr.GetScheme(),
				Mapper:            mgr.GetRESTMapper(),
				DefaultNamespaces: map[string]cache.Config{namespace: {}},
				DefaultTransform:  cache.TransformStripManagedFields(),
				ByObject:          map[client.Object]cache.ByObject{observe.SecretKind().Object: {Label: ours()}},
			})
		},
	}
}

// ours selects our objects.
func ours() labels.Selector {
	return labels.SelectorFromSet(labels.Set{naming.LabelManagedBy: naming.ManagedBy})
}

// settingsFromEnvironment are the images.
func settingsFromEnvironment() (build.Settings, error) {
	settings := build.Settings{
		OperatorImage:    os.Getenv(envOperatorImage),
		ServiceAccount:   os.Getenv(envServiceAccount),
		Namespace:        os.Getenv(envNamespace),
		PostgresImages:   map[string]string{},
		PostgresVersions: map[string]string{},
	}
	if settings.OperatorImage == "" {
		return build.Settings{}, fmt.Errorf("the environment has no %s: it must name the operator's own image, from which instances take their agent", envOperatorImage)
	}
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		version, ok := strings.CutPrefix(name, envPostgresImage)
		if ok && value != "" {
			settings.PostgresImages[strings.Replace(version, "_", ".", 1)] = value
		}
	}
	for _, major := range majors {
		if version := os.Getenv(envPostgresPrefix + major + envPostgresVersion); version != "" {
			settings.PostgresVersions[major] = version
		}
	}
	return settings, nil
}

// assignsUsers says whether this is OpenShift, which lets Pods run only with uids of their namespace's range.
func assignsUsers(config *rest.Config) (bool, error) {
	api, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return false, fmt.Errorf("access to Kubernetes: %w", err)
	}
	groups, err := api.ServerGroups()
	if err != nil {
		return false, fmt.Errorf("asking for the API's groups: %w", err)
	}
	return slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == "security.openshift.io" }), nil
}

// managerOptions has a cache with nothing in it but what is ours, without the parts that we never read.
func managerOptions(flags managerFlags) (ctrl.Options, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme),
		olmv2.AddToScheme(scheme), v1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return ctrl.Options{}, fmt.Errorf("making the scheme: %w", err)
	}
	byObject := map[client.Object]cache.ByObject{}
	for _, kind := range append(observe.Kinds(), observe.SecretKind()) { // Secrets are watched only if somebody asks for them
		byObject[kind.Object] = cache.ByObject{Label: ours()}
	}
	return ctrl.Options{
		Scheme: scheme,
		Cache: cache.Options{
			ByObject:          byObject,
			DefaultTransform:  cache.TransformStripManagedFields(),
			DefaultNamespaces: watchedNamespaces(os.Getenv(envWatchNamespace)),
		},
		Metrics:                       metricsserver.Options{BindAddress: flags.metricsAddress},
		HealthProbeBindAddress:        flags.healthAddress,
		LeaderElection:                flags.leaderElect,
		LeaderElectionID:              leaderElectionName,
		LeaderElectionNamespace:       os.Getenv(envNamespace),
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 new(leaderDuration),
		RenewDeadline:                 new(leaderRenew),
		RetryPeriod:                   new(leaderRetry),
	}, nil
}

// watchedNamespaces are those in a comma-separated list; all if it is empty.
func watchedNamespaces(list string) map[string]cache.Config {
	if list == "" {
		return nil
	}
	namespaces := map[string]cache.Config{}
	for _, namespace := range strings.Split(list, ",") {
		namespaces[strings.TrimSpace(namespace)] = cache.Config{}
	}
	return namespaces
}
