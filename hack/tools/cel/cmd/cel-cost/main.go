// Command cel-cost says how many validation rules (CEL) a CustomResourceDefinition has and what each may cost at worst, by the API
// server's own estimate. The API server refuses a rule over the limit for one, and a version over the limit for all.
//
//	cel-cost [-v] FILE...
package main

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"
)

// tally is what the rules of one version add up to.
type tally struct {
	verbose    bool
	rules      int
	total      uint64
	worst      uint64
	worstPlace string
}

func main() {
	verbose := flag.Bool("v", false, "say what each rule costs")
	flag.Parse()
	for _, file := range flag.Args() {
		if err := report(file, *verbose); err != nil {
			fmt.Fprintf(os.Stderr, "cel-cost: %s: %v\n", file, err)
			os.Exit(1)
		}
	}
}

func report(file string, verbose bool) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(text, crd); err != nil {
		return err
	}
	for _, version := range crd.Spec.Versions {
		schema := &apiextensions.JSONSchemaProps{}
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(version.Schema.OpenAPIV3Schema, schema, nil); err != nil {
			return err
		}
		t := tally{verbose: verbose}
		if err := t.add("", schema, validation.RootCELContext(schema)); err != nil {
			return fmt.Errorf("%s: %w", version.Name, err)
		}
		fmt.Printf("%s %s: %d rules, together at worst %d (%.1f %% of the limit); the worst is %s with %d (%.1f %% of the limit)\n",
			crd.Name, version.Name, t.rules, t.total, percent(t.total, validation.StaticEstimatedCRDCostLimit),
			t.worstPlace, t.worst, percent(t.worst, validation.StaticEstimatedCostLimit))
	}
	return nil
}

func percent(cost, limit uint64) float64 { return 100 * float64(cost) / float64(limit) }

// add counts the rules of a schema and of all below it.
func (t *tally) add(path string, schema *apiextensions.JSONSchemaProps, context *validation.CELSchemaContext) error {
	if len(schema.XValidations) > 0 {
		if err := t.count(path, context); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		property := schema.Properties[name]
		if err := t.add(path+"."+name, &property, context.ChildPropertyContext(&property, name)); err != nil {
			return err
		}
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		if err := t.add(path+"[]", schema.Items.Schema, context.ChildItemsContext(schema.Items.Schema)); err != nil {
			return err
		}
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		child := schema.AdditionalProperties.Schema
		return t.add(path+"{}", child, context.ChildAdditionalPropertiesContext(child))
	}
	return nil
}

// count adds up the rules of one schema, each as often as it may be asked in one object, and the messages.
func (t *tally) count(path string, context *validation.CELSchemaContext) error {
	info, err := context.TypeInfo()
	if err != nil {
		return err
	}
	results, err := cel.Compile(info.Schema, info.DeclType, celconfig.PerCallLimit,
		environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()), cel.StoredExpressionsEnvLoader())
	if err != nil {
		return err
	}
	for i, result := range results {
		if result.Error != nil {
			return fmt.Errorf("rule %d: %s", i, result.Error.Detail)
		}
		times := result.MaxCardinality
		if context.MaxCardinality != nil {
			times = *context.MaxCardinality
		}
		cost := saturated(result.MaxCost, times)
		t.rules++
		t.total += cost + result.MessageExpressionMaxCost
		if place := fmt.Sprintf("%s rule %d", path, i); cost > t.worst {
			t.worst, t.worstPlace = cost, place
		}
		if t.verbose {
			fmt.Printf("%12d %12d  %s: %s\n", cost, result.MessageExpressionMaxCost, path, info.Schema.XValidations[i].Rule)
		}
	}
	return nil
}

// saturated multiplies without running over.
func saturated(a, b uint64) uint64 {
	if b != 0 && a > math.MaxUint64/b {
		return math.MaxUint64
	}
	return a * b
}
