// Package webhookcert keeps the certificate of the operator's webhook where nobody else does (OLM mounts one as files).
//
// The certificate and its authority are in one Secret in the operator's namespace. Every replica watches it: whoever finds it
// missing, broken or due for renewal makes it anew (internal/credential), the others take what they see, so that all serve the same
// one, from memory and without a restart. The authority goes into the clientConfig of the CustomResourceDefinition's conversion and
// of the ValidatingWebhookConfiguration, again whenever somebody takes it out.
//
// It watches these three objects by name and nothing else, so its role needs no more than their names.
package webhookcert
