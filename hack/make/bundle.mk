# The bundle of this version and the catalog of all, for the Operator Lifecycle Manager. Generated, never edited.

# The date of this version, and where its images are published.
RELEASED   ?= 2026-12-01T00:00:00Z
IMAGE_BASE ?= ghcr.io/pgsteward

BUNDLE_IMAGE ?= $(IMAGE_BASE)/pgsteward-bundle:v$(VERSION)

# What the images are, tags while a version is developed. In the tree of a release config/manifests/images.env says it, by digest.
BUNDLE_IMAGES = OPERATOR_IMAGE=$(IMAGE_BASE)/pgsteward:v$(VERSION) \
  $(foreach major,15 16 17 18,POSTGRES_$(major)_IMAGE=$(IMAGE_BASE)/postgres:$(major))
ifneq ($(wildcard config/manifests/images.env),)
BUNDLE_IMAGES = $(shell grep -v '^\#' config/manifests/images.env)
endif

.PHONY: bundle
bundle: manifests | $(OPERATOR_SDK) $(KUSTOMIZE) ## Generate bundle/ for VERSION
	@env $(BUNDLE_IMAGES) VERSION=$(VERSION) RELEASED=$(RELEASED) hack/bundle/bundle.sh

.PHONY: catalog
catalog: | $(OPM) ## Generate catalog/ from config/catalog/ and the bundles in releases/
	@VERSION=$(VERSION) BUNDLE_IMAGE=$(BUNDLE_IMAGE) hack/bundle/catalog.sh

.PHONY: bundle-validate
bundle-validate: | $(OPERATOR_SDK) ## Validate bundle/ with every optional suite; a warning is an error
	@hack/bundle/validate.sh bundle

.PHONY: scorecard
scorecard: | $(OPERATOR_SDK) ## Run the scorecard's tests on bundle/, without a cluster
	@hack/bundle/scorecard.sh

.PHONY: catalog-validate
catalog-validate: | $(OPM) ## Validate catalog/, and serve it as catalog.Dockerfile says
	@hack/bundle/validate.sh catalog
	@hack/bundle/dockerfile.sh

.PHONY: release
release: | $(OPERATOR_SDK) $(KUSTOMIZE) $(OPM) ## Release VERSION=: images by digest, bundle, catalog, commit, tag (docs/releasing.md; CHANNELS, RELEASED, NEXT)
	@hack/bundle/release.sh $(VERSION)

.PHONY: promote
promote: | $(OPM) ## Put the released VERSION= into CHANNELS= (stable) of the catalog
	@hack/bundle/promote.sh $(VERSION) $(or $(CHANNELS),stable)

.PHONY: publish
publish: ## Push the images of releases and the catalog to TO= (the local cluster's registry: every name is pulled from there)
	@hack/bundle/publish.sh $(or $(TO),$(REGISTRY))

.PHONY: operatorhub
operatorhub: | $(OPM) ## Lay out in OUT= (bin/operatorhub) what the community catalogs want of us
	@hack/bundle/operatorhub.sh $(or $(OUT),bin/operatorhub)
