// Command csv finishes the ClusterServiceVersion FILE that operator-sdk generated: permissions about objects in namespaces become
// namespaced ones, and the examples get a status.
package main

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

type object = map[string]any

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: csv FILE")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

func run(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var csv object
	if err := yaml.Unmarshal(content, &csv); err != nil {
		return err
	}
	spec, err := child(csv, "spec", "install", "spec")
	if err != nil {
		return err
	}
	if err := split(spec); err != nil {
		return err
	}
	annotations, err := child(csv, "metadata", "annotations")
	if err != nil {
		return err
	}
	if err := addStatus(annotations); err != nil {
		return err
	}
	content, err = yaml.Marshal(csv)
	if err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o600)
}

func child(of object, names ...string) (object, error) {
	for _, name := range names {
		next, ok := of[name].(object)
		if !ok {
			return nil, fmt.Errorf("no %s", name)
		}
		of = next
	}
	return of, nil
}
