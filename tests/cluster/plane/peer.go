package plane

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
	folder    string // of its program and manifests
	process   *process.Process
	clusterIP string
	installed []*unstructured.Unstructured
	previous  []*unstructured.Unstructured // CRDs that were there before, as they were
	cancel    context.CancelFunc
	stopped   bool
}

// product says what is particular about a controller.
type product struct {
	name    string // of its manifests, its user and, if it has no other, its program
	program string
	// What is installed, a kustomization below manifests-NAME; without one it has no
	// webhooks and no health endpoint.
	overlay   string
	crdsOnly  bool // without an overlay: crds-NAME are installed
	namespace string
	service   string // of its webhooks; empty: it has none
	secret    string // where it keeps the certificate of its webhooks
	// It says that it is ready as soon as one of its webhooks answers; the others
	// follow.
	earlyReady bool
	// Its command line and environment, with its addresses in it.
	launch func(health, webhook string) (arguments, environment []string, err error)
}

// Where all of them expect the certificate of their webhooks.
const servingCertificates = "/tmp/k8s-webhook-server/serving-certs"

// startPeer installs a controller, starts it and waits until it is ready.
func (p *Plane) startPeer(product product) (*Peer, error) {
	folder := p.peers
	if _, err := os.Stat(filepath.Join(folder, cmp.Or(product.program, product.name))); err != nil {
		return nil, errors.New("its program is missing; tests/cluster/build.sh --peers builds it")
	}
	ctx, cancel := context.WithCancel(p.context)
	peer := &Peer{plane: p, product: product, folder: folder, cancel: cancel}
	err := peer.install()
	if err == nil {
		err = peer.start(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", product.name, errors.Join(err, peer.Stop()))
	}
	return peer, nil
}

func (r *Peer) start(ctx context.Context) error {
	p, product := r.plane, r.product
	ports, err := freePorts(2)
	if err != nil {
		return err
	}
	health, webhook := ports[0], ports[1]
	// Not that of an earlier start: its certificate is of another authority.
	certificates, err := os.MkdirTemp(p.Folder, "peer-"+product.name+"-")
	if err != nil {
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
		filepath.Join(r.folder, cmp.Or(product.program, product.name)), arguments...); err != nil {
		return err
	}
	p.mutex.Lock()
	p.processes = append(p.processes, r.process)
	p.mutex.Unlock()
	if product.overlay == "" {
		return nil
	}
	if err := r.awaitReady(health, 2*time.Minute); err != nil || !product.earlyReady {
		return err
	}
	return r.awaitWebhooks(webhook, time.Minute)
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

// awaitWebhooks waits until something answers on the path of each webhook that is
// installed. An empty question is enough.
func (r *Peer) awaitWebhooks(address string, patience time.Duration) error {
	// Whose certificate it is doesn't matter here.
	client := &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true},
	}
	for _, object := range r.installed {
		webhooks, _, _ := unstructured.NestedSlice(object.Object, "webhooks")
		for _, webhook := range webhooks {
			path, _, _ := unstructured.NestedString(webhook.(map[string]any), "clientConfig", "service", "path")
			if err := r.plane.await("the webhook "+path, patience, func() error {
				response, err := client.Post("https://"+address+path, "application/json", strings.NewReader("{}"))
				if err != nil {
					return err
				}
				response.Body.Close()
				if response.StatusCode == http.StatusNotFound {
					return errors.New(response.Status)
				}
				return nil
			}); err != nil {
				return err
			}
		}
	}
	return nil
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
	failed = append(failed, r.Halt(), r.uninstall())
	return errors.Join(failed...)
}

// Halt ends its program, as its Deployment does with 0 replicas; all that it brought stays.
func (r *Peer) Halt() error {
	p := r.plane
	r.cancel()
	if r.clusterIP != "" {
		p.gate.route(r.clusterIP, "")
	}
	if r.process == nil {
		return nil
	}
	ending := r.process
	r.process = nil
	p.mutex.Lock()
	p.processes = slices.DeleteFunc(p.processes, func(one *process.Process) bool { return one == ending })
	p.mutex.Unlock()
	if !ending.Stop(20 * time.Second) {
		return fmt.Errorf("%s didn't end within 20 s of SIGTERM, log %s", r.product.name, r.LogPath)
	}
	return nil
}

// Resume applies its manifests once more and starts its program again.
func (r *Peer) Resume() error {
	p := r.plane
	if _, err := p.Kubectl("apply", "--server-side", "--force-conflicts", "--filename="+p.path("peer-"+r.product.name+".yaml")); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(p.context)
	r.cancel = cancel
	return r.start(ctx)
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
