package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// Plugins of kube-scheduler's default profile that say nothing about where a pod may go; and
// DynamicResources: Muster places no pod with device claims by itself.
var notAsked = map[string]bool{
	names.SchedulingGates:                 true,
	names.PrioritySort:                    true,
	names.DefaultPreemption:               true,
	names.NodeResourcesBalancedAllocation: true,
	names.ImageLocality:                   true,
	names.DefaultBinder:                   true,
	names.DynamicResources:                true,
}

// scheduler is kube-scheduler's own cache, with the filter plugins of its default profile, as its
// default feature gates make them.
type scheduler struct {
	ctx      context.Context
	stop     context.CancelFunc
	cache    cache.Cache
	snapshot *cache.Snapshot
	plugins  []asked // in the order in which kube-scheduler asks them
}

// asked is a plugin in a framework of its own.
type asked struct {
	name      string
	framework framework.Framework
}

// nominations are the pods that wait and have a node nominated, by node.
type nominations map[string][]fwk.PodInfo

func (n nominations) NominatedPodsForNode(node string) []fwk.PodInfo { return n[node] }

func (nominations) AddNominatedPod(klog.Logger, fwk.PodInfo, *fwk.NominatingInfo) {}
func (nominations) DeleteNominatedPodIfExists(*v1.Pod)                            {}
func (nominations) UpdateNominatedPod(klog.Logger, *v1.Pod, fwk.PodInfo)          {}

func newScheduler(made *cluster) (*scheduler, error) {
	s := &scheduler{snapshot: cache.NewEmptySnapshot()}
	s.ctx, s.stop = context.WithCancel(context.Background())
	logger := klog.FromContext(s.ctx)
	s.cache = cache.New(s.ctx, nil, false, false)
	for _, node := range made.nodes {
		s.cache.AddNode(logger, node)
	}
	for _, pod := range made.pods {
		// kube-scheduler's informer leaves these out.
		if pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
			continue
		}
		if err := s.cache.AddPod(logger, pod); err != nil {
			return nil, err
		}
	}
	if err := s.cache.UpdateSnapshot(logger, s.snapshot); err != nil {
		return nil, err
	}
	nominated := nominations{}
	for _, pod := range made.nominated {
		info, err := framework.NewPodInfo(pod)
		if err != nil {
			return nil, err
		}
		node := pod.Status.NominatedNodeName
		nominated[node] = append(nominated[node], info)
	}
	client := fake.NewSimpleClientset(made.objects()...)
	factory := informers.NewSharedInformerFactory(client, 0)
	err := s.addPlugins(made.addedAffinity,
		frameworkruntime.WithSnapshotSharedLister(s.snapshot),
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSharedCSIManager(
			nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())),
		frameworkruntime.WithPodNominator(nominated),
		frameworkruntime.WithClientSet(client))
	if err != nil {
		return nil, err
	}
	factory.Start(s.ctx.Done())
	factory.WaitForCacheSync(s.ctx.Done())
	return s, nil
}

func (s *scheduler) addPlugins(added *v1.NodeAffinity, options ...frameworkruntime.Option) error {
	defaults, err := latest.Default()
	if err != nil {
		return err
	}
	profile := defaults.Profiles[0]
	for _, one := range profile.PluginConfig {
		if arguments, ok := one.Args.(*config.NodeAffinityArgs); ok {
			arguments.AddedAffinity = added
		}
	}
	registry := plugins.NewInTreeRegistry()
	all := profile.Plugins.MultiPoint.Enabled
	for _, enabled := range all {
		if notAsked[enabled.Name] {
			continue
		}
		// No framework is without these two.
		alone := profile
		alone.Plugins = &config.Plugins{MultiPoint: config.PluginSet{Enabled: []config.Plugin{
			{Name: names.PrioritySort}, enabled, {Name: names.DefaultBinder}}}}
		made, err := frameworkruntime.NewFramework(s.ctx, registry, &alone, options...)
		if err != nil {
			return fmt.Errorf("%s: %w", enabled.Name, err)
		}
		if !made.HasFilterPlugins() {
			return fmt.Errorf("%s filters no nodes, and isn't listed as such", enabled.Name)
		}
		s.plugins = append(s.plugins, asked{enabled.Name, made})
	}
	return nil
}

// nodes are those of the snapshot by name: the cache lists them in an order of its own.
func (s *scheduler) nodes() ([]fwk.NodeInfo, error) {
	infos, err := s.snapshot.NodeInfos().List()
	infos = slices.Clone(infos)
	slices.SortFunc(infos, func(a, b fwk.NodeInfo) int {
		return strings.Compare(a.Node().Name, b.Node().Name)
	})
	return infos, err
}

// refusedBy names the nodes on which the plugin won't have the pod, as things stand.
func (s *scheduler) refusedBy(plugin asked, pod *v1.Pod) ([]string, error) {
	infos, err := s.nodes()
	if err != nil {
		return nil, err
	}
	state := framework.NewCycleState()
	refused := []string{}
	only, status, _ := plugin.framework.RunPreFilterPlugins(s.ctx, state, pod)
	for _, info := range infos {
		name := info.Node().Name
		left := only != nil && only.NodeNames != nil && !only.NodeNames.Has(name)
		if !status.IsSuccess() || left ||
			!plugin.framework.RunFilterPluginsWithNominatedPods(s.ctx, state, pod, info).IsSuccess() {
			refused = append(refused, name)
		}
	}
	return refused, nil
}

// feasible names the nodes that no plugin refuses, and for every other the first plugin that does.
func (s *scheduler) feasible(pod *v1.Pod) ([]string, map[string]string, error) {
	infos, err := s.nodes()
	if err != nil {
		return nil, nil, err
	}
	refusedBy := map[string]string{}
	for _, plugin := range s.plugins {
		refused, err := s.refusedBy(plugin, pod)
		if err != nil {
			return nil, nil, err
		}
		for _, node := range refused {
			if refusedBy[node] == "" {
				refusedBy[node] = plugin.name
			}
		}
	}
	var nodes []string
	for _, info := range infos {
		if name := info.Node().Name; refusedBy[name] == "" {
			nodes = append(nodes, name)
		}
	}
	return nodes, refusedBy, nil
}

// assume counts the pod as bound to the node, and returns it as it then is.
func (s *scheduler) assume(pod *v1.Pod, node string) (*v1.Pod, error) {
	bound := pod.DeepCopy()
	bound.Spec.NodeName = node
	logger := klog.FromContext(s.ctx)
	if err := s.cache.AssumePod(logger, bound); err != nil {
		return nil, err
	}
	return bound, s.cache.UpdateSnapshot(logger, s.snapshot)
}

func (s *scheduler) forget(bound []*v1.Pod) error {
	logger := klog.FromContext(s.ctx)
	for _, pod := range bound {
		if err := s.cache.ForgetPod(logger, pod); err != nil {
			return err
		}
	}
	return s.cache.UpdateSnapshot(logger, s.snapshot)
}
