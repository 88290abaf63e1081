package plane

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"muster.dev/tests/cluster/process"
)

// SystemNode is where pods of Muster's Deployment run, once RunPods plays its kubelet.
const SystemNode = "system"

// Pods are those of Muster's namespace, each a kube-scheduler and a Muster that run as programs on
// loopback: with the arguments, ConfigMaps and account that the Deployment gives them, on a host of
// the pod's name. Its Services lead to them as kube-proxy would.
type Pods struct {
	plane    *Plane
	versions map[string]string

	mutex     sync.Mutex
	running   map[types.UID]*runningPod
	published bool // by the webhook's Service, whether they are ready or not
}

type runningPod struct {
	name       string
	containers []*container
	health     string // addresses
	webhook    string
	aggregated string
	ready      bool
	answered   time.Time // when it last said that it is ready
	ending     bool
}

// So long a pod that was ready may say that it isn't, or nothing: three probes, five seconds apart, as
// the Deployment asks of a kubelet.
const failsProbesFor = 10 * time.Second

// RunPods makes the node and runs what is scheduled there, until the plane stops. Versions are the
// Musters of images; any other image stands for the one under test.
func (p *Plane) RunPods(versions map[string]string) (*Pods, error) {
	many := resource.MustParse("64")
	capacity := corev1.ResourceList{corev1.ResourceCPU: many, corev1.ResourceMemory: resource.MustParse("256Gi"), corev1.ResourcePods: many}
	if _, err := p.Client.CoreV1().Nodes().Create(p.context, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: SystemNode, Labels: map[string]string{corev1.LabelOSStable: "linux", corev1.LabelHostname: SystemNode},
	}}, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	// A patch: the controllers write the node, too.
	now := metav1.Now()
	patch, err := json.Marshal(map[string]any{"status": corev1.NodeStatus{Capacity: capacity, Allocatable: capacity,
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
			LastHeartbeatTime: now, LastTransitionTime: now}}}})
	if err != nil {
		return nil, err
	}
	if _, err := p.Client.CoreV1().Nodes().Patch(p.context, SystemNode, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return nil, err
	}
	pods := &Pods{plane: p, versions: versions, running: map[types.UID]*runningPod{}}
	p.mutex.Lock()
	p.pods = pods
	p.mutex.Unlock()
	go func() {
		for p.context.Err() == nil {
			// What fails is tried again, as by a kubelet; whoever waits for it says that it isn't there.
			if err := pods.sync(); err != nil && p.context.Err() == nil {
				fmt.Fprintln(os.Stderr, "the kubelet of", SystemNode+":", err)
			}
			time.Sleep(200 * time.Millisecond)
		}
	}()
	return pods, nil
}

// endpoints are the webhook's addresses.
func (s *Pods) endpoints() []string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	var addresses []string
	for _, one := range s.running {
		if s.published || (one.ready && !one.ending) {
			addresses = append(addresses, one.webhook)
		}
	}
	return addresses
}

// kill ends all programs.
func (s *Pods) kill() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, one := range s.running {
		for _, c := range one.containers {
			c.unwanted()
			c.crash()
		}
	}
}

// end stops a pod's programs, then does `after`; the second time it does nothing.
func (s *Pods) end(one *runningPod, after func()) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if one.ending {
		return
	}
	one.ending = true
	go func() {
		one.stop()
		after()
	}()
}

func (s *Pods) sync() error {
	list, err := s.plane.Client.CoreV1().Pods(deploymentNamespace).List(s.plane.context, metav1.ListOptions{})
	if err != nil {
		return err
	}
	service, err := s.plane.Client.CoreV1().Services(deploymentNamespace).Get(s.plane.context, webhookService, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	s.mutex.Lock()
	s.published = err == nil && service.Spec.PublishNotReadyAddresses
	s.mutex.Unlock()
	there := map[types.UID]bool{}
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.Spec.NodeName != SystemNode {
			continue
		}
		there[pod.UID] = true
		if err := s.syncPod(pod); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("pod %s: %w", pod.Name, err)
		}
	}
	s.mutex.Lock()
	var gone []*runningPod
	for uid, one := range s.running {
		if !there[uid] {
			gone = append(gone, one)
		}
	}
	s.mutex.Unlock()
	for _, one := range gone {
		s.end(one, func() {})
	}
	return nil
}

func (s *Pods) syncPod(pod *corev1.Pod) error {
	s.mutex.Lock()
	one := s.running[pod.UID]
	s.mutex.Unlock()
	switch {
	case pod.DeletionTimestamp != nil:
		if one != nil {
			s.end(one, func() {
				now := int64(0)
				// One that is gone meanwhile is gone.
				_ = s.plane.Client.CoreV1().Pods(pod.Namespace).Delete(s.plane.context, pod.Name, metav1.DeleteOptions{
					GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
			})
		}
		return nil
	case one == nil:
		started, err := s.plane.startPod(pod, s.versions)
		if err != nil {
			return err
		}
		s.mutex.Lock()
		s.running[pod.UID] = started
		s.mutex.Unlock()
		return s.setStatus(pod, started)
	}
	if pod.Labels["muster.dev/leading"] == "true" && one.aggregated != "" {
		service, err := s.plane.Client.CoreV1().Services(pod.Namespace).Get(s.plane.context, queryService, metav1.GetOptions{})
		if err != nil {
			return err
		}
		s.plane.gate.route(service.Spec.ClusterIP, one.aggregated)
	}
	if ready := one.isReady(); ready != one.ready {
		s.mutex.Lock()
		one.ready = ready
		s.mutex.Unlock()
		return s.setStatus(pod, one)
	}
	return nil
}

func (s *Pods) setStatus(pod *corev1.Pod, one *runningPod) error {
	status := corev1.ConditionFalse
	if one.ready {
		status = corev1.ConditionTrue
	}
	now := metav1.Now()
	var containers []corev1.ContainerStatus
	for _, container := range pod.Spec.Containers {
		containers = append(containers, corev1.ContainerStatus{Name: container.Name, Image: container.Image, Ready: one.ready,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}})
	}
	patch, err := json.Marshal(map[string]any{"status": corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &now, ContainerStatuses: containers,
		PodIP: "10.1.2.3", PodIPs: []corev1.PodIP{{IP: "10.1.2.3"}},
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: status, LastTransitionTime: now},
			{Type: corev1.ContainersReady, Status: status, LastTransitionTime: now},
		},
	}})
	if err != nil {
		return err
	}
	_, err = s.plane.Client.CoreV1().Pods(pod.Namespace).Patch(s.plane.context, pod.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	return err
}

// startPod starts both containers.
func (p *Plane) startPod(pod *corev1.Pod, versions map[string]string) (*runningPod, error) {
	folder := p.path("pods/" + pod.Name)
	account, err := p.mountAccount(pod.Namespace, pod.Spec.ServiceAccountName, folder)
	if err != nil {
		return nil, err
	}
	environment, err := p.podEnvironment()
	if err != nil {
		return nil, err
	}
	addresses := map[string]string{} // by the port that the pod would have
	listen := func(port string) (string, error) {
		if addresses[port] == "" {
			free, err := freePorts(1)
			if err != nil {
				return "", err
			}
			addresses[port] = free[0]
		}
		return addresses[port], nil
	}
	one := &runningPod{name: pod.Name}
	configs := map[string]string{} // the folder of each volume
	for _, volume := range pod.Spec.Volumes {
		if volume.ConfigMap == nil {
			return nil, fmt.Errorf("volume %s is no ConfigMap", volume.Name)
		}
		configMap, err := p.Client.CoreV1().ConfigMaps(pod.Namespace).Get(p.context, volume.ConfigMap.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		configs[volume.Name] = filepath.Join(folder, volume.Name)
		if err := os.MkdirAll(configs[volume.Name], 0o755); err != nil {
			return nil, err
		}
		extender, err := listen("8888")
		if err != nil {
			return nil, err
		}
		for name, text := range configMap.Data {
			if name == "config.yaml" {
				if text, err = p.onLoopback(text, extender); err != nil {
					return nil, err
				}
			}
			if err := os.WriteFile(filepath.Join(configs[volume.Name], name), []byte(text), 0o644); err != nil {
				return nil, err
			}
		}
	}
	for _, declared := range pod.Spec.Containers {
		var arguments []string
		for _, argument := range append(declared.Command, declared.Args...) {
			for _, mount := range declared.VolumeMounts {
				argument = strings.ReplaceAll(argument, mount.MountPath+"/", configs[mount.Name]+"/")
			}
			flag, value, _ := strings.Cut(argument, "=")
			if strings.HasSuffix(flag, "listen") {
				_, port, _ := strings.Cut(value, ":")
				address, err := listen(port)
				if err != nil {
					return nil, err
				}
				switch flag {
				case "--listen":
					// Where a version without a port for the kubelet answers it.
					one.health = cmp.Or(one.health, address)
				case "--health-listen":
					one.health = address
				case "--webhook-listen":
					one.webhook = address
				case "--aggregated-listen":
					one.aggregated = address
				}
				argument = flag + "=" + address
			}
			if flag == "--secure-port" {
				argument = "--secure-port=0"
			}
			arguments = append(arguments, argument)
		}
		program := cmp.Or(versions[declared.Image], p.Muster.binary)
		if declared.Name != "muster" {
			program, arguments = p.program(arguments[0]), arguments[1:]
		}
		name := declared.Name + "-" + pod.Name
		c := &container{start: func() (*process.Process, error) {
			return process.StartInPod(pod.Name, account, accountPath, name, p.path("logs/"+name+".log"), environment, program, arguments...)
		}}
		one.containers = append(one.containers, c)
		if err := c.begin(); err != nil {
			one.stop()
			return nil, err
		}
	}
	return one, nil
}

// podEnvironment is what a container finds the API server by.
func (p *Plane) podEnvironment() ([]string, error) {
	host, port, err := net.SplitHostPort(strings.TrimPrefix(p.server, "https://"))
	return []string{"KUBECONFIG=", "KUBERNETES_SERVICE_HOST=" + host, "KUBERNETES_SERVICE_PORT=" + port}, err
}

// Where a container finds its pod's account.
const accountPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// mountAccount writes what a kubelet mounts there.
func (p *Plane) mountAccount(namespace, name, folder string) (string, error) {
	token, err := p.Kubectl("create", "token", name, "--namespace="+namespace, "--duration=24h")
	if err != nil {
		return "", err
	}
	account := filepath.Join(folder, "account")
	if err := os.MkdirAll(account, 0o700); err != nil {
		return "", err
	}
	for name, content := range map[string]string{
		"token": strings.TrimSpace(token), "ca.crt": string(p.Authority()), "namespace": namespace,
	} {
		if err := os.WriteFile(filepath.Join(account, name), []byte(content), 0o600); err != nil {
			return "", err
		}
	}
	return account, nil
}

// onLoopback is a configuration with addresses and instance types of this run.
func (p *Plane) onLoopback(text, extender string) (string, error) {
	var config map[string]any
	if err := yaml.Unmarshal([]byte(text), &config); err != nil {
		return "", err
	}
	if config["kind"] == "KubeSchedulerConfiguration" {
		for _, one := range config["extenders"].([]any) {
			one.(map[string]any)["urlPrefix"] = "http://" + extender
		}
	} else {
		types := p.path("muster-instance-types.txt")
		if err := os.WriteFile(types, instanceTypesTable(), 0o644); err != nil {
			return "", err
		}
		config["instanceTypes"] = types
	}
	content, err := yaml.Marshal(config)
	return string(content), err
}

// isReady probes it, as only sync does.
func (r *runningPod) isReady() bool {
	if response, err := httpClient.Get("http://" + r.health + "/readyz"); err == nil {
		response.Body.Close()
		if response.StatusCode == http.StatusOK {
			r.answered = time.Now()
			return true
		}
	}
	return r.ready && time.Since(r.answered) < failsProbesFor
}

func (r *runningPod) stop() {
	var all sync.WaitGroup
	for _, c := range r.containers {
		if one := c.unwanted(); one != nil {
			all.Go(func() { one.Stop(45 * time.Second) })
		}
	}
	all.Wait()
}
