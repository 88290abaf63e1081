package plane

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"muster.dev/tests/cluster/process"
)

// Peer is a running controller that isn't Muster's. It is installed with its own
// manifests, webhooks and all, and manages its own certificates; the test stands
// in for its pod only. Its webhooks are in the way of every other case, so cases
// with a peer run alone, and stop it before they end.
type Peer struct {
	LogPath string

	plane     *Plane
	product   product
	process   *process.Process
	clusterIP string
	installed []*unstructured.Unstructured
	previous  []*unstructured.Unstructured // CRDs that were there before, as they were
	cancel    context.CancelFunc
	stopped   bool
}

// product says what is particular about a controller.
type product struct {
	name      string // of its manifests, its user and, if it has no other, its program
	program   string
	overlay   string // what is installed, a kustomization below manifests-NAME
	crdsOnly  bool   // or only crds-NAME; then it has no webhooks and no health endpoint
	namespace string
	service   string // of its webhooks; empty: it has none
	secret    string // where it keeps the certificate of its webhooks
	// Its command line and environment, with its addresses in it.
	launch func(health, webhook string) (arguments, environment []string, err error)
}

// Where all of them expect the certificate of their webhooks.
const servingCertificates = "/tmp/k8s-webhook-server/serving-certs"

// Kinds of the manifests that make no sense without pods.
var podKinds = []string{"Deployment", "APIService"}

// startPeer installs a controller, starts it and waits until it is ready.
func (p *Plane) startPeer(product product) (*Peer, error) {
	if _, err := os.Stat(filepath.Join(p.peers, "complete")); err != nil {
		return nil, errors.New("its program is missing; tests/cluster/build.sh --peers builds it")
	}
	ctx, cancel := context.WithCancel(p.context)
	peer := &Peer{plane: p, product: product, cancel: cancel}
	err := peer.install()
	if err == nil {
		err = peer.start(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", product.name, errors.Join(err, peer.Stop()))
	}
	return peer, nil
}

// install applies the product's manifests.
func (r *Peer) install() error {
	p, name := r.plane, r.product.name
	if r.product.crdsOnly {
		crds, err := p.newestStored(name)
		if err != nil {
			return err
		}
		r.installed = crds
		return r.apply()
	}
	rendered, err := p.Kubectl("kustomize", filepath.Join(p.peers, "manifests-"+name, r.product.overlay))
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
	return p.awaitCRDs(names...)
}

func (r *Peer) start(ctx context.Context) error {
	p, product := r.plane, r.product
	ports, err := freePorts(2)
	if err != nil {
		return err
	}
	health, webhook := ports[0], ports[1]
	certificates := p.path("peer-" + product.name)
	if err := os.MkdirAll(certificates, 0o755); err != nil {
		return err
	}
	if product.service != "" {
		service, err := p.Client.CoreV1().Services(product.namespace).Get(p.context, product.service, metav1.GetOptions{})
		if err != nil {
			return err
		}
		r.clusterIP = service.Spec.ClusterIP
		p.gate.route(r.clusterIP, webhook)
		go r.mountSecret(ctx, certificates)
	}
	arguments, environment, err := product.launch(health, webhook)
	if err != nil {
		return err
	}
	environment = append(environment, "KUBECONFIG="+p.kubeconfig(product.name), "HOME="+p.Folder)
	r.LogPath = p.path("logs/" + product.name + ".log")
	if r.process, err = process.StartMounted(certificates, servingCertificates, product.name, r.LogPath, environment,
		filepath.Join(p.peers, cmp.Or(product.program, product.name)), arguments...); err != nil {
		return err
	}
	p.mutex.Lock()
	p.processes = append(p.processes, r.process)
	p.mutex.Unlock()
	if product.crdsOnly {
		return nil
	}
	return r.awaitReady(health, 2*time.Minute)
}

// mountSecret does what the kubelet does about the pod's volume: it writes the
// certificate to a folder, once the controller has made it.
func (r *Peer) mountSecret(ctx context.Context, folder string) {
	for ctx.Err() == nil {
		secret, err := r.plane.Client.CoreV1().Secrets(r.product.namespace).Get(ctx, r.product.secret, metav1.GetOptions{})
		if err == nil && len(secret.Data["tls.key"]) > 0 {
			for _, name := range []string{"ca.crt", "tls.key", "tls.crt"} { // the last is what is waited for
				// What can't be written is missed by the controller.
				_ = os.WriteFile(filepath.Join(folder, name), secret.Data[name], 0o600)
			}
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (r *Peer) awaitReady(health string, patience time.Duration) error {
	return r.plane.await(r.product.name+" to be ready", patience, func() error {
		response, err := httpClient.Get("http://" + health + "/readyz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	})
}

// Stop ends the controller and takes away all that it brought, its namespace
// excepted. CRDs that were there before are as they were, without objects. A
// second call does nothing.
func (r *Peer) Stop() error {
	if r.stopped {
		return nil
	}
	r.stopped = true
	var failed []error
	p := r.plane
	// While it runs: it takes its finalizers away. Twice, as some objects are
	// held by others.
	for _, crd := range r.crds() {
		_, err := r.deleteObjects(crd, false)
		failed = append(failed, err)
	}
	begin := time.Now()
	for _, crd := range r.crds() {
		failed = append(failed, p.await("the end of all "+crd.GetName(), time.Minute, func() error {
			left, err := r.deleteObjects(crd, time.Since(begin) > 10*time.Second)
			if err == nil && left > 0 {
				err = fmt.Errorf("there are %d", left)
			}
			return err
		}))
	}
	r.cancel()
	if r.process != nil {
		p.mutex.Lock()
		p.processes = slices.DeleteFunc(p.processes, func(one *process.Process) bool { return one == r.process })
		p.mutex.Unlock()
		if !r.process.Stop(20 * time.Second) {
			failed = append(failed, fmt.Errorf("%s didn't end within 20 s of SIGTERM, log %s", r.product.name, r.LogPath))
		}
	}
	failed = append(failed, r.uninstall())
	if r.clusterIP != "" {
		p.gate.route(r.clusterIP, "")
	}
	return errors.Join(failed...)
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

// portNumber is the port of one of freePorts' addresses.
func portNumber(address string) int {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		panic(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		panic(err)
	}
	return number
}
