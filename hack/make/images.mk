# Container images, made without a container engine and pushed to $(REGISTRY) by content: tags name what is in them, unchanged
# images are neither built nor pushed again. What was pushed is written to bin/images.env. MAJORS selects PostgreSQL's majors.
MAJORS ?= 16 17 15 18

.PHONY: images
images: operator-image operand-images ## Build and push all images (REGISTRY, MAJORS; REFRESH=yes takes Debian's newest packages)

.PHONY: operator-image
operator-image: ## Build and push the operator's image
	@images/operator.sh build $(VERSION)
	@REGISTRY=$(REGISTRY) images/operator.sh push $(VERSION)

.PHONY: operand-images
operand-images: ## Build and push PostgreSQL's images (MAJORS="16 17" for some)
	@REFRESH=$(REFRESH) images/operand.sh build $(MAJORS)
	@REGISTRY=$(REGISTRY) images/operand.sh push $(MAJORS)

.PHONY: images-build
images-build: ## Build all images into the cache and push none (needs no cluster)
	@images/operator.sh build $(VERSION)
	@REFRESH=$(REFRESH) images/operand.sh build $(MAJORS)

.PHONY: images-check
images-check: ## Try PostgreSQL's images without a cluster: TLS, a standby, a backup; any user, read-only root
	@images/operand.sh build $(MAJORS)
	@images/check.sh $(MAJORS)
