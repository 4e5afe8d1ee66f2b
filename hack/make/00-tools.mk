# This file is read first, as its name says: the others use its variables in their prerequisites.
#
# Build tools. Each module under hack/tools/ pins a few programs that agree on their dependencies; hack/tools/build.sh builds
# a module once into CACHE and links its programs into bin/. Targets name the tools they need as order-only prerequisites
# (`bundle: | $(OPERATOR_SDK)`), so that nothing is built before it is needed.

CONTROLLER_GEN := bin/controller-gen
KUSTOMIZE      := bin/kustomize
CRD_REF_DOCS   := bin/crd-ref-docs
GOTESTSUM      := bin/gotestsum
GOLANGCI_LINT  := bin/golangci-lint
CEL_COST       := bin/cel-cost
OPERATOR_SDK   := bin/operator-sdk
OPM            := bin/opm

# $(call tools,MODULE,PROGRAMS): the programs of a module, built again when its pins change
define tools
$(2) &: $(wildcard hack/tools/$(1)/*)
	@hack/tools/build.sh $(1)
endef

$(eval $(call tools,kube,$(CONTROLLER_GEN) $(KUSTOMIZE)))
$(eval $(call tools,docs,$(CRD_REF_DOCS)))
$(eval $(call tools,cel,$(CEL_COST)))
$(eval $(call tools,test,$(GOTESTSUM)))
$(eval $(call tools,lint,$(GOLANGCI_LINT)))
$(eval $(call tools,sdk,$(OPERATOR_SDK)))
$(eval $(call tools,opm,$(OPM)))

.PHONY: tools
tools: ## Build every build tool into bin/ (they are also built on demand)
	@hack/tools/build.sh kube docs test lint opm sdk
