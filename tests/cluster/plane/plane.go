// Package plane starts a real control plane on loopback: etcd, kube-apiserver,
// kube-controller-manager, two kube-schedulers (one stock, one with Muster as
// its extender), Karpenter with its kwok provider, and kwok in the kubelets'
// place. Ports and folders are chosen per run, so that runs can't meet.
package plane

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"muster.dev/tests/cluster/kubelet"
	"muster.dev/tests/cluster/process"
	"muster.dev/tests/cluster/timeline"
)

// SchedulerName is the profile that Muster extends.
const SchedulerName = "coscheduling"

// Plane is a running control plane.
type Plane struct {
	Folder     string // everything of this run: logs, kubeconfigs, data
	Kubeconfig string // the administrator's
	Client     kubernetes.Interface
	Dynamic    dynamic.Interface
	Timeline   *timeline.Timeline
	Muster     *Muster
	Worker     string // the training worker's program

	programs   string
	peers      string
	server     string
	identities *identities
	gate       *gateService
	// Muster's configuration as deployed.
	musterSettings map[string]any
	webhooks       []*unstructured.Unstructured // likewise
	context        context.Context
	cancel         context.CancelFunc

	standalone  bool // Options.Standalone
	ungated     bool // Options.Ungated
	nativeGangs bool // Options.NativeGangs

	mutex     sync.Mutex
	processes []*process.Process                          // in the order they were started
	starts    map[string]func() (*process.Process, error) // how, by name
	replicas  []*Replica
	pods      *Pods // nil: nobody plays the kubelet of Muster's pods
}

// Options say where the things lie that a control plane is made of.
type Options struct {
	Programs  string // the folder that build.sh filled
	Peers     string // the one of build.sh --peers; needed where a case starts one
	Manifests string // the kustomization that deploys Muster
	Muster    string // the binary under test
	Worker    string // and the training worker's; needed where a case trains
	// Standalone has Muster run alone: no kube-scheduler stands beside it.
	Standalone bool
	// Ungated has it gate no pods; only Standalone.
	Ungated bool
	// Measured is for comparing programs on the API server: kube-schedulers,
	// Karpenter, kwok, the timeline and whoever makes a Job's pods are left out, so that
	// only what is measured loads the machine, and Requests tells what it asked for. StandIn starts Muster's
	// kube-scheduler.
	Measured bool
	// Audited keeps Requests without leaving anything out.
	Audited bool
	// NativeGangs has API server, controllers and the cluster's own scheduler know PodGroups of Kubernetes'
	// own, which takes 1.37 or later.
	NativeGangs bool
	// Bare is a cluster before Muster is installed: without its manifests and programs, and without the
	// timeline. RunPods runs what is installed then.
	Bare bool
}

// Start returns once every program is ready. On an error the folder is kept.
func Start(options Options) (*Plane, error) {
	folder, err := os.MkdirTemp("", "muster-cluster-")
	if err != nil {
		return nil, err
	}
	p := &Plane{
		Folder: folder, Worker: options.Worker, programs: options.Programs, peers: options.Peers,
		standalone: options.Standalone, ungated: options.Ungated, nativeGangs: options.NativeGangs,
		starts: map[string]func() (*process.Process, error){},
	}
	p.context, p.cancel = context.WithCancel(context.Background())
	if err := p.start(options); err != nil {
		p.Stop()
		return nil, fmt.Errorf("control plane in %s: %w", folder, err)
	}
	return p, nil
}

// StartServer starts etcd and kube-apiserver alone: no controller touches what is
// written. Of the Plane, Stop and what tells how to reach the server may be used.
func StartServer(programs string) (*Plane, error) {
	folder, err := os.MkdirTemp("", "muster-server-")
	if err != nil {
		return nil, err
	}
	p := &Plane{
		Folder: folder, programs: programs,
		starts: map[string]func() (*process.Process, error){},
	}
	p.context, p.cancel = context.WithCancel(context.Background())
	start := func() error {
		ports, err := freePorts(3)
		if err != nil {
			return err
		}
		p.server = "https://" + ports[0]
		if p.identities, err = createIdentities(p.path("identities")); err != nil {
			return err
		}
		p.Kubeconfig = p.kubeconfig("admin")
		if err := p.identities.writeKubeconfig(p.Kubeconfig, p.server, "admin", p.Token("admin")); err != nil {
			return err
		}
		if p.gate, err = serveGate(p.path("gate.socket"), p.path("egress.yaml"), func() []string { return nil }); err != nil {
			return err
		}
		if err := p.startStore(ports[0], ports[1], ports[2]); err != nil {
			return err
		}
		return p.connect()
	}
	if err := start(); err != nil {
		p.Stop()
		return nil, fmt.Errorf("API server in %s: %w", folder, err)
	}
	return p, nil
}

// URL is the API server's.
func (p *Plane) URL() string { return p.server }

// Authority is the certificate, PEM, that the API server's is signed with.
func (p *Plane) Authority() []byte { return p.identities.authority }

// Token is what a user of this run calls with; "" for one that there isn't.
func (p *Plane) Token(name string) string { return p.identities.tokens[name] }

func (p *Plane) start(options Options) (err error) {
	ports, err := freePorts(8)
	if err != nil {
		return err
	}
	p.server = "https://" + ports[0]
	if p.identities, err = createIdentities(p.path("identities")); err != nil {
		return err
	}
	for _, u := range users {
		if err := p.identities.writeKubeconfig(p.kubeconfig(u.name), p.server, u.name, p.Token(u.name)); err != nil {
			return err
		}
	}
	p.Kubeconfig = p.kubeconfig("admin")
	p.Muster = newMuster(p, options.Muster, ports[3:8])
	if p.gate, err = serveGate(p.path("gate.socket"), p.path("egress.yaml"), p.webhookEndpoints); err != nil {
		return err
	}

	var serverFlags []string
	if options.Measured || options.Audited {
		if serverFlags, err = p.auditFlags(); err != nil {
			return err
		}
	}
	if options.NativeGangs {
		serverFlags = append(serverFlags, "--runtime-config="+NativePodGroups.GroupVersion().String()+"=true")
	}
	serverFlags = append(serverFlags, p.clustersGates()...)
	if err := p.startStore(ports[0], ports[1], ports[2], serverFlags...); err != nil {
		return err
	}
	if err := p.connect(); err != nil {
		return err
	}
	if err := p.run("kube-controller-manager", nil, append(p.clustersGates(),
		"--kubeconfig="+p.kubeconfig("system:kube-controller-manager"),
		"--leader-elect=false",
		"--secure-port=0",
		"--controllers="+strings.Join(controllersOf(options), ","),
		"--service-account-private-key-file="+p.identities.path("service-account.key"),
		// kwok answers for the kubelets; a busy machine must not look like
		// dead nodes.
		"--node-monitor-grace-period=1h",
		"--kube-api-qps=1000", "--kube-api-burst=1000",
	)...); err != nil {
		return err
	}
	if !options.Measured {
		if err := p.startScheduler("default-scheduler", p.stockSchedulerConfig()); err != nil {
			return err
		}
	}
	if err := p.createCRDs(); err != nil {
		return err
	}
	if options.Bare {
		return p.startNodes()
	}
	// Before there are nodes: the Deployment's pod must not run.
	if err := p.deploy(options.Manifests); err != nil {
		return err
	}
	if options.Measured {
		return nil
	}
	if err := p.StandIn(); err != nil {
		return err
	}
	if err := p.startNodes(); err != nil {
		return err
	}
	return p.Record()
}

// Record begins the Timeline, which a Bare plane has only from here on: PodGroups must be defined.
func (p *Plane) Record() (err error) {
	p.Timeline, err = timeline.Record(p.context, p.Dynamic)
	return err
}

// The controllers that a cluster of pods and nodes needs; the others would
// only cost time.
var controllers = []string{
	"clusterrole-aggregation-controller",
	"deployment-controller",
	"disruption-controller",
	"garbage-collector-controller",
	"job-controller",
	"namespace-controller",
	"node-lifecycle-controller",
	"persistentvolume-binder-controller",
	"pod-garbage-collector-controller",
	"replicaset-controller",
	"resourcequota-controller",
	"serviceaccount-controller",
	"taint-eviction-controller",
	"validatingadmissionpolicy-status-controller",
}

func controllersOf(options Options) []string {
	some := slices.Clone(controllers)
	if options.NativeGangs {
		some = append(some, "podgroup-protection-controller")
	}
	if options.Bare {
		return append(some, "endpointslice-controller")
	}
	return slices.DeleteFunc(some, func(name string) bool {
		return options.Measured && name == "job-controller"
	})
}

func (p *Plane) startStore(serverAddress, etcdAddress, peerAddress string, serverFlags ...string) error {
	if err := p.run("etcd", nil,
		"--data-dir="+p.path("etcd"),
		"--listen-client-urls=http://"+etcdAddress, "--advertise-client-urls=http://"+etcdAddress,
		"--listen-peer-urls=http://"+peerAddress, "--initial-advertise-peer-urls=http://"+peerAddress,
		"--initial-cluster=default=http://"+peerAddress,
		// The data dies with the run.
		"--unsafe-no-fsync",
		"--log-level=warn",
	); err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(serverAddress)
	if err != nil {
		return err
	}
	return p.run("kube-apiserver", nil, append(serverFlags,
		"--etcd-servers=http://"+etcdAddress,
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port="+port,
		"--tls-cert-file="+p.identities.path("server.crt"),
		"--tls-private-key-file="+p.identities.path("server.key"),
		"--cert-dir="+p.path("apiserver"),
		"--token-auth-file="+p.identities.path("tokens.csv"),
		"--requestheader-client-ca-file="+p.identities.path("front-proxy-ca.crt"),
		"--requestheader-allowed-names="+frontProxyName,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file="+p.identities.path("front-proxy.crt"),
		"--proxy-client-key-file="+p.identities.path("front-proxy.key"),
		"--service-account-issuer="+p.server,
		"--service-account-key-file="+p.identities.path("service-account.key"),
		"--service-account-signing-key-file="+p.identities.path("service-account.key"),
		"--authorization-mode=RBAC",
		// Pods need no mounted tokens here.
		"--disable-admission-plugins=ServiceAccount",
		"--service-cluster-ip-range=10.96.0.0/16",
		"--egress-selector-config-file="+p.path("egress.yaml"),
		// A loopback address is no valid endpoint of the Service kubernetes.
		"--endpoint-reconciler-type=none",
		"--profiling=false",
	)...)
}

func (p *Plane) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 1000, 1000
	// A warning for each use of a deprecated field isn't a finding here.
	config.WarningHandler = rest.NoWarnings{}
	if p.Client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if p.Dynamic, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	return p.await("kube-apiserver to be ready", 2*time.Minute, func() error {
		return p.Client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(p.context).Error()
	})
}

var crdResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// createCRDs creates those of Karpenter and its kwok provider.
func (p *Plane) createCRDs() error {
	files, err := filepath.Glob(filepath.Join(p.programs, "crds", "*.yaml"))
	if err != nil {
		return err
	}
	var names []string
	for _, file := range files {
		crd, err := readObject(file)
		if err != nil {
			return err
		}
		if _, err := p.Dynamic.Resource(crdResource).Create(p.context, crd, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		names = append(names, crd.GetName())
	}
	return p.AwaitCRDs(names...)
}

// AwaitCRDs returns when the API server serves them all. (kubectl wait gives up
// on a CRD that has no condition yet.)
func (p *Plane) AwaitCRDs(names ...string) error {
	return p.await("CRDs to be established", time.Minute, func() error {
		for _, name := range names {
			crd, err := p.Dynamic.Resource(crdResource).Get(p.context, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
			established := false
			for _, condition := range conditions {
				c := condition.(map[string]any)
				established = established || c["type"] == "Established" && c["status"] == "True"
			}
			if !established {
				return fmt.Errorf("%s isn't established", name)
			}
			plural, group, _ := strings.Cut(name, ".")
			versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
			for _, version := range versions {
				v := version.(map[string]any)
				if v["storage"] != true {
					continue // others may need a webhook that isn't up
				}
				stored := schema.GroupVersionResource{Group: group, Version: v["name"].(string), Resource: plural}
				if _, err := p.Dynamic.Resource(stored).List(p.context, metav1.ListOptions{Limit: 1}); err != nil {
					return fmt.Errorf("%s %s isn't served: %w", name, stored.Version, err)
				}
			}
		}
		return nil
	})
}

func readObject(file string) (*unstructured.Unstructured, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(content, &object.Object); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return object, nil
}

func (p *Plane) startNodes() error {
	if err := p.run("kwok", []string{
		// kwok and Karpenter look for settings in the home directory.
		"HOME=" + p.Folder,
	},
		"--kubeconfig="+p.kubeconfig("kwok"),
		"--manage-all-nodes=false",
		"--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
		// It warns that its Stages can say that too; then all of them would have to be written out.
		"--disregard-status-with-annotation-selector="+kubelet.Annotation+"="+kubelet.RunsProcesses,
	); err != nil {
		return err
	}
	instanceTypes := p.path("instance-types.json")
	if err := os.WriteFile(instanceTypes, instanceTypesJSON(), 0o644); err != nil {
		return err
	}
	return p.run("karpenter", []string{
		"HOME=" + p.Folder,
		"KUBECONFIG=" + p.kubeconfig("karpenter"),
		"DISABLE_LEADER_ELECTION=true",
		"DISABLE_CLUSTER_STATE_OBSERVABILITY=true",
		"INSTANCE_TYPES_FILE_PATH=" + instanceTypes,
		"METRICS_PORT=0",
		"HEALTH_PROBE_PORT=0",
		"SYSTEM_NAMESPACE=kube-system",
	})
}

// KubectlProgram is where the stock kubectl is.
func (p *Plane) KubectlProgram() string { return p.program("kubectl") }

// Kubectl runs the stock kubectl as the administrator.
func (p *Plane) Kubectl(arguments ...string) (string, error) {
	return p.kubectl(p.Kubeconfig, arguments...)
}

// KubectlAsMuster runs it with the rights that Muster has.
func (p *Plane) KubectlAsMuster(arguments ...string) (string, error) {
	return p.kubectl(p.kubeconfig(serviceAccount), arguments...)
}

// Kueuectl runs Kueue's own tool, which is one of the peers' programs, as the administrator.
func (p *Plane) Kueuectl(arguments ...string) (string, error) {
	return p.command(filepath.Join(p.peers, "kueuectl"), p.Kubeconfig, arguments...)
}

func (p *Plane) kubectl(kubeconfig string, arguments ...string) (string, error) {
	return p.command(p.program("kubectl"), kubeconfig, arguments...)
}

func (p *Plane) command(program, kubeconfig string, arguments ...string) (string, error) {
	command := exec.Command(program, arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+p.Folder)
	output, err := command.CombinedOutput()
	if err != nil {
		return string(output), fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(arguments, " "), err, output)
	}
	return string(output), nil
}

// Dead names the programs that have ended although nobody stopped them, with
// the end of their logs. Empty when all is well.
func (p *Plane) Dead() string {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	var report strings.Builder
	for _, one := range p.processes {
		if !one.Running() {
			fmt.Fprintf(&report, "%s has ended (%s), log %s:\n%s\n", one.Name, one.Ending(), one.LogPath, one.Tail(15))
		}
	}
	return report.String()
}

// Stop ends every program, the newest first. The folder stays.
func (p *Plane) Stop() {
	if p.Muster != nil {
		p.Muster.Kill()
	}
	p.cancel()
	if p.gate != nil {
		p.gate.close()
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, replica := range p.replicas {
		replica.Lose()
	}
	if p.pods != nil {
		p.pods.kill()
	}
	for i := len(p.processes) - 1; i >= 0; i-- {
		// Nothing is kept, so nobody needs a graceful end; kube-apiserver's
		// takes up to 15 s.
		p.processes[i].Kill()
	}
	p.processes = nil
}

// webhookEndpoints are the addresses behind the webhook's Service.
func (p *Plane) webhookEndpoints() []string {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	endpoints := []string{p.Muster.WebhookAddress}
	for _, replica := range p.replicas {
		endpoints = append(endpoints, replica.Muster.WebhookAddress)
	}
	if p.pods != nil {
		endpoints = append(endpoints, p.pods.endpoints()...)
	}
	return endpoints
}

// program is the path of one of the stock programs.
func (p *Plane) program(name string) string { return filepath.Join(p.programs, name) }

func (p *Plane) path(name string) string { return filepath.Join(p.Folder, name) }

func (p *Plane) kubeconfig(user string) string {
	return p.path("identities/" + strings.ReplaceAll(user, ":", "-") + ".kubeconfig")
}

func (p *Plane) run(name string, environment []string, arguments ...string) error {
	return p.runAs(name, name, environment, arguments...)
}

func (p *Plane) runAs(name, program string, environment []string, arguments ...string) error {
	start := func() (*process.Process, error) {
		return process.Start(name, p.path("logs/"+name+".log"), environment, p.program(program), arguments...)
	}
	started, err := start()
	if err != nil {
		return err
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.processes = append(p.processes, started)
	p.starts[name] = start
	return nil
}

// await retries until the attempt succeeds, and gives up at once when one of
// the programs has died.
func (p *Plane) await(what string, patience time.Duration, attempt func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := attempt()
		if err == nil {
			return nil
		}
		if dead := p.Dead(); dead != "" {
			return errors.New(dead)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waited %v for %s: %w", patience, what, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Below what Linux gives to whoever asks for any port, which would take one while its program is
// down.
const lowestPort, highestPort = 20000, 32000

var claims sync.Map // of ports, kept open

// freePorts returns loopback addresses that nothing listens on, and that no other case will be given
// while this process lives.
func freePorts(count int) ([]string, error) {
	var addresses []string
	for tries := 0; len(addresses) < count; tries++ {
		if tries > 100*count {
			return nil, fmt.Errorf("no %d ports are free between %d and %d", count, lowestPort, highestPort)
		}
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		// Other runners look for ports at the same time: the name is taken until this process ends.
		claim, err := net.Listen("unix", fmt.Sprintf("@muster-tests-port-%d", port))
		if err != nil {
			continue
		}
		claims.Store(port, claim)
		address := fmt.Sprintf("127.0.0.1:%d", port)
		listener, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		listener.Close()
		addresses = append(addresses, address)
	}
	return addresses, nil
}

// httpClient talks to Muster's own listeners, without the default client's
// endless patience.
var httpClient = &http.Client{Timeout: 5 * time.Second}
