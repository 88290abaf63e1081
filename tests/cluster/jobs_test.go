package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"muster.dev/tests/cluster/timeline"
)

// What a case applies from jobs/. All training jobs there are called "train" and
// have four pods, each of which fills a node of one GPU, so a case knows its pods by
// that name.

// Change edits an object of a fixture before it is applied.
type Change func(object *unstructured.Unstructured)

// scheduledBy names the scheduler of all pods.
func scheduledBy(name string) Change {
	return eachPodSpec(func(spec map[string]any) { spec["schedulerName"] = name })
}

// queuedIn puts a job into a LocalQueue.
func queuedIn(queue string) Change { return labelled("kueue.x-k8s.io/queue-name", queue) }

// labelled labels the job itself.
func labelled(key, value string) Change {
	return func(object *unstructured.Unstructured) {
		if isJob(object) {
			labels := object.GetLabels()
			if labels == nil {
				labels = map[string]string{}
			}
			labels[key] = value
			object.SetLabels(labels)
		}
	}
}

// renamed gives the job another name, and so its pods.
func renamed(name string) Change {
	return func(object *unstructured.Unstructured) {
		if isJob(object) {
			object.SetName(name)
		}
	}
}

func isJob(object *unstructured.Unstructured) bool {
	return strings.HasSuffix(object.GetKind(), "Job") || object.GetKind() == "JobSet"
}

// withoutNodeSelector leaves the choice of a NodePool to the flavor.
var withoutNodeSelector = eachPodSpec(func(spec map[string]any) { delete(spec, "nodeSelector") })

// eachPodSpec edits every pod template of an object, however deep.
func eachPodSpec(edit func(spec map[string]any)) Change {
	return func(object *unstructured.Unstructured) {
		eachMap(object.Object, func(m map[string]any) {
			if _, ok := m["containers"].([]any); ok {
				edit(m)
			}
		})
	}
}

func eachMap(value any, visit func(map[string]any)) {
	switch v := value.(type) {
	case map[string]any:
		visit(v)
		for _, field := range v {
			eachMap(field, visit)
		}
	case []any:
		for _, item := range v {
			eachMap(item, visit)
		}
	}
}

// Apply creates what is in a file of jobs/, with the case's namespace and its
// own NodePools: "gpu" in the file is the one that NodePool("gpu", ...) makes.
// Flavors, ClusterQueues and runtimes have the whole cluster's names, so cases
// with them can't be parallel.
func (c *Case) Apply(file string, changes ...Change) {
	c.Helper()
	path := c.Manifest(file, changes...)
	_, err := shared.Kubectl("create", "--validate=strict", "--namespace="+c.Namespace, "--filename="+path)
	c.must(err)
}

// Manifest writes what Apply creates and returns where. All of it is deleted when
// the case ends.
func (c *Case) Manifest(file string, changes ...Change) string {
	c.Helper()
	content, err := os.ReadFile(filepath.Join("jobs", file))
	c.must(err)
	var all strings.Builder
	for _, document := range strings.Split(string(content), "\n---\n") {
		object := &unstructured.Unstructured{}
		c.must(yaml.Unmarshal([]byte(document), &object.Object))
		for _, change := range changes {
			change(object)
		}
		eachMap(object.Object, func(m map[string]any) {
			if pool, ok := m[nodePoolLabel].(string); ok {
				m[nodePoolLabel] = c.Namespace + "-" + pool
			}
		})
		text, err := yaml.Marshal(object.Object)
		c.must(err)
		all.WriteString("---\n")
		all.Write(text)
	}
	path := c.write(file, all.String())
	// Before the end of the controllers that were started before: they hold on to
	// some objects, and would make others anew.
	c.Cleanup(func() {
		_, _ = shared.Kubectl("delete", "--ignore-not-found", "--timeout=20s", "--namespace="+c.Namespace, "--filename="+path)
	})
	return path
}

// write keeps a manifest with the logs of the run and returns where.
func (c *Case) write(name, content string) string {
	c.Helper()
	c.applied++
	path := filepath.Join(shared.Folder, fmt.Sprintf("%s-%d-%s", c.Namespace, c.applied, name))
	c.must(os.WriteFile(path, []byte(content), 0o644))
	return path
}

const nodePoolLabel = "karpenter.sh/nodepool"

// AwaitPods waits until a job has made its pods; their names begin with the
// prefix. As a Gang, they can be waited for like any other.
func (c *Case) AwaitPods(prefix string, count int, patience time.Duration) *Gang {
	c.Helper()
	g := &Gang{Case: c, Name: prefix, gpus: 1}
	c.must(shared.Timeline.Await(patience, func(state *timeline.State) string {
		pods := g.pods(state)
		if len(pods) != count {
			return fmt.Sprintf("%d pods %s-* exist, want %d", len(pods), prefix, count)
		}
		g.Members = nil
		for _, pod := range pods {
			g.Members = append(g.Members, pod.Name)
		}
		return ""
	}))
	return g
}

// AwaitOnPool waits until all members are bound to nodes of one of the case's
// NodePools.
func (g *Gang) AwaitOnPool(pool string, patience time.Duration) {
	g.Helper()
	g.AwaitBound(patience)
	pool = g.Namespace + "-" + pool
	shared.Timeline.Look(func(state *timeline.State) {
		for _, pod := range g.pods(state) {
			if node := state.Nodes[pod.Spec.NodeName]; node == nil || node.Labels[nodePoolLabel] != pool {
				g.Errorf("pod %s is on node %q, which isn't of NodePool %s", pod.Name, pod.Spec.NodeName, pool)
			}
		}
	})
}

func succeeded(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded }
