package webhookcert

import (
	"bytes"
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/pgsteward/pgsteward/internal/naming"
)

// inject makes the API server trust the authority, where it does not. What is not installed needs nothing.
func (k *Keeper) inject(ctx context.Context, ca []byte) error {
	if err := k.injectConversion(ctx, ca); err != nil {
		return err
	}
	return k.injectValidation(ctx, ca)
}

func (k *Keeper) injectConversion(ctx context.Context, ca []byte) error {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := k.cache.Get(ctx, types.NamespacedName{Name: naming.CRD}, crd); err != nil {
		return k.unlessMissing(err, "CustomResourceDefinition", naming.CRD)
	}
	conversion := crd.Spec.Conversion
	if conversion == nil || conversion.Webhook == nil || conversion.Webhook.ClientConfig == nil || bytes.Equal(conversion.Webhook.ClientConfig.CABundle, ca) {
		return nil
	}
	after := crd.DeepCopy()
	after.Spec.Conversion.Webhook.ClientConfig.CABundle = ca
	return k.patch(ctx, crd, after, "CustomResourceDefinition")
}

func (k *Keeper) injectValidation(ctx context.Context, ca []byte) error {
	configuration := &admissionv1.ValidatingWebhookConfiguration{}
	if err := k.cache.Get(ctx, types.NamespacedName{Name: naming.WebhookConfiguration}, configuration); err != nil {
		return k.unlessMissing(err, "ValidatingWebhookConfiguration", naming.WebhookConfiguration)
	}
	after, differs := configuration.DeepCopy(), false
	for i := range after.Webhooks {
		differs = differs || !bytes.Equal(after.Webhooks[i].ClientConfig.CABundle, ca)
		after.Webhooks[i].ClientConfig.CABundle = ca
	}
	if !differs {
		return nil
	}
	return k.patch(ctx, configuration, after, "ValidatingWebhookConfiguration")
}

// patch changes nothing but what differs; an object that was changed meanwhile is looked at again.
func (k *Keeper) patch(ctx context.Context, before, after client.Object, kind string) error {
	if err := k.client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(naming.FieldManager+"-webhook")); err != nil {
		return fmt.Errorf("giving %s %s the webhook's authority: %w", kind, before.GetName(), err)
	}
	log.FromContext(ctx).Info("Gave the API server the webhook's authority", "kind", kind, "name", before.GetName())
	return nil
}

func (k *Keeper) unlessMissing(err error, kind, name string) error {
	if client.IgnoreNotFound(err) == nil {
		return nil
	}
	return fmt.Errorf("reading %s %s: %w", kind, name, err)
}
