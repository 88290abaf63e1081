package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"muster.dev/tests/cluster/plane"
)

// The contenders' names.
const (
	raw              = "raw"
	rawGated         = "raw gated"
	standalone       = "standalone"
	standaloneGated  = "standalone gated"
	extender         = "extender"
	schedulerPlugins = "scheduler-plugins"
	stock            = "kube-scheduler"
	rawNative        = "raw 1.37"
	native           = "kube-scheduler 1.37 gangs"
)

// contender binds the load.
type contender struct {
	name string
	// The scheduler that the pods name; empty: nobody's.
	scheduler string
	// Muster's chart and flags are those of that mode.
	standalone bool
	// Its control plane is of the Kubernetes that knows gangs, and they are Kubernetes' own.
	native bool
	// It races where not all gangs have room as well.
	contends bool
	// The pods wait behind Muster's gate. Its webhook gives it, or, before Muster runs, whoever
	// creates the pods.
	gated bool
	// Once, before any race; nil: nothing.
	prepare func(context.Context, *cluster) error
	// Starts it, and returns as soon as it runs.
	start func(*cluster) error
	stop  func(*cluster) error
	// Who it is to the API server.
	user string
	// Its programs, as plane.CPU calls them.
	programs []string
}

// isMuster tells whether it stands or falls by the bounds.
func (c contender) isMuster() bool { return c.user == plane.ServiceAccount }

// contenders are all, in the order of their races. Those without start are raw.
func contenders() []contender {
	var peer *plane.Peer
	startMuster := func(c *cluster) error {
		return errors.Join(c.plane.StandIn(), c.plane.Muster.Launch(plane.Launch{}))
	}
	stopMuster := func(c *cluster) error { return c.plane.StandAside() }
	return []contender{
		{name: raw, standalone: true, user: plane.CallerUser(plane.RawCaller)},
		{name: rawGated, standalone: true, gated: true, user: plane.CallerUser(plane.RawCaller)},
		{
			name: standalone, scheduler: plane.SchedulerName, standalone: true, contends: true,
			start: startMuster, stop: stopMuster,
			user: plane.ServiceAccount, programs: []string{"muster"},
		},
		{
			name: standaloneGated, scheduler: plane.SchedulerName, standalone: true, gated: true, prepare: createNodePool,
			start: startMuster, stop: stopMuster,
			user: plane.ServiceAccount, programs: []string{"muster"},
		},
		{
			name: extender, scheduler: plane.SchedulerName, gated: true, contends: true,
			start: startMuster, stop: stopMuster,
			user: plane.ServiceAccount, programs: []string{"muster", "kube-scheduler-" + plane.SchedulerName},
		},
		{
			name: schedulerPlugins, scheduler: plane.PeerSchedulerName, standalone: true, contends: true,
			start: func(c *cluster) (err error) {
				peer, err = c.plane.StartSchedulerPlugins(plane.SchedulerPlugins{Measured: true, Patience: c.patience})
				return err
			},
			stop: func(*cluster) error { return peer.Stop() },
			user: plane.CallerUser(plane.PeerSchedulerName), programs: []string{plane.PeerSchedulerName},
		},
		stockScheduler(stock),
		{name: rawNative, standalone: true, native: true, user: plane.CallerUser(plane.RawCaller)},
		knowingGangs(stockScheduler(native)),
	}
}

// stockScheduler is the control plane's own kube-scheduler.
func stockScheduler(name string) contender {
	return contender{
		name: name, scheduler: plane.SchedulerName, standalone: true, contends: true,
		start: func(c *cluster) error { return c.plane.ScheduleStockMeasured() },
		stop:  func(c *cluster) error { return c.plane.EndStock() },
		user:  plane.StockSchedulerUser, programs: []string{"kube-scheduler-stock-" + plane.SchedulerName},
	}
}

func knowingGangs(one contender) contender {
	one.native = true
	return one
}

// createNodePool makes one that no node may come from: where there is one, Muster gates pods.
func createNodePool(ctx context.Context, c *cluster) error {
	pools := schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodepools"}
	_, err := c.plane.Dynamic.Resource(pools).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "karpenter.sh/v1",
		"kind":       "NodePool",
		"metadata":   map[string]any{"name": "none"},
		"spec": map[string]any{
			"limits": map[string]any{"cpu": "0"},
			"template": map[string]any{"spec": map[string]any{
				"nodeClassRef": map[string]any{"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "none"},
				"requirements": []any{},
			}},
		},
	}}, metav1.CreateOptions{})
	return err
}

// withoutWebhooks takes Muster's away: its start brings them back.
func (c *cluster) withoutWebhooks(ctx context.Context) error {
	for kind, name := range map[string]string{
		"mutatingwebhookconfigurations": "muster-admission", "validatingwebhookconfigurations": "muster-warnings",
	} {
		resource := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: kind}
		if err := c.plane.Dynamic.Resource(resource).Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// named are the contenders of these names, all without any.
func named(names string) ([]contender, error) {
	if names == "" {
		return contenders(), nil
	}
	var found []contender
	for _, name := range strings.Split(names, ",") {
		before := len(found)
		for _, one := range contenders() {
			if one.name == name {
				found = append(found, one)
			}
		}
		if len(found) == before {
			return nil, fmt.Errorf("there is no contender %q", name)
		}
	}
	return found, nil
}
