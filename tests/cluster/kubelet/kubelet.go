// Package kubelet stands in for the kubelets of pods whose commands are to be
// run, where kwok only says that they run. Each is a process of this machine with
// an address, a host name and volumes of its own, told by its name of a Service
// and ended by signals. Its life is told in the pod's status as a kubelet tells
// it, exit code and termination message included.
//
// It runs no images: the command is looked up in a PATH. It runs no init containers
// either, and restarts nothing: pods must have restartPolicy Never.
package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// A pod with this annotation and value is run; kwok leaves it alone.
const (
	Annotation    = "tests.muster.dev/kubelet"
	RunsProcesses = "runs-processes"
)

// Options say which pods, and what they are run with.
type Options struct {
	Client    kubernetes.Interface
	Namespace string // whose pods it runs, on whatever nodes they are bound to
	Path      string // of every container, in its image's place
	Folder    string // for logs, and what containers see of the kubelet
}

// Kubelet is that of all nodes of a namespace's pods.
type Kubelet struct {
	options Options
	network *network
	context context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mutex    sync.Mutex
	pods     map[types.UID]*pod
	lost     map[string]bool // nodes
	services map[types.UID]*corev1.Service

	failuresMutex sync.Mutex
	failures      []error
}

// pod is one that was bound to a node, from then on until it is gone.
type pod struct {
	spec    *corev1.Pod   // as it was when it was bound
	deleted chan struct{} // closed when it is to end
	lost    chan struct{} // closed when its node is no more
	grace   time.Duration // valid once deleted is closed
}

// Start begins to run pods. It takes root.
func Start(options Options) (*Kubelet, error) {
	network, err := newNetwork(options.Folder)
	if err != nil {
		return nil, err
	}
	k := &Kubelet{
		options: options, network: network,
		pods: map[types.UID]*pod{}, lost: map[string]bool{}, services: map[types.UID]*corev1.Service{},
	}
	k.context, k.cancel = context.WithCancel(context.Background())
	k.follow("pods", &corev1.Pod{}, func(object any) { k.seePod(object.(*corev1.Pod), false) },
		func(object any) { k.seePod(object.(*corev1.Pod), true) })
	k.follow("services", &corev1.Service{}, func(object any) { k.seeService(object.(*corev1.Service), false) },
		func(object any) { k.seeService(object.(*corev1.Service), true) })
	return k, nil
}

// Stop kills what still runs and says what went wrong meanwhile.
func (k *Kubelet) Stop() []error {
	k.cancel()
	k.running.Wait()
	k.network.close()
	return k.failures
}

// LogPath is where a pod's output goes.
func (k *Kubelet) LogPath(pod *corev1.Pod) string {
	return filepath.Join(k.options.Folder, fmt.Sprintf("%s-%s.log", pod.Name, pod.UID))
}

// LoseNode is the end of a machine, for good: its pods are off the network, then
// dead, and nobody tells of them any more.
func (k *Kubelet) LoseNode(name string) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.lost[name] = true
	for _, pod := range k.pods {
		if pod.spec.Spec.NodeName == name {
			close(pod.lost)
		}
	}
}

// follow calls for each object of the namespace that there is, at each change and at its end.
func (k *Kubelet) follow(resource string, kind runtime.Object, changed, gone func(any)) {
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(k.options.Client.CoreV1().RESTClient(), resource, k.options.Namespace, fields.Everything()),
		ObjectType:    kind,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    changed,
			UpdateFunc: func(_, now any) { changed(now) },
			DeleteFunc: func(object any) {
				if unseen, ok := object.(cache.DeletedFinalStateUnknown); ok {
					object = unseen.Obj
				}
				gone(object)
			},
		},
	})
	k.running.Go(func() { informer.RunWithContext(k.context) })
}

func (k *Kubelet) seeService(service *corev1.Service, gone bool) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if gone {
		delete(k.services, service.UID)
	} else {
		k.services[service.UID] = service
	}
	k.note(k.network.names.setServices(k.services))
}

func (k *Kubelet) seePod(now *corev1.Pod, gone bool) {
	if now.Annotations[Annotation] != RunsProcesses || now.Spec.NodeName == "" {
		return
	}
	k.mutex.Lock()
	defer k.mutex.Unlock()
	known := k.pods[now.UID]
	if known == nil {
		if gone || k.lost[now.Spec.NodeName] || now.Status.Phase != corev1.PodPending {
			return
		}
		known = &pod{spec: now, deleted: make(chan struct{}), lost: make(chan struct{})}
		k.pods[now.UID] = known
		k.running.Go(func() { k.run(known) })
	}
	if known.grace == 0 && (gone || now.DeletionTimestamp != nil) {
		// Whoever deletes a pod by force is not waited for any longer than that.
		known.grace = time.Second
		if seconds := now.DeletionGracePeriodSeconds; seconds != nil && *seconds > 0 {
			known.grace = time.Duration(*seconds) * time.Second
		}
		close(known.deleted)
	}
}

// run is a pod's life on its node.
func (k *Kubelet) run(p *pod) {
	container, err := k.start(p.spec)
	if err != nil {
		k.note(err)
		k.tell(p, corev1.PodStatus{Phase: corev1.PodFailed, Reason: "CreateContainerError", Message: err.Error()})
		return
	}
	began := metav1.Now()
	status := k.status(p, container, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: began}})
	k.tell(p, status)
	k.note(k.network.names.setReady(p.spec.UID))
	defer func() { k.note(k.network.names.remove(p.spec.UID)) }()

	select {
	case <-container.Exited():
	case <-p.deleted:
		k.end(p, container)
	case <-p.lost:
	case <-k.context.Done():
	}
	if container.Running() {
		// Without the cable first, the others would be told that its connections are closed.
		if err := k.network.cut(container.address); container.Running() {
			k.note(err)
		}
		container.Kill()
		return
	}
	message, err := os.ReadFile(container.terminationFile)
	k.note(err)
	reason := "Completed"
	if container.ExitCode() != 0 {
		reason = "Error"
	}
	k.tell(p, k.status(p, container, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: int32(container.ExitCode()), Reason: reason, Message: string(message),
		StartedAt: began, FinishedAt: metav1.Now(),
	}}))
	select {
	case <-p.deleted:
		k.remove(p)
	case <-p.lost:
	case <-k.context.Done():
	}
}

// end asks the container to end and kills it when its time is over, unless the
// node is lost before.
func (k *Kubelet) end(p *pod, container *container) {
	k.note(container.Signal(syscall.SIGTERM))
	select {
	case <-container.Exited():
	case <-time.After(p.grace):
		container.Kill()
	case <-p.lost:
	case <-k.context.Done():
	}
}

// status is what a pod's status says of its container in a state.
func (k *Kubelet) status(p *pod, container *container, state corev1.ContainerState) corev1.PodStatus {
	phase, ready := corev1.PodRunning, corev1.ConditionTrue
	if state.Terminated != nil {
		phase, ready = corev1.PodSucceeded, corev1.ConditionFalse
		if state.Terminated.ExitCode != 0 {
			phase = corev1.PodFailed
		}
	}
	now := metav1.Now()
	started := state.Running != nil
	spec := &p.spec.Spec.Containers[0]
	return corev1.PodStatus{
		Phase:     phase,
		PodIP:     container.address.String(),
		PodIPs:    []corev1.PodIP{{IP: container.address.String()}},
		StartTime: &now,
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, LastTransitionTime: now},
			{Type: corev1.ContainersReady, Status: ready, LastTransitionTime: now},
			{Type: corev1.PodReady, Status: ready, LastTransitionTime: now},
		},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: spec.Name, Image: spec.Image, Ready: started, Started: &started, State: state,
		}},
	}
}

// tell writes a pod's status, of this pod and not of a later one of its name.
func (k *Kubelet) tell(p *pod, status corev1.PodStatus) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.spec.UID}, "status": status})
	if err == nil {
		_, err = k.options.Client.CoreV1().Pods(p.spec.Namespace).Patch(k.context, p.spec.Name,
			types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	k.noteUnlessGone(p, err)
}

// remove confirms that a deleted pod has ended.
func (k *Kubelet) remove(p *pod) {
	k.noteUnlessGone(p, k.options.Client.CoreV1().Pods(p.spec.Namespace).Delete(k.context, p.spec.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64),
		Preconditions:      metav1.NewUIDPreconditions(string(p.spec.UID)),
	}))
}

// noteUnlessGone leaves out what a pod's deletion by force, or the end of all,
// accounts for.
func (k *Kubelet) noteUnlessGone(p *pod, err error) {
	select {
	case <-p.deleted:
	case <-k.context.Done():
	default:
		if err != nil {
			k.note(fmt.Errorf("pod %s: %w", p.spec.Name, err))
		}
	}
}

func (k *Kubelet) note(err error) {
	if err == nil {
		return
	}
	k.failuresMutex.Lock()
	defer k.failuresMutex.Unlock()
	k.failures = append(k.failures, err)
}
