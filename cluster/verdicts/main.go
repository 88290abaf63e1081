// Records what kube-scheduler's own filter plugins say about random clusters, for
// ../kube_scheduler_verdicts_test.cc, which must agree:
//
//	go run . SEED COUNT > recorded.jsonl
//
// One line is one case: the objects as the API server would send them, the incoming pod, and for
// each plugin the nodes that it refuses.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"math/rand"
	"os"
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/interpodaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeports"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeunschedulable"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/tainttoleration"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumebinding"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumezone"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

type recordedCase struct {
	Nodes          []any               `json:"nodes"`
	Pods           []any               `json:"pods"`
	Namespaces     []any               `json:"namespaces"`
	Claims         []any               `json:"claims"`
	Volumes        []any               `json:"volumes"`
	StorageClasses []any               `json:"storageClasses"`
	Pod            any                 `json:"pod"`
	Refused        map[string][]string `json:"refused"`
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: verdicts SEED COUNT")
	}
	seed, err := strconv.ParseInt(os.Args[1], 10, 64)
	if err != nil {
		log.Fatalf("SEED: %v", err)
	}
	count, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatalf("COUNT: %v", err)
	}
	metrics.Register()
	random := dice{rand.New(rand.NewSource(seed))}
	encoder := json.NewEncoder(os.Stdout)
	for range count {
		if err := encoder.Encode(record(random)); err != nil {
			log.Fatal(err)
		}
	}
}

func record(random dice) recordedCase {
	var result recordedCase
	var objects []runtime.Object
	keep := func(list *[]any, object runtime.Object) {
		*list = append(*list, lean(object))
		objects = append(objects, object)
	}
	var nodes []*v1.Node
	for i := range nodeCount {
		nodes = append(nodes, random.node(i))
		keep(&result.Nodes, nodes[i])
	}
	for i := range 3 {
		namespace := fmt.Sprint("ns", i)
		keep(&result.Namespaces, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: namespace, Labels: random.labels([]string{"x", "y"}, "team")}})
		for k := range 3 {
			claim, volume := random.claim(namespace, fmt.Sprint("c", k))
			keep(&result.Claims, claim)
			if volume != nil {
				keep(&result.Volumes, volume)
			}
		}
	}
	keep(&result.StorageClasses, storageClass())
	var pods []*v1.Pod
	for i := range 2 + random.Intn(10) {
		pods = append(pods, random.standingPod(i))
		result.Pods = append(result.Pods, lean(pods[i]))
	}
	incoming := random.incomingPod(100)
	result.Pod = lean(incoming)
	result.Refused = refusals(incoming, nodes, pods, objects)
	return result
}

// lean leaves out what is null or empty, as no reader tells it from absent; except a selector that
// is there and empty, which matches everything.
func lean(object runtime.Object) any {
	text, err := json.Marshal(object)
	if err != nil {
		log.Fatal(err)
	}
	var value map[string]any
	if err := json.Unmarshal(text, &value); err != nil {
		log.Fatal(err)
	}
	return prune(value)
}

func prune(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, child := range value {
			child = prune(child)
			empty := child == nil
			if fields, ok := child.(map[string]any); ok {
				empty = len(fields) == 0 && key != "labelSelector" && key != "namespaceSelector"
			}
			if empty {
				delete(value, key)
			} else {
				value[key] = child
			}
		}
	case []any:
		for i := range value {
			value[i] = prune(value[i])
		}
	}
	return value
}

func refusals(pod *v1.Pod, nodes []*v1.Node, pods []*v1.Pod, objects []runtime.Object) map[string][]string {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client := fake.NewClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	snapshot := cache.NewSnapshot(pods, nodes)
	handle, err := frameworkruntime.NewFramework(ctx, nil, nil,
		frameworkruntime.WithSnapshotSharedLister(snapshot),
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithClientSet(client))
	if err != nil {
		log.Fatal(err)
	}
	plugins := filters(ctx, handle)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())

	refused := map[string][]string{}
	for _, plugin := range plugins {
		refused[plugin.Name()] = refusedBy(ctx, plugin, pod, snapshot)
	}
	return refused
}

func filters(ctx context.Context, handle framework.Handle) []framework.FilterPlugin {
	// As v1.34 has them by default.
	features := feature.Features{
		EnableNodeInclusionPolicyInPodTopologySpread: true,
		EnableMatchLabelKeysInPodTopologySpread:      true,
		EnableSidecarContainers:                      true,
	}
	scoring := &config.ScoringStrategy{
		Type:      config.LeastAllocated,
		Resources: []config.ResourceSpec{{Name: "cpu", Weight: 1}},
	}
	var plugins []framework.FilterPlugin
	add := func(plugin framework.Plugin, err error) {
		if err != nil {
			log.Fatal(err)
		}
		plugins = append(plugins, plugin.(framework.FilterPlugin))
	}
	add(nodeunschedulable.New(ctx, nil, handle, features))
	add(tainttoleration.New(ctx, nil, handle, features))
	add(nodeaffinity.New(ctx, &config.NodeAffinityArgs{}, handle, features))
	add(volumebinding.New(ctx, &config.VolumeBindingArgs{BindTimeoutSeconds: 10}, handle, features))
	add(volumezone.New(ctx, nil, handle, features))
	add(nodeports.New(ctx, nil, handle, features))
	add(noderesources.NewFit(ctx, &config.NodeResourcesFitArgs{ScoringStrategy: scoring}, handle, features))
	add(interpodaffinity.New(ctx, &config.InterPodAffinityArgs{}, handle, features))
	add(podtopologyspread.New(ctx, &config.PodTopologySpreadArgs{DefaultingType: config.ListDefaulting}, handle, features))
	return plugins
}

func refusedBy(ctx context.Context, plugin framework.FilterPlugin, pod *v1.Pod, snapshot *cache.Snapshot) []string {
	infos, err := snapshot.NodeInfos().List()
	if err != nil {
		log.Fatal(err)
	}
	state := framework.NewCycleState()
	refused := []string{}
	var only *framework.PreFilterResult
	refusesAll := false
	if prefilter, ok := plugin.(framework.PreFilterPlugin); ok {
		result, status := prefilter.PreFilter(ctx, state, pod, infos)
		if status.IsSkip() {
			return refused
		}
		only = result
		refusesAll = !status.IsSuccess()
	}
	for _, info := range infos {
		name := info.Node().Name
		left := only != nil && only.NodeNames != nil && !only.NodeNames.Has(name)
		if refusesAll || left || !plugin.Filter(ctx, state, pod, info).IsSuccess() {
			refused = append(refused, name)
		}
	}
	return refused
}
