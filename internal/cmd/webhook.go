package cmd

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/pgsteward/pgsteward/internal/admission"
	"github.com/pgsteward/pgsteward/internal/observe"
	"github.com/pgsteward/pgsteward/internal/webhookcert"
)

// webhooks is how this operator serves its webhook.
type webhooks struct {
	// port is 0 if it does not.
	port int
	// certificate is nil if the certificate comes as files, as OLM mounts them.
	certificate *webhookcert.Certificate
	namespace   string
}

// newWebhooks finds out where the certificate comes from. Outside of a cluster there is none, and nobody who would call.
func newWebhooks(port int) webhooks {
	_, err := os.Stat(filepath.Join(os.TempDir(), "k8s-webhook-server", "serving-certs", "tls.crt"))
	w := webhooks{port: port, namespace: os.Getenv(envNamespace)}
	switch {
	case err == nil:
	case w.namespace == "":
		w.port = 0
	default:
		w.certificate = &webhookcert.Certificate{}
	}
	return w
}

func (w webhooks) server() webhook.Server {
	if w.port == 0 {
		return webhook.NewServer(webhook.Options{Port: -1})
	}
	options := webhook.Options{Port: w.port}
	if w.certificate != nil {
		options.TLSOpts = append(options.TLSOpts, w.certificate.TLS)
	}
	return webhook.NewServer(options)
}

// add makes the manager serve the webhook and be ready only when it does.
func (w webhooks) add(mgr manager.Manager, reader *observe.Reader) error {
	if w.port == 0 {
		mgr.GetLogger().Info("Serving no webhook: the flag says so, or this runs outside of a cluster")
		return nil
	}
	if err := admission.Setup(mgr, reader); err != nil {
		return err
	}
	check := mgr.GetWebhookServer().StartedChecker()
	if w.certificate != nil {
		keeper := &webhookcert.Keeper{Namespace: w.namespace, Certificate: w.certificate, Now: time.Now}
		if err := keeper.SetupWithManager(mgr); err != nil {
			return fmt.Errorf("setting up the webhook's certificate: %w", err)
		}
		check = both(w.certificate.Check, check)
	}
	return mgr.AddReadyzCheck("webhook", check)
}

// both asks the second only if the first is content.
func both(first, second healthz.Checker) healthz.Checker {
	return func(r *http.Request) error {
		if err := first(r); err != nil {
			return err
		}
		return second(r)
	}
}
