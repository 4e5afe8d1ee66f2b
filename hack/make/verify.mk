# What can be checked without running the product.

.PHONY: verify
verify: ## Check generated code, format, vet, lint, import rules, purity, modules, scripts, bundle and catalog (STEP="lint arch" for some)
	@hack/verify/verify.sh $(STEP)

.PHONY: lint
lint: | $(GOLANGCI_LINT) ## Run golangci-lint
	@$(GOLANGCI_LINT) run --allow-parallel-runners ./...

.PHONY: fmt
fmt: | $(GOLANGCI_LINT) ## Format the Go files and sort their imports
	@$(GOLANGCI_LINT) fmt ./...

.PHONY: vet
vet: ## Run go vet
	@go vet -tags e2e ./...

.PHONY: cel-cost
cel-cost: | $(CEL_COST) ## Count the CRD's validation rules and what they cost at worst (V=1: each)
	@$(CEL_COST) $(if $(V),-v) config/crd/bases/*.yaml
