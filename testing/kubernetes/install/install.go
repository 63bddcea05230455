// Package install waits for a cluster and brings into it what our objects refer to.
package install

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const fieldManager = "testcluster"

// pause is how often a wait looks again.
const pause = 20 * time.Millisecond

//go:embed runtime-class.yaml
var runtimeClass []byte

// resources are the kinds that can be brought in; there is no need to ask the server for its names.
var resources = map[schema.GroupKind]schema.GroupVersionResource{
	{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: {
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
	{Group: "node.k8s.io", Kind: "RuntimeClass"}: {Group: "node.k8s.io", Version: "v1", Resource: "runtimeclasses"},
}

// Ready waits until the server answers that it is, and returns its version.
func Ready(ctx context.Context, config *rest.Config) (string, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	err = until(ctx, "the server is ready", func() error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
	if err != nil {
		return "", err
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		return "", err
	}
	return version.GitVersion, nil
}

// Run brings in the objects of the files and our own, and waits until they and pods can be made.
func Run(ctx context.Context, config *rest.Config, files []string) error {
	config = rest.CopyConfig(config)
	config.QPS = -1
	plain, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	documents := [][]byte{runtimeClass}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		documents = append(documents, text)
	}
	for _, document := range documents {
		if err := apply(ctx, client, document); err != nil {
			return err
		}
	}
	return until(ctx, "the default service account is there", func() error {
		_, err := plain.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

func apply(ctx context.Context, client dynamic.Interface, text []byte) error {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		resource, ok := resources[object.GroupVersionKind().GroupKind()]
		if !ok {
			return fmt.Errorf("cannot bring in a %s", object.GroupVersionKind())
		}
		options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
		made, err := client.Resource(resource).Apply(ctx, object.GetName(), object, options)
		if err != nil {
			return fmt.Errorf("apply %s: %w", object.GetName(), err)
		}
		if resource.Resource == "customresourcedefinitions" {
			if err := established(ctx, client, resource, made); err != nil {
				return err
			}
		}
	}
}

// established waits until the server serves the new kind: it says so first, and does it a moment later.
func established(
	ctx context.Context, client dynamic.Interface, crds schema.GroupVersionResource, crd *unstructured.Unstructured,
) error {
	err := until(ctx, crd.GetName()+" is established", func() error {
		found, err := client.Resource(crds).Get(ctx, crd.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(found.Object, "status", "conditions")
		for _, one := range conditions {
			condition, _ := one.(map[string]any)
			if condition["type"] == "Established" && condition["status"] == "True" {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %v", conditions)
	})
	if err != nil {
		return err
	}
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, one := range versions {
		version, _ := one.(map[string]any)
		name, _ := version["name"].(string)
		served := schema.GroupVersionResource{Group: group, Version: name, Resource: plural}
		err := until(ctx, served.String()+" is served", func() error {
			_, err := client.Resource(served).List(ctx, metav1.ListOptions{Limit: 1})
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// until tries until it goes well or the context ends, and then says what went wrong last.
func until(ctx context.Context, what string, try func() error) error {
	var last error
	for {
		err := try()
		if err == nil {
			return nil
		}
		// The end of our own time says nothing about the server.
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, last)
		case <-time.After(pause):
		}
	}
}
