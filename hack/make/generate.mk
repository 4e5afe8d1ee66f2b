# Generated code: deep copies, CRDs and RBAC, all from the markers in apis/ and controllers/.

.PHONY: generate
generate: | $(CONTROLLER_GEN) ## Generate deep copies for apis/
	@# When the types do not compile controller-gen writes what it could make of them: half a file is worse than none.
	@$(CONTROLLER_GEN) object:headerFile=hack/boilerplate.go.txt paths=./apis/... || \
	  { rm -f apis/*/zz_generated.deepcopy.go; exit 1; }

.PHONY: manifests
manifests: | $(CONTROLLER_GEN) ## Generate CRDs (config/crd/bases), RBAC (config/rbac/role.yaml) and the webhook (config/webhook) from markers
	@$(CONTROLLER_GEN) crd paths=./apis/... output:crd:artifacts:config=config/crd/bases
	@$(CONTROLLER_GEN) rbac:roleName=pgsteward-manager paths=./controllers/... output:rbac:artifacts:config=config/rbac
	@$(CONTROLLER_GEN) webhook paths=./internal/admission/... output:webhook:artifacts:config=config/webhook
