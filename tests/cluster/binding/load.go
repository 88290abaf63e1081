package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

const (
	gpu        corev1.ResourceName = "nvidia.com/gpu"
	gpusOfNode                     = 8

	podGroupLabel = "scheduling.x-k8s.io/pod-group"
	gate          = "muster.dev/admission"
)

// load is gangs that come together.
type load struct {
	name  string
	sizes []int // pods of each gang
	order []int // the gang of each pod, as they are created
	gpus  int64 // that each pod asks for
}

func (l load) String() string { return l.name }

func (l load) pods() int { return len(l.order) }

// eachWithNodes is so many gangs of so many pods, which come gang by gang and need a node each.
func eachWithNodes(gangs, size int) load {
	l := load{name: fmt.Sprintf("%d x %d", gangs, size), sizes: slices.Repeat([]int{size}, gangs), gpus: gpusOfNode}
	for gang := range gangs {
		l.order = append(l.order, slices.Repeat([]int{gang}, size)...)
	}
	return l
}

func gangName(gang int) string { return fmt.Sprintf("gang-%d", gang) }

// gangOf is the pod's gang; -1: it is of none.
func gangOf(pod *corev1.Pod) int {
	var gang int
	if _, err := fmt.Sscanf(pod.Labels[podGroupLabel], "gang-%d", &gang); err != nil {
		return -1
	}
	return gang
}

func podName(gang, member int) string { return fmt.Sprintf("%s-%d", gangName(gang), member) }

// created is a pod that the API server has taken.
type created struct {
	gang int
	name string
	uid  string
	at   time.Time
}

// cluster is the control plane of one contender, with what it races on.
type cluster struct {
	plane  *plane.Plane
	client kubernetes.Interface // the administrator's, without a limit
	native bool                 // gangs are Kubernetes' own
	// How long coscheduling's members may wait for the others, in seconds; 0: as it is shipped.
	patience int
	nodes    []string
	races    int
}

func newCluster(ctx context.Context, p *plane.Plane, on stage, native bool) (*cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.WarningHandler = rest.NoWarnings{}
	c := &cluster{plane: p, native: native, patience: on.patience}
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if err := plane.Exempt(ctx, c.client, plane.ServiceAccount, plane.StockSchedulerUser,
		plane.CallerUser(plane.PeerSchedulerName), plane.CallerUser(plane.RawCaller)); err != nil {
		return nil, err
	}
	return c, c.createNodes(ctx, on.nodes)
}

// createNodes returns when the controllers have found them Ready.
func (c *cluster) createNodes(ctx context.Context, count int) error {
	resources := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("96"),
		corev1.ResourceMemory: resource.MustParse("1Ti"),
		corev1.ResourcePods:   resource.MustParse("110"),
		gpu:                   *resource.NewQuantity(gpusOfNode, resource.DecimalSI),
	}
	for i := range count {
		c.nodes = append(c.nodes, fmt.Sprintf("node-%05d", i))
	}
	return plane.CreateReadyNodes(ctx, c.client, c.nodes, map[string]string{
		corev1.LabelTopologyRegion: "us-west-2", corev1.LabelInstanceTypeStable: "p5.48xlarge",
	}, resources)
}

// gpus are those of all nodes.
func (c *cluster) gpus() int64 { return int64(len(c.nodes)) * gpusOfNode }

// createGroups makes the next race's namespace with the gangs' PodGroups.
func (c *cluster) createGroups(ctx context.Context, l load) (namespace string, err error) {
	c.races++
	namespace = fmt.Sprintf("race-%d", c.races)
	if _, err := c.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
	}, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	if _, err := c.client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: ownerName},
	}, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	return namespace, plane.EachOf(numbers(len(l.sizes)), plane.Creators, func(gang int) error {
		spec := map[string]any{"minMember": int64(l.sizes[gang])}
		if c.native {
			spec = map[string]any{"schedulingPolicy": map[string]any{"gang": map[string]any{"minCount": int64(l.sizes[gang])}}}
		}
		_, err := c.plane.Dynamic.Resource(c.groups()).Namespace(namespace).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": c.groups().GroupVersion().String(),
			"kind":       "PodGroup",
			"metadata":   map[string]any{"name": gangName(gang)},
			"spec":       spec,
		}}, metav1.CreateOptions{})
		return err
	})
}

// groups are the gangs' objects.
func (c *cluster) groups() schema.GroupVersionResource {
	if c.native {
		return plane.NativePodGroups
	}
	return timeline.PodGroups
}

// ownerName is what the pods belong to, as to a job that a controller makes them of.
const ownerName = "owner"

// createPods makes all pods in their order, and returns when each was there. Each is handed on as
// soon as it is, if somebody takes them.
func (c *cluster) createPods(ctx context.Context, l load, namespace, scheduler string, gated bool, taken chan<- created) ([]created, error) {
	grace := int64(0)
	resources := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), gpu: *resource.NewQuantity(l.gpus, resource.DecimalSI)}
	names := make([]string, l.pods())
	members := make([]int, len(l.sizes))
	for i, gang := range l.order {
		names[i] = podName(gang, members[gang])
		members[gang]++
	}
	owner, err := c.client.CoreV1().ConfigMaps(namespace).Get(ctx, ownerName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	owners := []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
	made := make([]created, l.pods())
	return made, plane.EachOf(numbers(l.pods()), plane.Creators, func(i int) error {
		gang := l.order[i]
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: names[i], Labels: map[string]string{podGroupLabel: gangName(gang)}, OwnerReferences: owners},
			Spec: corev1.PodSpec{
				SchedulerName: scheduler, RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: &grace,
				Containers: []corev1.Container{{
					Name: "worker", Image: "worker",
					Resources: corev1.ResourceRequirements{Requests: resources, Limits: resources},
				}},
			},
		}
		if gated {
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: gate}}
		}
		pod, err := c.createPod(ctx, pod, gangName(gang))
		if err != nil {
			return err
		}
		made[i] = created{gang, pod.Name, string(pod.UID), time.Now()}
		if taken != nil {
			taken <- made[i]
		}
		return nil
	})
}

func (c *cluster) createPod(ctx context.Context, pod *corev1.Pod, group string) (*corev1.Pod, error) {
	if !c.native {
		return c.client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	}
	// The client is older than the field.
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		return nil, err
	}
	object["apiVersion"], object["kind"] = "v1", "Pod"
	if err := unstructured.SetNestedField(object, group, "spec", "schedulingGroup", "podGroupName"); err != nil {
		return nil, err
	}
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	stored := &corev1.Pod{}
	return stored, c.client.CoreV1().RESTClient().Post().Namespace(pod.Namespace).Resource("pods").
		SetHeader("Content-Type", runtime.ContentTypeJSON).Body(text).Do(ctx).Into(stored)
}

// clearAway ends what a race made but for its events.
func (c *cluster) clearAway(ctx context.Context, namespace string) error {
	grace := int64(0)
	now := metav1.DeleteOptions{GracePeriodSeconds: &grace}
	return errors.Join(
		c.client.CoreV1().Pods(namespace).DeleteCollection(ctx, now, metav1.ListOptions{}),
		c.plane.Dynamic.Resource(c.groups()).Namespace(namespace).DeleteCollection(ctx, now, metav1.ListOptions{}),
		plane.Await(ctx, "the end of all pods", func() (string, error) {
			left, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
			if err != nil || len(left.Items) == 0 {
				return "", err
			}
			return left.Items[0].Name + " is there", nil
		}))
}

func numbers(count int) []int {
	all := make([]int, count)
	for i := range all {
		all[i] = i
	}
	return all
}
