# The bundle of this version and the catalog of all, for the Operator Lifecycle Manager. Generated, never edited.

# The date of this version, and where its images are published.
RELEASED   ?= 2026-11-30T00:00:00Z
IMAGE_BASE ?= ghcr.io/pgsteward

BUNDLE_IMAGE ?= $(IMAGE_BASE)/pgsteward-bundle:v$(VERSION)

.PHONY: bundle
bundle: manifests | $(OPERATOR_SDK) $(KUSTOMIZE) ## Generate bundle/ for VERSION
	@export OPERATOR_IMAGE=$(IMAGE_BASE)/pgsteward:v$(VERSION); \
	for major in 15 16 17 18; do export POSTGRES_$${major}_IMAGE=$(IMAGE_BASE)/postgres:$$major; done; \
	VERSION=$(VERSION) RELEASED=$(RELEASED) hack/bundle/bundle.sh

.PHONY: catalog
catalog: | $(OPM) ## Generate catalog/ from bundle/ and config/catalog/
	@VERSION=$(VERSION) BUNDLE_IMAGE=$(BUNDLE_IMAGE) hack/bundle/catalog.sh

# The warning about events is of no consequence: an RBAC rule has no version, so operator-sdk cannot see that their v1 is meant.
.PHONY: bundle-validate
bundle-validate: | $(OPERATOR_SDK) ## Validate bundle/ with every optional suite
	@$(OPERATOR_SDK) bundle validate ./bundle
	@$(OPERATOR_SDK) bundle validate ./bundle --select-optional suite=operatorframework --optional-values=k8s-version=1.34

.PHONY: catalog-validate
catalog-validate: | $(OPM) ## Validate catalog/
	@$(OPM) validate ./catalog
