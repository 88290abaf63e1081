package plane

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/yaml"
)

// Kinds of the manifests that make no sense without pods.
var podKinds = []string{"Deployment", "APIService"}

// install applies the product's manifests.
func (r *Peer) install() error {
	p, name := r.plane, r.product.name
	if r.product.crdsOnly {
		crds, err := newestStored(filepath.Join(r.folder, "crds-"+name))
		if err != nil {
			return err
		}
		r.installed = crds
		return r.apply()
	}
	if r.product.overlay == "" {
		return nil
	}
	rendered, err := p.Kubectl("kustomize", filepath.Join(r.folder, "manifests-"+name, r.product.overlay))
	if err != nil {
		return err
	}
	objects, err := readObjects([]byte(rendered))
	if err != nil {
		return err
	}
	r.installed = slices.DeleteFunc(objects, func(object *unstructured.Unstructured) bool {
		return slices.Contains(podKinds, object.GetKind())
	})
	return r.apply()
}

func (r *Peer) apply() error {
	p, name := r.plane, r.product.name
	var names []string
	for _, crd := range r.crds() {
		names = append(names, crd.GetName())
		switch previous, err := p.Dynamic.Resource(crdResource).Get(p.context, crd.GetName(), metav1.GetOptions{}); {
		case err == nil:
			r.previous = append(r.previous, previous)
		case !apierrors.IsNotFound(err):
			return err
		}
	}
	manifest := p.path("peer-" + name + ".yaml")
	if err := writeObjects(manifest, r.installed); err != nil {
		return err
	}
	if _, err := p.Kubectl("apply", "--server-side", "--force-conflicts", "--filename="+manifest); err != nil {
		return err
	}
	return p.AwaitCRDs(names...)
}

func (r *Peer) uninstall() error {
	p := r.plane
	kept := func(object *unstructured.Unstructured) bool {
		return object.GetKind() == "Namespace" || object.GetKind() == crdKind &&
			slices.ContainsFunc(r.previous, func(crd *unstructured.Unstructured) bool { return crd.GetName() == object.GetName() })
	}
	for _, crd := range r.previous {
		now, err := p.Dynamic.Resource(crdResource).Get(p.context, crd.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		crd.SetResourceVersion(now.GetResourceVersion())
		if _, err := p.Dynamic.Resource(crdResource).Update(p.context, crd, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	removed := slices.DeleteFunc(slices.Clone(r.installed), kept)
	if len(removed) == 0 {
		return nil
	}
	manifest := p.path("peer-" + r.product.name + ".yaml")
	if err := writeObjects(manifest, removed); err != nil {
		return err
	}
	_, err := p.Kubectl("delete", "--ignore-not-found", "--timeout=60s", "--filename="+manifest)
	return err
}

const crdKind = "CustomResourceDefinition"

// crds are those that the product brings.
func (r *Peer) crds() []*unstructured.Unstructured {
	var crds []*unstructured.Unstructured
	for _, object := range r.installed {
		if object.GetKind() == crdKind {
			crds = append(crds, object)
		}
	}
	return crds
}

// deleteObjects asks for the end of all objects of a CRD, with force also of what
// its controller doesn't let go. It returns how many there were.
func (r *Peer) deleteObjects(crd *unstructured.Unstructured, force bool) (int, error) {
	p := r.plane
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	client := p.Dynamic.Resource(schema.GroupVersionResource{Group: group, Resource: plural, Version: storedVersion(versions)})
	list, err := client.List(p.context, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return 0, nil // not even the CRD
	}
	if err != nil {
		return 0, err
	}
	for i := range list.Items {
		object := &list.Items[i]
		one := client.Namespace(object.GetNamespace())
		if object.GetDeletionTimestamp() == nil {
			err = one.Delete(p.context, object.GetName(), metav1.DeleteOptions{})
		} else if force {
			_, err = one.Patch(p.context, object.GetName(), types.MergePatchType,
				[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return 0, err
		}
	}
	return len(list.Items), nil
}

func storedVersion(versions []any) string {
	for _, version := range versions {
		if v, ok := version.(map[string]any); ok && v["storage"] == true {
			name, _ := v["name"].(string)
			return name
		}
	}
	return ""
}

// readObjects reads a stream of YAML documents.
func readObjects(content []byte) ([]*unstructured.Unstructured, error) {
	decoder := yamlutil.NewYAMLOrJSONDecoder(bytes.NewReader(content), 1<<16)
	var objects []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

func writeObjects(path string, objects []*unstructured.Unstructured) error {
	var all bytes.Buffer
	for _, object := range objects {
		content, err := yaml.Marshal(object.Object)
		if err != nil {
			return err
		}
		all.WriteString("---\n")
		all.Write(content)
	}
	return os.WriteFile(path, all.Bytes(), 0o644)
}

// newestStored reads a product's CRDs for a use without webhooks. Nobody converts
// between versions then, so what is stored is the newest one, the product's own.
func newestStored(folder string) ([]*unstructured.Unstructured, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var crds []*unstructured.Unstructured
	for _, file := range files {
		crd, err := readObject(file)
		if err != nil {
			return nil, err
		}
		versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
		if err != nil {
			return nil, err
		}
		var newest map[string]any
		for _, one := range versions {
			v := one.(map[string]any)
			v["storage"] = false
			if newest == nil || version.CompareKubeAwareVersionStrings(v["name"].(string), newest["name"].(string)) > 0 {
				newest = v
			}
		}
		newest["storage"] = true
		if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
			return nil, err
		}
		crds = append(crds, crd)
	}
	return crds, nil
}
