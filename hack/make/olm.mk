# The Operator Lifecycle Manager in the local cluster (hack/olm), for trying bundle and catalog.
OLM := bin/olm bin/catalog bin/package-server bin/copy-content bin/cpb bin/grpc-health-probe

$(eval $(call tools,olm,$(OLM)))

.PHONY: olm
olm: | $(OLM) $(OPM) $(OPERATOR_SDK) ## Install the Operator Lifecycle Manager in the cluster, unless it has one
	@REGISTRY=$(REGISTRY) hack/olm/up.sh

.PHONY: olm-down
olm-down: ## Remove the Operator Lifecycle Manager that make olm brought, and all that it installed
	@hack/olm/down.sh
