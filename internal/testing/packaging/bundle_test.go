package packaging

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	"github.com/operator-framework/api/pkg/validation"
	interfaces "github.com/operator-framework/api/pkg/validation/interfaces"
	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// checkLibrary runs the validators of operator-sdk, the optional ones too. A warning is a problem.
func checkLibrary(b bundle) []string {
	var problems say
	loaded, err := manifests.GetBundleFromDir(b.dir)
	if err != nil {
		return []string{fmt.Sprintf("%s: %v", b.dir, err)}
	}
	all := slices.Concat(validation.DefaultBundleValidators, interfaces.Validators{
		validation.OperatorHubV2Validator, validation.StandardCategoriesValidator, validation.StandardCapabilitiesValidator,
		validation.ObjectValidator, validation.OperatorGroupValidator, validation.AlphaDeprecatedAPIsValidator,
		validation.GoodPracticesValidator,
	})
	objs := append([]any{loaded, map[string]string{"k8s-version": "1.34"}}, pointers(loaded.Objects)...)
	for _, validator := range all {
		for _, result := range validator.Validate(objs...) {
			for _, e := range slices.Concat(result.Errors, result.Warnings) {
				problems.add("%s: %s", result.Name, e.Error())
			}
		}
	}
	return problems
}

// checkNames holds the bundle's names and versions to each other.
func checkNames(b bundle, version string) []string {
	var problems say
	if want := packageName + ".v" + version; b.csv.Name != want {
		problems.add("the CSV's name is %s, not %s", b.csv.Name, want)
	}
	if b.csv.Spec.Version.String() != version {
		problems.add("the CSV's version is %s, not %s", b.csv.Spec.Version, version)
	}
	if len(b.csv.Name) > 63 {
		problems.add("the CSV's name %s is longer than 63 characters", b.csv.Name)
	}
	if got := b.annotations["operators.operatorframework.io.bundle.package.v1"]; got != packageName {
		problems.add("annotations.yaml names the package %q, not %s", got, packageName)
	}
	if _, err := semver.Parse(b.csv.Spec.MinKubeVersion); err != nil {
		problems.add("minKubeVersion %q is not a version: %v", b.csv.Spec.MinKubeVersion, err)
	}
	return problems
}

// wantedAnnotations are what a catalog shows of an operator.
var wantedAnnotations = []string{
	"alm-examples", "capabilities", "categories", "containerImage", "createdAt", "description", "repository", "support", "certified",
	"operatorframework.io/suggested-namespace",
}

// wantedFeatures are yes-or-no annotations.
var wantedFeatures = []string{
	"disconnected", "fips-compliant", "proxy-aware", "tls-profiles", "token-auth-aws", "token-auth-azure", "token-auth-gcp",
	"cnf", "cni", "csi",
}

// checkAnnotations wants every annotation that catalogs show, with something in it.
func checkAnnotations(b bundle) []string {
	var problems say
	for _, key := range wantedAnnotations {
		if strings.TrimSpace(b.csv.Annotations[key]) == "" {
			problems.add("the CSV's annotation %s is missing", key)
		}
	}
	for _, feature := range wantedFeatures {
		key := "features.operators.openshift.io/" + feature
		if value := b.csv.Annotations[key]; value != "true" && value != "false" {
			problems.add("the CSV's annotation %s is %q, not true or false", key, value)
		}
	}
	if _, err := time.Parse(time.RFC3339, b.csv.Annotations["createdAt"]); err != nil {
		problems.add("the CSV's createdAt: %v", err)
	}
	for _, label := range []string{"operatorframework.io/arch.amd64", "operatorframework.io/os.linux"} {
		if b.csv.Labels[label] != "supported" {
			problems.add("the CSV's label %s is missing", label)
		}
	}
	return problems
}

// checkLabels wants annotations.yaml and the labels of the Dockerfile equal: OLM reads the one, registries the other.
func checkLabels(b bundle, labels map[string]string) []string {
	var problems say
	for _, key := range slices.Sorted(maps.Keys(b.annotations)) {
		if value, found := labels[key]; !found || value != b.annotations[key] {
			problems.add("annotations.yaml has %s=%s, the Dockerfile %q", key, b.annotations[key], value)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if _, found := b.annotations[key]; !found {
			problems.add("the Dockerfile has the label %s, annotations.yaml has not", key)
		}
	}
	return problems
}

// checkOwned wants each served version of each CRD described, and an example for it that its schema accepts.
func checkOwned(b bundle) []string {
	var problems say
	served := map[string]bool{}
	for _, crd := range b.crds {
		for _, v := range crd.Spec.Versions {
			if v.Served {
				served[crd.Name+"/"+v.Name] = true
			}
		}
	}
	for _, owned := range b.csv.Spec.CustomResourceDefinitions.Owned {
		key := owned.Name + "/" + owned.Version
		if !served[key] {
			problems.add("the CSV owns %s, which no CRD serves", key)
		}
		delete(served, key)
		if owned.DisplayName == "" || owned.Description == "" {
			problems.add("owned %s has no displayName or no description", key)
		}
		if len(owned.Resources) == 0 || len(owned.SpecDescriptors) == 0 || len(owned.StatusDescriptors) == 0 {
			problems.add("owned %s lacks resources, specDescriptors or statusDescriptors", key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(served)) {
		problems.add("the CSV does not own %s, which a CRD serves", key)
	}
	return append(problems, checkExamples(b, examples(b))...)
}

// examples are the objects of alm-examples; what cannot be read is none.
func examples(b bundle) []unstructured.Unstructured {
	var list []map[string]any
	if json.Unmarshal([]byte(b.csv.Annotations["alm-examples"]), &list) != nil {
		return nil
	}
	objs := make([]unstructured.Unstructured, len(list))
	for i := range list {
		objs[i].Object = list[i]
	}
	return objs
}

// checkExamples wants an example with a spec for each served version of b's CRDs, and validates each of them by its schema: what OLM
// does with the objects that exist when it upgrades.
func checkExamples(b bundle, objs []unstructured.Unstructured) []string {
	var problems say
	for _, crd := range b.crds {
		for _, v := range crd.Spec.Versions {
			if !v.Served {
				continue
			}
			apiVersion := crd.Spec.Group + "/" + v.Name
			of := slices.DeleteFunc(slices.Clone(objs), func(o unstructured.Unstructured) bool {
				return o.GetAPIVersion() != apiVersion || o.GetKind() != crd.Spec.Names.Kind
			})
			if len(of) == 0 {
				problems.add("alm-examples has no %s %s", apiVersion, crd.Spec.Names.Kind)
			}
			for _, obj := range of {
				problems = append(problems, checkObject(v.Schema, obj)...)
			}
		}
	}
	return problems
}

// checkObject validates one object by the schema of its version.
func checkObject(schema *apiextensionsv1.CustomResourceValidation, obj unstructured.Unstructured) []string {
	var problems say
	who := fmt.Sprintf("%s %s %s", obj.GetAPIVersion(), obj.GetKind(), obj.GetName())
	if spec, _, err := unstructured.NestedMap(obj.Object, "spec"); err != nil || len(spec) == 0 {
		problems.add("%s has no spec", who)
	}
	internal := &apiextensions.CustomResourceValidation{}
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(schema, internal, nil); err != nil {
		return append(problems, err.Error())
	}
	validator, _, err := schemavalidation.NewSchemaValidator(internal.OpenAPIV3Schema)
	if err != nil {
		return append(problems, err.Error())
	}
	for _, e := range schemavalidation.ValidateCustomResource(nil, obj.Object, validator) {
		problems.add("%s: %v", who, e)
	}
	return problems
}

// checkCRDs wants the bundle's CRDs to be those of config/, but for the conversion, which OLM writes.
func checkCRDs(b bundle, config map[string]*apiextensionsv1.CustomResourceDefinition) []string {
	var problems say
	seen := map[string]bool{}
	for _, crd := range b.crds {
		seen[crd.Name] = true
		if crd.Spec.Conversion != nil {
			problems.add("CRD %s has a conversion, which OLM would write", crd.Name)
		}
		want, found := config[crd.Name]
		if !found {
			problems.add("CRD %s is in the bundle and not in config/crd", crd.Name)
			continue
		}
		if a, b := asJSON(crd.Spec.Versions), asJSON(want.Spec.Versions); a != b {
			problems.add("CRD %s differs from config/crd %s", crd.Name, firstDifference(b, a))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(config)) {
		if !seen[name] {
			problems.add("CRD %s is in config/crd and not in the bundle", name)
		}
	}
	return problems
}

func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// firstDifference shows where two texts part.
func firstDifference(want, got string) string {
	i := 0
	for i < len(want) && i < len(got) && want[i] == got[i] {
		i++
	}
	from := max(0, i-60)
	return fmt.Sprintf("at …%s: there %q, here %q", want[from:i], want[i:min(i+40, len(want))], got[i:min(i+40, len(got))])
}

var byDigest = regexp.MustCompile(`@sha256:[0-9a-f]{64}$`)

// checkImages wants every image that runs, or may run, among the related images, which a mirror copies; of a release all by digest.
func checkImages(b bundle, release bool) []string {
	var problems say
	related := map[string]bool{}
	for _, image := range b.csv.Spec.RelatedImages {
		related[image.Image] = true
	}
	used := usedImages(b.csv)
	for _, where := range slices.Sorted(maps.Keys(used)) {
		if !related[used[where]] {
			problems.add("%s %s is not among the relatedImages", where, used[where])
		}
	}
	for _, image := range b.csv.Spec.RelatedImages {
		used["relatedImages "+image.Name] = image.Image
	}
	for _, where := range slices.Sorted(maps.Keys(used)) {
		if release && !byDigest.MatchString(used[where]) {
			problems.add("%s %s is not by digest", where, used[where])
		}
	}
	return problems
}

// usedImages are the images the CSV names, by where it does.
func usedImages(csv *v1alpha1.ClusterServiceVersion) map[string]string {
	used := map[string]string{"annotation containerImage": csv.Annotations["containerImage"]}
	for _, deployment := range csv.Spec.InstallStrategy.StrategySpec.DeploymentSpecs {
		pod := deployment.Spec.Template.Spec
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			used["container "+c.Name] = c.Image
			for _, env := range c.Env {
				if (strings.HasPrefix(env.Name, "RELATED_IMAGE_") || env.Name == "OPERATOR_IMAGE") && env.Value != "" {
					used["variable "+env.Name] = env.Value
				}
			}
		}
	}
	return used
}

// checkDeployment wants what a guarded cluster wants of a Pod.
func checkDeployment(b bundle) []string {
	var problems say
	for _, deployment := range b.csv.Spec.InstallStrategy.StrategySpec.DeploymentSpecs {
		pod := deployment.Spec.Template.Spec
		if s := pod.SecurityContext; s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.SeccompProfile == nil {
			problems.add("deployment %s does not demand a user other than root, or has no seccomp profile", deployment.Name)
		}
		for _, c := range pod.Containers {
			if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() {
				problems.add("container %s requests no CPU or no memory", c.Name)
			}
			if c.LivenessProbe == nil || c.ReadinessProbe == nil {
				problems.add("container %s lacks a probe", c.Name)
			}
			if s := c.SecurityContext; s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem ||
				s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || !dropsAll(s.Capabilities) {
				problems.add("container %s may write to its root, escalate, or keeps capabilities", c.Name)
			}
			if !watchesTargets(c) {
				problems.add("container %s has no WATCH_NAMESPACE from olm.targetNamespaces", c.Name)
			}
		}
	}
	for _, file := range b.files {
		for _, word := range []string{"cert-manager.io", "webhook-server-cert"} {
			if strings.Contains(string(file.content), word) {
				problems.add("%s mentions %s, which would be in the way of OLM's certificate", file.name, word)
			}
		}
	}
	return problems
}

func dropsAll(c *corev1.Capabilities) bool { return c != nil && slices.Contains(c.Drop, "ALL") }

func watchesTargets(c corev1.Container) bool {
	return slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
		return e.Name == "WATCH_NAMESPACE" && e.ValueFrom != nil && e.ValueFrom.FieldRef != nil &&
			e.ValueFrom.FieldRef.FieldPath == "metadata.annotations['olm.targetNamespaces']"
	})
}

// checkWebhooks wants webhooks that lead to a port of a deployment and are about our objects only; with conversion, the operator
// must watch all namespaces, since a CRD has one conversion only.
func checkWebhooks(b bundle) []string {
	var problems say
	ports := map[string][]int32{}
	for _, deployment := range b.csv.Spec.InstallStrategy.StrategySpec.DeploymentSpecs {
		for _, c := range deployment.Spec.Template.Spec.Containers {
			for _, port := range c.Ports {
				ports[deployment.Name] = append(ports[deployment.Name], port.ContainerPort)
			}
		}
	}
	names := map[string]bool{}
	for _, w := range b.csv.Spec.WebhookDefinitions {
		key := string(w.Type) + " " + w.GenerateName
		if names[key] {
			problems.add("there are two webhooks %s", key)
		}
		names[key] = true
		if w.TargetPort == nil || !slices.Contains(ports[w.DeploymentName], w.TargetPort.IntVal) {
			problems.add("webhook %s leads to no port of a deployment", key)
		}
		if w.SideEffects == nil || *w.SideEffects != "None" {
			problems.add("webhook %s may have side effects", key)
		}
		if w.FailurePolicy == nil && w.Type != v1alpha1.ConversionWebhook {
			problems.add("webhook %s has no failurePolicy", key)
		}
		for _, rule := range w.Rules {
			if !slices.Equal(rule.APIGroups, []string{"pgsteward.io"}) {
				problems.add("webhook %s is about %v", key, rule.APIGroups)
			}
		}
		if w.Type == v1alpha1.ConversionWebhook {
			problems = append(problems, checkAllNamespaces(b.csv)...)
		}
	}
	return problems
}

func checkAllNamespaces(csv *v1alpha1.ClusterServiceVersion) []string {
	var problems say
	for _, mode := range csv.Spec.InstallModes {
		if all := mode.Type == v1alpha1.InstallModeTypeAllNamespaces; mode.Supported != all {
			problems.add("with a conversion webhook, install mode %s must be %v", mode.Type, all)
		}
	}
	return problems
}

// supportedKinds are what OLM takes in a bundle and community catalogs allow (so no NetworkPolicy).
var supportedKinds = []string{
	"ClusterServiceVersion", "CustomResourceDefinition", "Secret", "ClusterRole", "ClusterRoleBinding", "ConfigMap", "ServiceAccount",
	"Service", "Role", "RoleBinding", "PrometheusRule", "ServiceMonitor", "PodDisruptionBudget", "PriorityClass",
	"VerticalPodAutoscaler", "ConsoleYAMLSample", "ConsoleQuickStart", "ConsoleCLIDownload", "ConsoleLink", "ConsolePlugin",
}

// maxFile and maxBundle keep below what a ConfigMap, into which OLM unpacks a bundle, can hold: 1 MiB.
const (
	maxFile   = 900_000
	maxBundle = 891_289
)

// checkFiles wants files that OLM takes.
func checkFiles(b bundle) []string {
	var problems say
	for _, file := range b.files {
		switch {
		case strings.HasSuffix(file.name, "/"):
			problems.add("manifests/%s is a folder", file.name)
		case !slices.Contains(supportedKinds, file.kind.Kind):
			problems.add("manifests/%s is a %s, which OLM or a community catalog does not take", file.name, file.kind.Kind)
		case len(file.content) > maxFile:
			problems.add("manifests/%s has %d bytes, of %d at most", file.name, len(file.content), maxFile)
		}
	}
	if size := packed(b); size > maxBundle {
		problems.add("the manifests have %d bytes compressed, of %d at most", size, maxBundle)
	}
	return problems
}

// packed is about the size of the manifests as OLM keeps them.
func packed(b bundle) int {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return maxBundle + 1
	}
	for _, file := range b.files {
		if _, err := w.Write(file.content); err != nil {
			return maxBundle + 1
		}
	}
	if w.Close() != nil {
		return maxBundle + 1
	}
	return out.Len()
}

// pointers are the objects as validators take them.
func pointers(objs []*unstructured.Unstructured) []any {
	anything := make([]any, len(objs))
	for i, obj := range objs {
		anything[i] = obj
	}
	return anything
}
