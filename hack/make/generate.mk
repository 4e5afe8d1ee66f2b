# Generated: deep copies, CRDs, RBAC, the webhook's configuration and the API's documentation, from the markers and comments in apis/,
# controllers/ and internal/admission/.

.PHONY: generate
generate: api-docs | $(CONTROLLER_GEN) ## Generate deep copies for apis/, and docs/api*.md
	@# When the types do not compile controller-gen writes what it could make of them: half a file is worse than none.
	@$(CONTROLLER_GEN) object:headerFile=hack/boilerplate.go.txt paths=./apis/... || \
	  { rm -f apis/*/zz_generated.deepcopy.go; exit 1; }

.PHONY: manifests
manifests: | $(CONTROLLER_GEN) ## Generate CRDs (config/crd/bases), RBAC (config/rbac/role.yaml) and the webhook (config/webhook) from markers
	@$(CONTROLLER_GEN) crd paths=./apis/... output:crd:artifacts:config=config/crd/bases
	@$(CONTROLLER_GEN) rbac:roleName=pgsteward-manager paths=./controllers/... output:rbac:artifacts:config=config/rbac
	@$(CONTROLLER_GEN) webhook paths=./internal/admission/... output:webhook:artifacts:config=config/webhook

# One page for each version, since their types have the same names.
API_DOCS := $(CRD_REF_DOCS) --log-level=ERROR --config=hack/docs/crd-ref-docs.yaml --renderer=markdown --templates-dir=hack/docs/templates

.PHONY: api-docs
api-docs: | $(CRD_REF_DOCS) ## Generate docs/api.md and docs/api-v1alpha1.md from the types in apis/
	@$(API_DOCS) --source-path=apis/v1 --output-path=docs/api.md
	@$(API_DOCS) --source-path=apis/v1alpha1 --output-path=docs/api-v1alpha1.md
