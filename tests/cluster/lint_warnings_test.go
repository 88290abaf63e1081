package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"muster.dev/tests/cluster/plane"
)

// Who applies an object with a mistake in it reads on the terminal what is wrong
// and what to do, and the object is stored as it was written. The case ends
// Muster, and the kinds of other projects are there for its time only, so it
// doesn't run beside others.
func TestKubectlApplyPrintsWhatLintFinds(t *testing.T) {
	c := newCase(t, "lint")
	// The next case starts a Muster that has never seen these definitions.
	c.Cleanup(shared.Muster.Kill)
	c.define("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")
	c.define("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
	c.must(shared.Muster.Ensure())
	c.nodePoolOf("gpu", "g6.2xlarge")

	workshops := c.Manifest("pytorchjob-one-node.yaml")
	c.awaitWarning(workshops, "NodePool "+c.Namespace+"-gpu: one pod asks for 4 nvidia.com/gpu, the largest instance type")
	wrong := []string{
		"pod-affinity-one-node: ",
		": required podAffinity on kubernetes.io/hostname puts 4 pods on one node, and no NodePool makes such a node",
		"prefer that affinity instead of requiring it",
	}
	c.part("the workshop's job", func(c *Case) {
		c.expectWarnings(c.kubectlApply(workshops), append(wrong, "PyTorchJob "+c.Namespace+"/train")...)
		c.expectStoredAsWritten("pytorchjob", "train")
	})
	c.part("a Job", func(c *Case) {
		path := c.Manifest("job.yaml", ours, protected, onOneNode("batch.kubernetes.io/job-name"))
		c.expectWarnings(c.kubectlApply(path), append(wrong, "Job "+c.Namespace+"/train")...)
		// What concerns neither it nor its pods is no reason to say it again.
		output, err := shared.Kubectl("label", "job", "train", "--namespace="+c.Namespace, "seen=yes")
		c.must(err)
		c.expectNoWarnings(output)
		output, err = shared.Kubectl("patch", "job", "train", "--namespace="+c.Namespace, "--type=merge", `--patch={"spec":{"backoffLimit":3}}`)
		c.must(err)
		c.expectWarnings(output, wrong...)
	})
	c.part("a JobSet", func(c *Case) {
		path := c.Manifest("jobset.yaml", ours, protected, onOneNode("jobset.sigs.k8s.io/jobset-name"))
		c.expectWarnings(c.kubectlApply(path), wrong...)
	})
	c.part("a PodGroup", func(c *Case) {
		c.expectWarnings(c.kubectlApply(c.write("group.yaml", fmt.Sprintf(`
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: {name: hasty, namespace: %s}
spec: {minMember: 2, scheduleTimeoutSeconds: 20}
`, c.Namespace))), "schedule-timeout-short: scheduleTimeoutSeconds is 20", "at least as long as they take")
	})
	c.part("a pod", func(c *Case) {
		pod := c.Pod("greedy", plane.SchedulerName, 16)
		pod.Spec.NodeSelector = map[string]string{nodePoolLabel: c.Namespace + "-gpu"}
		pod.APIVersion, pod.Kind = "v1", "Pod"
		content, err := json.Marshal(pod)
		c.must(err)
		c.expectWarnings(c.kubectlApply(c.write("pod.json", string(content))),
			"gpu-count-too-large: Pod "+c.Namespace+"/greedy: no NodePool can make a node for 1 pod", "g6.2xlarge, has 1")
	})

	c.part("nothing is wrong", func(c *Case) {
		for _, file := range []string{"job.yaml", "pytorchjob.yaml", "jobset.yaml"} {
			c.expectNoWarnings(c.kubectlApply(c.Manifest(file, ours, protected, onePerGPU, renamed("good"))))
		}
	})
	c.part("another scheduler's jobs", func(c *Case) {
		before := c.looks()
		if before == 0 {
			c.Error("no look at an object was counted")
		}
		for file, label := range map[string]string{
			"job.yaml":        "batch.kubernetes.io/job-name",
			"pytorchjob.yaml": "training.kubeflow.org/job-name",
			"jobset.yaml":     "jobset.sigs.k8s.io/jobset-name",
		} {
			path := c.Manifest(file, scheduledBy("default-scheduler"), onOneNode(label), renamed("train"))
			output, err := shared.Kubectl("create", "--dry-run=server", "--namespace=default", "--filename="+path)
			c.must(err)
			c.expectNoWarnings(output)
		}
		if looks := c.looks() - before; looks > 0 {
			c.Errorf("Muster was asked about %v objects that aren't its own", looks)
		}
	})

	c.part("Muster hangs", func(c *Case) {
		c.must(shared.Muster.Freeze())
		defer func() { c.must(shared.Muster.Thaw()) }()
		c.expectStoredInTime("pytorchjob-one-node.yaml", "unseen")
	})
	c.part("Muster is down", func(c *Case) {
		shared.Muster.Kill()
		c.expectStoredInTime("pytorchjob-one-node.yaml", "unseen")
	})
}

// part is a step that is judged by itself; what it applies goes with it.
func (c *Case) part(name string, do func(c *Case)) {
	c.Run(name, func(t *testing.T) {
		part := *c
		part.T = t
		do(&part)
	})
}

var ours = scheduledBy(plane.SchedulerName)

// protected keeps Karpenter from taking a pod's node away.
func protected(object *unstructured.Unstructured) {
	eachTemplate(object, func(template map[string]any) {
		template["metadata"] = map[string]any{"annotations": map[string]any{doNotDisrupt: "true"}}
	})
}

// onePerGPU says what torchrun takes for granted.
var onePerGPU = eachPodSpec(func(spec map[string]any) {
	for _, container := range spec["containers"].([]any) {
		container.(map[string]any)["command"] = []any{"torchrun", "--nproc_per_node=1", "train.py"}
	}
})

// onOneNode makes all pods of job "train", by the label that its controller gives
// them, want to be on one node.
func onOneNode(label string) Change {
	return eachPodSpec(func(spec map[string]any) {
		spec["affinity"] = map[string]any{"podAffinity": map[string]any{
			"requiredDuringSchedulingIgnoredDuringExecution": []any{map[string]any{
				"labelSelector": map[string]any{"matchLabels": map[string]any{label: "train"}},
				"topologyKey":   "kubernetes.io/hostname",
			}},
		}}
	})
}

// eachTemplate edits every pod template of an object.
func eachTemplate(object *unstructured.Unstructured, edit func(template map[string]any)) {
	eachMap(object.Object, func(m map[string]any) {
		if spec, ok := m["spec"].(map[string]any); ok && spec["containers"] != nil {
			edit(m)
		}
	})
}

func (c *Case) kubectlApply(path string) string {
	c.Helper()
	output, err := shared.Kubectl("apply", "--namespace="+c.Namespace, "--filename="+path)
	c.must(err)
	return output
}

// awaitWarning waits until Muster knows enough of the cluster to say so. A dry
// run is answered like any other.
func (c *Case) awaitWarning(path, text string) {
	c.Helper()
	var output string
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		var err error
		output, err = shared.Kubectl("create", "--dry-run=server", "--namespace="+c.Namespace, "--filename="+path)
		c.must(err)
		if strings.Contains(output, text) {
			return
		}
	}
	c.Fatalf("no warning says %q; kubectl printed:\n%s", text, output)
}

func (c *Case) expectWarnings(output string, parts ...string) {
	c.Helper()
	if !strings.Contains(output, "Warning: ") {
		c.Fatalf("kubectl printed no warning:\n%s", output)
	}
	for _, part := range parts {
		if !strings.Contains(output, part) {
			c.Errorf("kubectl printed no %q:\n%s", part, output)
		}
	}
}

func (c *Case) expectNoWarnings(output string) {
	c.Helper()
	if strings.Contains(output, "Warning: ") {
		c.Errorf("kubectl printed:\n%s", output)
	}
}

// expectStoredInTime applies a PyTorchJob while nobody answers for the warnings.
func (c *Case) expectStoredInTime(file, name string) {
	c.Helper()
	path := c.Manifest(file, renamed(name))
	begin := time.Now()
	output := c.kubectlApply(path)
	took := time.Since(begin)
	c.Logf("kubectl apply took %v", took.Round(time.Millisecond))
	c.expectNoWarnings(output)
	c.expectStoredAsWritten("pytorchjob", name)
	// The webhook's timeout of two seconds, and kubectl's own time.
	if took > 5*time.Second {
		c.Errorf("kubectl apply took %v", took)
	}
}

// looks counts the objects that Muster has been asked about.
func (c *Case) looks() float64 {
	c.Helper()
	text, err := shared.Muster.Metrics()
	c.must(err)
	sum := 0.0
	for _, line := range strings.Split(text, "\n") {
		if value, found := strings.CutPrefix(line, "muster_admission_lint_total{"); found {
			var count float64
			_, err := fmt.Sscan(value[strings.LastIndex(value, " ")+1:], &count)
			c.must(err)
			sum += count
		}
	}
	return sum
}

// expectStoredAsWritten compares an object with what kubectl apply noted of it.
func (c *Case) expectStoredAsWritten(kind, name string) {
	c.Helper()
	text, err := shared.Kubectl("get", kind, name, "--namespace="+c.Namespace, "--output=json")
	c.must(err)
	var stored, written unstructured.Unstructured
	c.must(stored.UnmarshalJSON([]byte(text)))
	c.must(written.UnmarshalJSON([]byte(stored.GetAnnotations()["kubectl.kubernetes.io/last-applied-configuration"])))
	if got, want := fmt.Sprint(stored.Object["spec"]), fmt.Sprint(written.Object["spec"]); got != want {
		c.Errorf("%s %s is\n%s\nwas written as\n%s", kind, name, got, want)
	}
	if labels := stored.GetLabels(); !maps.Equal(labels, written.GetLabels()) || stored.GetGeneration() != 1 {
		c.Errorf("%s %s: labels %v, generation %d", kind, name, labels, stored.GetGeneration())
	}
}

// define makes a kind of another project without its controller: anything may
// stand in it.
func (c *Case) define(group, version, plural, kind string) {
	c.Helper()
	name := plural + "." + group
	free := `{type: object, x-kubernetes-preserve-unknown-fields: true}`
	path := c.write(plural+".yaml", fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %s}
spec:
  group: %s
  scope: Namespaced
  names: {plural: %s, singular: %s, kind: %s}
  versions:
  - name: %s
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, properties: {spec: %s, status: %s}}}
`, name, group, plural, strings.ToLower(kind), kind, version, free, free))
	c.Cleanup(func() {
		_, _ = shared.Kubectl("delete", "--ignore-not-found", "--timeout=30s", "--filename="+path)
	})
	_, err := shared.Kubectl("apply", "--filename="+path)
	c.must(err)
	c.must(shared.AwaitCRDs(name))
}

// nodePoolOf makes a NodePool of a type that EC2 has and the kwok provider
// doesn't: nothing comes of it.
func (c *Case) nodePoolOf(name, instanceType string) {
	c.Helper()
	name = c.Namespace + "-" + name
	_, err := shared.Dynamic.Resource(nodePoolResource).Create(c.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "karpenter.sh/v1",
		"kind":       "NodePool",
		"metadata":   map[string]any{"name": name, "labels": map[string]any{caseLabel: c.Namespace}},
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
			"nodeClassRef": map[string]any{"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": name},
			"requirements": []any{map[string]any{
				"key": "node.kubernetes.io/instance-type", "operator": "In", "values": []any{instanceType},
			}},
		}}},
	}}, metav1.CreateOptions{})
	c.must(err)
}
