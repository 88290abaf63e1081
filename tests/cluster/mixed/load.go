package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

const (
	gpu corev1.ResourceName = "nvidia.com/gpu"
	// Of each node, and what each pod asks for.
	gpus          = 8
	podGroupLabel = "scheduling.x-k8s.io/pod-group"
	loadLabel     = "tests.muster.dev/gang"
	namespace     = "mixed"
	// A gang runs for an exponential time within these.
	shortest, longest = 5 * time.Second, 3 * time.Minute
)

// draw is the load's randomness.
type draw struct{ random *rand.Rand }

func newDraw(seed uint64) draw { return draw{rand.New(rand.NewPCG(seed, 0))} }

// size of a gang, of which gangs twice as large are half as many: each doubling takes as many nodes
// as any other.
func (d draw) size(most int) int {
	least := 1 / float64(most+1)
	return min(most, int(1/(least+(1-least)*(1-d.random.Float64()))))
}

func (d draw) exponential(mean time.Duration) time.Duration {
	return time.Duration(d.random.ExpFloat64() * float64(mean))
}

func (d draw) runs(mean time.Duration) time.Duration {
	return min(max(d.exponential(mean), shortest), longest)
}

// meanOfRuns is that of what runs returns.
func meanOfRuns(mean time.Duration) time.Duration {
	beyond := func(time_ time.Duration) float64 { return math.Exp(-float64(time_) / float64(mean)) }
	return shortest + time.Duration(float64(mean)*(beyond(shortest)-beyond(longest)))
}

// meanSize of gangs of at most that many.
func meanSize(most int) float64 {
	sum, all := 0.0, 1-1/float64(most+1)
	for size := 1; size <= most; size++ {
		sum += float64(size) * (1/float64(size) - 1/float64(size+1)) / all
	}
	return sum
}

// load makes gangs and ends them.
type load struct {
	plane   *plane.Plane
	client  kubernetes.Interface
	account *account
	living  sync.WaitGroup
	// Closed when nobody is to run on for long.
	ending chan struct{}
	// Of those that write at once: as many as controllers would, the API server's queues aren't measured.
	writing chan struct{}

	mutex    sync.Mutex
	failures []string
}

func newLoad(ctx context.Context, p *plane.Plane, nodes int) (*load, error) {
	config, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.WarningHandler = rest.NoWarnings{}
	l := &load{plane: p, account: newAccount(nodes), ending: make(chan struct{}), writing: make(chan struct{}, plane.Creators)}
	if l.client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if _, err := l.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
	}, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	var names []string
	for i := range nodes {
		names = append(names, fmt.Sprintf("node-%05d", i))
	}
	return l, plane.CreateReadyNodes(ctx, l.client, names, map[string]string{
		corev1.LabelTopologyRegion: "us-west-2", corev1.LabelInstanceTypeStable: "p5.48xlarge",
	}, corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("96"),
		corev1.ResourceMemory: resource.MustParse("1Ti"),
		corev1.ResourcePods:   resource.MustParse("110"),
		gpu:                   *resource.NewQuantity(gpus, resource.DecimalSI),
	})
}

// watch tells the account of all pods until the context ends.
func (l *load) watch(ctx context.Context) error {
	pods := l.client.CoreV1().Pods(namespace)
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	revision := list.ResourceVersion
	for ctx.Err() == nil {
		watch, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: revision})
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		for event := range watch.ResultChan() {
			at := time.Now()
			pod, ok := event.Object.(*corev1.Pod)
			if !ok {
				return fmt.Errorf("the watch of pods brought %v", event.Object)
			}
			revision = pod.ResourceVersion
			over := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
			if event.Type == "DELETED" || over {
				l.account.end(at, pod.Name)
			} else {
				l.account.observe(at, pod.Name, pod.Labels[loadLabel], pod.CreationTimestamp.Time, pod.Spec.NodeName)
			}
		}
	}
	return nil
}

// begin has a gang live. A gang of one is a plain pod.
func (l *load) begin(ctx context.Context, g *gang) {
	l.account.expect(g)
	l.living.Go(func() {
		if err := l.live(ctx, g); err != nil {
			l.fail("%s: %v", g.name, err)
		}
	})
}

func (l *load) fail(format string, args ...any) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.failures = append(l.failures, fmt.Sprintf(format, args...))
}

func (l *load) live(ctx context.Context, g *gang) error {
	groups := l.plane.Dynamic.Resource(timeline.PodGroups).Namespace(namespace)
	labels := map[string]string{loadLabel: g.name}
	if g.size > 1 {
		labels[podGroupLabel] = g.name
		group, err := groups.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": timeline.PodGroups.GroupVersion().String(),
			"kind":       "PodGroup",
			"metadata":   map[string]any{"name": g.name},
			"spec":       map[string]any{"minMember": int64(g.size)},
		}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		l.account.age(g, group.GetCreationTimestamp().Time)
	}
	members := make([]string, g.size)
	for i := range members {
		members[i] = g.member(i)
	}
	if err := l.each(members, func(name string) error {
		_, err := l.client.CoreV1().Pods(namespace).Create(ctx, podOf(name, labels), metav1.CreateOptions{})
		return err
	}); err != nil {
		return err
	}
	select {
	case <-g.whole:
	case <-ctx.Done():
		return fmt.Errorf("it isn't bound whole in the end: %w", ctx.Err())
	}
	l.sleep(g.runs)
	return l.end(ctx, g, members)
}

// each writes once for each member, whoever else does.
func (l *load) each(members []string, write func(name string) error) error {
	return plane.EachOf(members, min(plane.Creators, len(members)), func(name string) error {
		l.writing <- struct{}{}
		defer func() { <-l.writing }()
		return write(name)
	})
}

// sleep is shorter once the load ends, and not equally long for all.
func (l *load) sleep(time_ time.Duration) {
	select {
	case <-time.After(time_):
	case <-l.ending:
		time.Sleep(time_ / 4)
	}
}

// end is that of a job, or of one that its user deletes.
func (l *load) end(ctx context.Context, g *gang, members []string) error {
	pods := l.client.CoreV1().Pods(namespace)
	if g.runs.Milliseconds()%2 == 0 {
		if err := l.each(members, func(name string) error {
			_, err := pods.Patch(ctx, name, types.StrategicMergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
			return err
		}); err != nil {
			return err
		}
	}
	// One by one, as by the garbage collector: for a collection by labels the API server reads all pods.
	if err := l.each(members, func(name string) error {
		return pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	}); err != nil {
		return err
	}
	if g.size == 1 {
		return nil
	}
	err := l.plane.Dynamic.Resource(timeline.PodGroups).Namespace(namespace).Delete(ctx, g.name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func podOf(name string, labels map[string]string) *corev1.Pod {
	resources := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), gpu: *resource.NewQuantity(gpus, resource.DecimalSI)}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: corev1.PodSpec{
			SchedulerName: plane.SchedulerName, RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64),
			Containers: []corev1.Container{{
				Name: "worker", Image: "worker",
				Resources: corev1.ResourceRequirements{Requests: resources, Limits: resources},
			}},
		},
	}
}

// residentMiB is Muster's memory, as it tells it.
func (l *load) residentMiB() (float64, error) {
	text, err := l.plane.Muster.Metrics()
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		var bytes float64
		if rest, found := strings.CutPrefix(line, "process_resident_memory_bytes "); found {
			_, err := fmt.Sscan(rest, &bytes)
			return bytes / (1 << 20), err
		}
	}
	return 0, fmt.Errorf("no process_resident_memory_bytes is told")
}
