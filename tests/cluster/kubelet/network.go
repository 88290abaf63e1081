package kubelet

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/tests/cluster/process"
)

// network is the one that pods share: a bridge in a network namespace that
// belongs to a process of its own, so it goes with that process, and this
// machine's network knows nothing of it.
type network struct {
	keeper *process.Process
	names  *names

	mutex sync.Mutex
	last  netip.Addr
}

const (
	bridge = "pods"
	// All of them see each other without routes.
	prefixBits = 16
)

func newNetwork(folder string) (*network, error) {
	keeper, err := process.StartContained("pod-network", filepath.Join(folder, "pod-network.log"), nil, "sleep", "infinity")
	if err != nil {
		return nil, fmt.Errorf("a network for pods takes root and network namespaces: %w", err)
	}
	n := &network{keeper: keeper, last: netip.MustParseAddr("10.244.0.0"), names: &names{}}
	for _, arguments := range [][]string{
		{"link", "add", bridge, "type", "bridge"},
		{"link", "set", bridge, "up"},
	} {
		if err := n.ip(arguments...); err != nil {
			n.close()
			return nil, err
		}
	}
	return n, nil
}

func (n *network) close() { n.keeper.Kill() }

// namespace names the network's namespace to programs.
func (n *network) namespace() string { return fmt.Sprintf("/proc/%d/ns/net", n.keeper.ID()) }

// ip runs the program of that name in the network's namespace.
func (n *network) ip(arguments ...string) error {
	command := exec.Command("nsenter", append([]string{"--net=" + n.namespace(), "ip"}, arguments...)...)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(arguments, " "), err, output)
	}
	return nil
}

// address is the next pod's. None is given twice, as a pod that is made anew has
// another one than before.
func (n *network) address() netip.Addr {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.last = n.last.Next()
	return n.last
}

// link is the bridge's end of a pod's cable.
func link(address netip.Addr) string {
	bytes := address.As4()
	return fmt.Sprintf("pod-%d-%d", bytes[2], bytes[3])
}

// cut takes a pod off the network: nothing that it sends from now on arrives, not
// even that it has ended.
func (n *network) cut(address netip.Addr) error { return n.ip("link", "set", link(address), "down") }

// names stands in for the cluster's DNS: it keeps the file of hosts of each pod
// up to date with the headless Services of the namespace and the pods behind
// them. The zero value has none.
type names struct {
	mutex    sync.Mutex
	services map[types.UID]*corev1.Service
	pods     map[types.UID]*host
}

// host is a pod that runs.
type host struct {
	name    string
	labels  labels.Set
	address netip.Addr
	file    *os.File
	ready   bool // and so found under its Services' names
}

// The file of hosts keeps its size: one write replaces it, and nobody reads half.
const hostsSize = 4096

// add makes the file of hosts of a pod.
func (n *names) add(pod *corev1.Pod, address netip.Addr, path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if n.pods == nil {
		n.pods = map[types.UID]*host{}
	}
	n.pods[pod.UID] = &host{name: pod.Name, labels: pod.Labels, address: address, file: file}
	return n.write()
}

// setReady makes a pod known by its Services' names.
func (n *names) setReady(pod types.UID) error {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.pods[pod].ready = true
	return n.write()
}

func (n *names) remove(pod types.UID) error {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if gone := n.pods[pod]; gone != nil {
		gone.file.Close()
		delete(n.pods, pod)
	}
	return n.write()
}

// setServices replaces what is known of Services.
func (n *names) setServices(services map[types.UID]*corev1.Service) error {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.services = services
	return n.write()
}

func (n *names) write() error {
	var known bytes.Buffer
	for _, service := range n.services {
		if service.Spec.ClusterIP != corev1.ClusterIPNone || len(service.Spec.Selector) == 0 {
			continue
		}
		selector := labels.SelectorFromSet(service.Spec.Selector)
		for _, pod := range n.pods {
			if pod.ready && selector.Matches(pod.labels) {
				short := service.Name + "." + service.Namespace
				fmt.Fprintf(&known, "%s %s %s %s.svc %s.svc.cluster.local\n", pod.address, service.Name, short, short, short)
			}
		}
	}
	for _, pod := range n.pods {
		content := fmt.Appendf(nil, "127.0.0.1 localhost\n%s %s\n%s", pod.address, pod.name, known.Bytes())
		if len(content) > hostsSize {
			return fmt.Errorf("the pods' hosts take %d bytes, more than %d", len(content), hostsSize)
		}
		content = append(content, bytes.Repeat([]byte("\n"), hostsSize-len(content))...)
		if _, err := pod.file.WriteAt(content, 0); err != nil {
			return err
		}
	}
	return nil
}
