package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

// The controllers that cases of Muster meet, without Muster: each one starts,
// its webhooks answer, and its pods run with the stock scheduler. Their names
// begin with TestPeer, which keeps them to ./run test peers, and none is parallel:
// their webhooks are in everybody's way.

var workloadResource = schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: "workloads"}

// started gives a case the controller and stops it before the case ends.
func (c *Case) started(peer *plane.Peer, err error) *plane.Peer {
	c.Helper()
	c.must(err)
	c.Cleanup(func() {
		if c.Failed() {
			c.Log("the peer's log: ", peer.LogPath)
		}
		if err := peer.Stop(); err != nil {
			c.Error(err)
		}
	})
	return peer
}

func TestPeerTrainingOperatorMakesPods(t *testing.T) {
	c := newStockCase(t, "pytorchjob")
	c.started(shared.StartTrainingOperator(""))
	c.NodePool("gpu", 1, 4, time.Second)
	c.Apply("pytorchjob.yaml")
	pods := c.AwaitPods("train", 4, 30*time.Second)
	pods.AwaitOnPool("gpu", time.Minute)
	_, err := shared.Kubectl("patch", "pytorchjob", "train", "--namespace="+c.Namespace, "--type=merge",
		`--patch={"spec":{"pytorchReplicaSpecs":{"Master":{"replicas":2}}}}`)
	c.refusedByWebhook("two masters", err)
}

// refusedByWebhook tells whether the peer's own webhook was asked.
func (c *Case) refusedByWebhook(what string, err error) {
	c.Helper()
	if err == nil || !strings.Contains(err.Error(), "admission webhook") {
		c.Errorf("%s: no webhook refused it: %v", what, err)
	}
}

func TestPeerTrainingOperatorMakesPodGroups(t *testing.T) {
	c := newStockCase(t, "podgroup")
	c.started(shared.StartTrainingOperator("default-scheduler"))
	c.NodePool("gpu", 1, 4, time.Second)
	c.Apply("pytorchjob.yaml")
	c.AwaitPods("train", 4, 30*time.Second).AwaitOnPool("gpu", time.Minute)
	group, err := shared.Dynamic.Resource(timeline.PodGroups).Namespace(c.Namespace).Get(c.Context(), "train", metav1.GetOptions{})
	c.must(err)
	if members, _, _ := unstructured.NestedInt64(group.Object, "spec", "minMember"); members != 4 {
		t.Errorf("its PodGroup has minMember %d, want 4", members)
	}
}

func TestPeerJobSetMakesPods(t *testing.T) {
	c := newStockCase(t, "jobset")
	c.started(shared.StartJobSet())
	c.NodePool("gpu", 1, 4, time.Second)
	c.Apply("jobset.yaml")
	c.AwaitPods("train", 4, 30*time.Second).AwaitOnPool("gpu", time.Minute)
	_, err := shared.Kubectl("patch", "jobset", "train", "--namespace="+c.Namespace, "--type=json",
		`--patch=[{"op":"remove","path":"/spec/replicatedJobs/1"}]`)
	c.refusedByWebhook("a replicated job less", err)
}

func TestPeerTrainerMakesPods(t *testing.T) {
	c := newStockCase(t, "trainjob")
	c.started(shared.StartJobSet())
	c.started(shared.StartTrainer())
	c.NodePool("gpu", 1, 4, time.Second)
	c.Apply("trainjob.yaml")
	c.AwaitPods("train", 4, 30*time.Second).AwaitOnPool("gpu", time.Minute)
	_, err := shared.Kubectl("create", "--filename="+c.write("other.yaml", `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: other, namespace: `+c.Namespace+`}
spec: {runtimeRef: {name: nowhere}}
`))
	c.refusedByWebhook("a runtime that doesn't exist", err)
}

func TestPeerTrainerInitializesFirst(t *testing.T) {
	c := newStockCase(t, "initializer")
	c.started(shared.StartJobSet())
	c.started(shared.StartTrainer())
	c.NodePool("gpu", 1, 4, time.Second)
	c.Apply("trainjob-initializer.yaml")
	initializer := c.AwaitPods("train-dataset-initializer", 1, 30*time.Second)
	initializer.AwaitAll("finished", time.Minute, succeeded)
	nodes := c.AwaitPods("train-node", 4, 30*time.Second)
	nodes.AwaitOnPool("gpu", time.Minute)
	done := initializer.Moments(succeeded)[0]
	for _, created := range nodes.Moments(func(*corev1.Pod) bool { return true }) {
		if created.Revision < done.Revision {
			t.Errorf("pod %s came at revision %d, before the initializer had finished at %d",
				created.Object.GetName(), created.Revision, done.Revision)
		}
	}
}

func TestPeerKueueAdmitsAJob(t *testing.T) {
	c := newStockCase(t, "kueue")
	c.started(shared.StartKueue(plane.Kueue{Frameworks: []string{"batch/job"}}))
	c.NodePool("gpu", 1, 4, time.Second)
	c.Apply("quota.yaml")
	// Without a selector of its own: the flavor's leads it to its NodePool.
	c.Apply("job.yaml", queuedIn("default"), withoutNodeSelector)
	c.AwaitPods("train", 4, 30*time.Second).AwaitOnPool("gpu", time.Minute)

	c.checkKueueWebhooks()

	// What has no quota stays suspended.
	c.Apply("job.yaml", renamed("much"), queuedIn("default"), withoutNodeSelector, func(job *unstructured.Unstructured) {
		c.must(unstructured.SetNestedField(job.Object, int64(101), "spec", "parallelism"))
		c.must(unstructured.SetNestedField(job.Object, int64(101), "spec", "completions"))
	})
	c.awaitWorkload("job-much", "QuotaReserved", "False")
	job, err := shared.Client.BatchV1().Jobs(c.Namespace).Get(c.Context(), "much", metav1.GetOptions{})
	c.must(err)
	if job.Spec.Suspend == nil || !*job.Spec.Suspend || job.Status.Active > 0 {
		t.Errorf("a job of 101 GPUs isn't suspended: %+v", job.Status)
	}
}

// checkKueueWebhooks sees that both kinds of webhook answer: the one that
// validates and the one that converts.
func (c *Case) checkKueueWebhooks() {
	c.Helper()
	_, err := shared.Kubectl("patch", "clusterqueues.v1beta1.kueue.x-k8s.io", "cluster-queue-gpu", "--type=json",
		`--patch=[{"op":"add","path":"/spec/resourceGroups/-","value":{"coveredResources":["cpu"],
			"flavors":[{"name":"nvidia","resources":[{"name":"cpu","nominalQuota":"1"}]}]}}]`)
	c.refusedByWebhook("a flavor in two resource groups", err)
	_, err = shared.Kubectl("patch", "clusterqueues.v1beta1.kueue.x-k8s.io", "cluster-queue-gpu", "--type=merge",
		`--patch={"spec":{"cohort":"all"}}`)
	c.must(err)
	cohort, err := shared.Kubectl("get", "clusterqueues.v1beta2.kueue.x-k8s.io", "cluster-queue-gpu", "--output=jsonpath={.spec.cohortName}")
	c.must(err)
	if cohort != "all" {
		c.Errorf("cohort \"all\" of v1beta1 is cohortName %q of v1beta2", cohort)
	}
}

func TestPeerKueueAdmitsEachKindOfJob(t *testing.T) {
	c := newStockCase(t, "kueue-kinds")
	c.removeMuster() // with quotas of its own it guards pods that name a queue
	c.started(shared.StartJobSet())
	c.started(shared.StartTrainer())
	c.started(shared.StartTrainingOperator(""))
	c.started(shared.StartKueue(plane.Kueue{FairSharing: true, Frameworks: []string{
		"jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob", "kubeflow.org/pytorchjob", "pod",
	}}))
	c.NodePool("gpu", 1, 12, time.Second)
	c.Apply("quota.yaml")
	for _, kind := range []string{"pytorchjob", "jobset", "trainjob"} {
		c.Apply(kind+".yaml", renamed(kind), queuedIn("default"), withoutNodeSelector)
		c.AwaitPods(kind, 4, 30*time.Second).AwaitOnPool("gpu", time.Minute)
	}
	pod := c.Pod("single", "default-scheduler", 1)
	pod.Labels = map[string]string{"kueue.x-k8s.io/queue-name": "default"}
	pod.Spec.NodeSelector = nil
	for _, list := range []corev1.ResourceList{pod.Spec.Containers[0].Resources.Requests, pod.Spec.Containers[0].Resources.Limits} {
		delete(list, corev1.ResourceCPU) // the queue has GPUs only
	}
	pod.Name = "single-0"
	if created := c.Create(pod); !gated(created) {
		t.Error("Kueue's webhook didn't gate a pod with a queue's name")
	}
	c.AwaitPods("single", 1, 30*time.Second).AwaitOnPool("gpu", time.Minute)
}

func TestPeerMinimalKueueAdmitsAWorkload(t *testing.T) {
	c := newStockCase(t, "minimalkueue")
	c.started(shared.StartMinimalKueue())
	c.Apply("quota.yaml")
	c.Apply("workload.yaml")
	c.awaitWorkload("train", "Admitted", "True")
}

// A cluster may have the queues' CRDs without Kueue: they are as they were once
// it is gone, and so is everything that was Kueue's alone.
func TestPeerLeavesNothingBehind(t *testing.T) {
	c := newStockCase(t, "leaving")
	const theirs, ours = "workloads.kueue.x-k8s.io", "cohorts.kueue.x-k8s.io"
	_, err := shared.Kubectl("create", "--filename="+c.write("crd.yaml", `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: cohorts.kueue.x-k8s.io}
spec:
  group: kueue.x-k8s.io
  names: {kind: Cohort, listKind: CohortList, plural: cohorts, singular: cohort}
  scope: Cluster
  versions:
  - {name: v1beta1, served: true, storage: true, schema: &any {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
  - {name: v1beta2, served: true, storage: false, schema: *any}
`))
	c.must(err)
	c.Cleanup(func() { _, _ = shared.Kubectl("delete", "crd", ours) })
	spec := func(name string) string {
		out, err := shared.Kubectl("get", "crd", name, "--ignore-not-found", "--output=jsonpath={.spec}")
		c.must(err)
		return out
	}
	before := spec(ours)
	peer := c.started(shared.StartMinimalKueue())
	if spec(ours) == before || spec(theirs) == "" {
		t.Error("Kueue's own CRDs weren't installed")
	}
	c.Apply("quota.yaml")
	c.must(peer.Stop())
	if after := spec(ours); after != before {
		t.Errorf("a CRD that was there before is now\n%s\nand was\n%s", after, before)
	}
	if spec(theirs) != "" {
		t.Errorf("%s is still there", theirs)
	}
}

// awaitWorkload waits for a condition of the Workload whose name begins so.
func (c *Case) awaitWorkload(prefix, condition, status string) {
	c.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		list, err := shared.Dynamic.Resource(workloadResource).Namespace(c.Namespace).List(c.Context(), metav1.ListOptions{})
		c.must(err)
		var seen []string
		for i := range list.Items {
			facts := describeConditions(&list.Items[i])
			if strings.HasPrefix(list.Items[i].GetName(), prefix) && slices.Contains(facts, condition+"="+status) {
				return
			}
			seen = append(seen, fmt.Sprint(list.Items[i].GetName(), facts))
		}
		if time.Now().After(deadline) {
			c.Fatalf("no Workload %s* has %s=%s; there are %q", prefix, condition, status, seen)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
