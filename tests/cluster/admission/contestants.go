package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

// contestant is one of the two programs that admit the same load.
type contestant interface {
	name() string
	// Installs the definitions that it needs and starts it.
	start(ctx context.Context) error
	// Makes all gangs, whose queues are held.
	createGangs(ctx context.Context) error
	// Tells whether it asked for it.
	asked(request plane.Request) bool
	// What it does about the gangs once all are admitted.
	finish(ctx context.Context) error
	// Stops it and takes away everything of its race.
	stop(ctx context.Context) error
}

// minimalKueue is Kueue's core without webhooks and jobs, with a client limit of
// 1,000 requests per second.
type minimalKueue struct {
	plane *plane.Plane
	load  load
	peer  *plane.Peer
}

func (k *minimalKueue) name() string { return "minimalkueue" }

func (k *minimalKueue) start(context.Context) (err error) {
	k.peer, err = k.plane.StartMinimalKueue(true)
	return err
}

func (k *minimalKueue) createGangs(ctx context.Context) error {
	return eachOf(k.load.gangs, func(g gang) error {
		template := g.template("")
		spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&template)
		if err != nil {
			return err
		}
		delete(spec, "priorityClassName")
		_, err = k.plane.Dynamic.Resource(timeline.Workloads).Namespace(g.namespace).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": timeline.Workloads.GroupVersion().String(),
			"kind":       "Workload",
			"metadata":   map[string]any{"name": g.name},
			"spec": map[string]any{
				"queueName": g.namespace,
				"priority":  int64(g.size.priority),
				"podSets": []any{map[string]any{
					"name": "main", "count": int64(g.size.members), "template": map[string]any{"spec": spec},
				}},
			},
		}}, metav1.CreateOptions{})
		return err
	})
}

func (k *minimalKueue) asked(request plane.Request) bool { return request.User == plane.KueueUser }

func (k *minimalKueue) finish(context.Context) error { return nil }

func (k *minimalKueue) stop(ctx context.Context) error {
	if k.peer == nil {
		return nil
	}
	if err := k.load.deleteAll(ctx, k.plane, timeline.Workloads); err != nil {
		return err
	}
	return k.peer.Stop()
}

// muster is Muster as deploy/ configures it, beside its kube-scheduler.
type muster struct {
	plane       *plane.Plane
	load        load
	definitions string // of the queues
}

func (m *muster) name() string { return "muster" }

func (m *muster) start(ctx context.Context) error {
	if output, err := m.plane.Kubectl("apply", "--server-side", "--kustomize="+m.definitions); err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	crds := []string{"wait", "--for=condition=Established", "--timeout=60s", "crd"}
	for _, kind := range []string{"resourceflavors", "clusterqueues", "localqueues", "cohorts", "workloadpriorityclasses", "workloads"} {
		crds = append(crds, kind+"."+kueueGroup.Group)
	}
	if output, err := m.plane.Kubectl(crds...); err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	if err := m.load.createNodes(ctx, m.plane); err != nil {
		return err
	}
	if err := m.plane.StandIn(); err != nil {
		return err
	}
	return m.plane.Muster.Start(plane.Launch{})
}

func (m *muster) createGangs(ctx context.Context) error {
	if err := eachOf(m.load.gangs, func(g gang) error { return m.createGang(ctx, g) }); err != nil {
		return err
	}
	return await(ctx, "all gangs to wait for quota", func() (string, error) {
		waiting, err := m.waiting()
		if err != nil || waiting == len(m.load.gangs) {
			return "", err
		}
		return fmt.Sprintf("%d of %d do", waiting, len(m.load.gangs)), nil
	})
}

func (m *muster) createGang(ctx context.Context, g gang) error {
	labels := map[string]string{"scheduling.x-k8s.io/pod-group": g.name, kueueGroup.Group + "/queue-name": g.namespace}
	if _, err := m.plane.Dynamic.Resource(timeline.PodGroups).Namespace(g.namespace).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": timeline.PodGroups.GroupVersion().String(),
		"kind":       "PodGroup",
		"metadata":   map[string]any{"name": g.name},
		"spec":       map[string]any{"minMember": int64(g.size.members)},
	}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	for i := range g.size.members {
		if _, err := m.plane.Client.CoreV1().Pods(g.namespace).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", g.name, i), Labels: labels},
			Spec:       g.template(plane.SchedulerName),
		}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// waiting counts the gangs of which Muster says that they wait for quota.
func (m *muster) waiting() (int, error) {
	answer, err := m.plane.Muster.Get("/v1/gangs")
	if err != nil {
		return 0, err
	}
	count := 0
	gangs, _ := answer["gangs"].([]any)
	for _, item := range gangs {
		if one, _ := item.(map[string]any); one["state"] == "WAITING_FOR_QUOTA" {
			count++
		}
	}
	return count, nil
}

// The kube-scheduler beside it is the same user.
func (m *muster) asked(request plane.Request) bool {
	return request.User == plane.ServiceAccount && request.Program == "muster"
}

// finish waits until all members are bound.
func (m *muster) finish(ctx context.Context) error {
	return await(ctx, "all members to be bound", func() (string, error) {
		// From the API server's cache, of one pod.
		unbound, err := m.plane.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=", Limit: 1})
		if err != nil || len(unbound.Items) == 0 {
			return "", err
		}
		return unbound.Items[0].Namespace + "/" + unbound.Items[0].Name + " isn't", nil
	})
}

func (m *muster) stop(ctx context.Context) error {
	if err := m.plane.StandAside(); err != nil {
		return err
	}
	for _, kind := range []schema.GroupVersionResource{timeline.Pods, timeline.PodGroups} {
		if err := m.load.deleteAll(ctx, m.plane, kind); err != nil {
			return err
		}
	}
	if err := m.plane.Client.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: flavorLabel}); err != nil {
		return err
	}
	output, err := m.plane.Kubectl("delete", "--kustomize="+m.definitions, "--ignore-not-found", "--timeout=60s")
	if err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	return nil
}

// definitionsOf is where the queues' definitions lie that Muster brings.
func definitionsOf(options plane.Options) string {
	return filepath.Join(options.Manifests, "crds", "kueue")
}

// await asks again until nothing is missing, for some minutes.
func await(ctx context.Context, what string, missing func() (string, error)) error {
	for deadline := time.Now().Add(3 * time.Minute); ; {
		text, err := missing()
		if err != nil || text == "" {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waited in vain for %s: %s", what, text)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}
