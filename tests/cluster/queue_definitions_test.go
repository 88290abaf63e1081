package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Where Kueue isn't installed, its quota objects are those of these
// definitions. They are put up and taken down again while no other case runs:
// a cluster with queues is another cluster to every gang.
const queueDefinitions = "../../deploy/crds/kueue"

func installQueueDefinitions(t *testing.T, arguments ...string) {
	t.Helper()
	served := func() {
		t.Helper()
		if err := shared.AwaitCRDs("resourceflavors.kueue.x-k8s.io", "clusterqueues.kueue.x-k8s.io",
			"localqueues.kueue.x-k8s.io", "cohorts.kueue.x-k8s.io", "workloadpriorityclasses.kueue.x-k8s.io",
			"topologies.kueue.x-k8s.io", "workloads.kueue.x-k8s.io"); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		removeQueues(t)
		// The API server takes a minute to delete a definition whose storage isn't ready yet.
		served()
		if output, err := shared.Kubectl("delete", "--kustomize="+queueDefinitions, "--ignore-not-found", "--timeout=150s"); err != nil {
			t.Error(err, output)
		}
	})
	mustKubectl(t, append([]string{"apply", "--server-side", "--validate=strict", "--kustomize=" + queueDefinitions}, arguments...)...)
	served()
}

// removeQueues takes away what keeps queues and flavors of which no Muster that runs says that they
// aren't in use any more.
func removeQueues(t *testing.T) {
	t.Helper()
	for _, kind := range []string{"clusterqueues.kueue.x-k8s.io", "resourceflavors.kueue.x-k8s.io"} {
		// Of what is being deleted no finalizer can be added again.
		_, _ = shared.Kubectl("delete", kind, "--all", "--wait=false")
		left, _ := shared.Kubectl("get", kind, "--output=name")
		for _, name := range strings.Fields(left) {
			// Gone meanwhile, perhaps.
			_, _ = shared.Kubectl("patch", name, "--type=merge", `--patch={"metadata":{"finalizers":null}}`)
		}
	}
}

// installDefinitionsAlone leaves nobody who answers to what is applied: a Muster that still runs for
// an earlier case finds the queues within seconds and writes their status.
func installDefinitionsAlone(t *testing.T, arguments ...string) {
	t.Helper()
	shared.Muster.Kill() // the next case starts it as usual
	installQueueDefinitions(t, arguments...)
}

func mustKubectl(t *testing.T, arguments ...string) string {
	t.Helper()
	output, err := shared.Kubectl(arguments...)
	if err != nil {
		t.Fatal(err)
	}
	return output
}

// applyStrictly is kubectl apply of one manifest, as a careful user runs it.
func applyStrictly(t *testing.T, manifest string, arguments ...string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
	return shared.Kubectl(append([]string{"apply", "--validate=strict", "--filename=" + file}, arguments...)...)
}

func mustApply(t *testing.T, manifest string) {
	t.Helper()
	if _, err := applyStrictly(t, manifest); err != nil {
		t.Fatal(err)
	}
}

const everyField = `
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: spot}
spec:
  nodeLabels: {capacity: spot}
  nodeTaints:
  - {key: capacity, value: spot, effect: NoSchedule}
  tolerations:
  - {key: capacity, operator: Equal, value: spot, effect: NoExecute, tolerationSeconds: 60}
  - {operator: Exists}
  topologyName: blocks
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: research}
spec:
  parentName: company
  fairSharing: {weight: "1.5"}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: spot
      resources:
      - {name: cpu, nominalQuota: "100", borrowingLimit: 50, lendingLimit: 500}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: full}
spec:
  cohortName: research
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors:
    - name: spot
      resources:
      - {name: cpu, nominalQuota: 1500m, borrowingLimit: 1, lendingLimit: 500m}
      - {name: memory, nominalQuota: 4Gi}
  queueingStrategy: StrictFIFO
  namespaceSelector:
    matchLabels: {team: ml}
    matchExpressions:
    - {key: stage, operator: In, values: [test, live]}
  flavorFungibility:
    whenCanBorrow: TryNextFlavor
    whenCanPreempt: TryNextFlavor
    preference: PreemptionOverBorrowing
  preemption:
    reclaimWithinCohort: Any
    withinClusterQueue: LowerOrNewerEqualPriority
    borrowWithinCohort: {policy: LowerPriority, maxPriorityThreshold: 100}
  admissionChecksStrategy:
    admissionChecks:
    - {name: budget, onFlavors: [spot]}
  stopPolicy: None
  fairSharing: {weight: 2}
  admissionScope: {admissionMode: UsageBasedAdmissionFairSharing}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: full, namespace: default}
spec:
  clusterQueue: full
  stopPolicy: Hold
  fairSharing: {weight: 500m}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: blocks}
spec:
  levels:
  - nodeLabel: cloud.provider.com/topology-block
  - nodeLabel: kubernetes.io/hostname
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: urgent}
value: 10000
description: Deadlines.
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: plain}
spec: {}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: company}
spec: {}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: plain}
spec: {}
`

// queuesOfMuster01 stand for the definitions of Muster 0.1, with an object that they stored.
const queuesOfMuster01 = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusterqueues.kueue.x-k8s.io}
spec:
  group: kueue.x-k8s.io
  names: {kind: ClusterQueue, listKind: ClusterQueueList, plural: clusterqueues, singular: clusterqueue}
  scope: Cluster
  versions:
  - {name: v1beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

const queueOfMuster01 = `
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: stored}
spec:
  cohort: research
  admissionChecks: [budget]
  flavorFungibility: {whenCanBorrow: Borrow}
`

func TestQueuesStoredByMuster01KeepTheirCohort(t *testing.T) {
	t.Cleanup(func() {
		if output, err := shared.Kubectl("delete", "crd", "clusterqueues.kueue.x-k8s.io", "--ignore-not-found", "--timeout=150s"); err != nil {
			t.Error(err, output)
		}
	})
	mustApply(t, queuesOfMuster01)
	if err := shared.AwaitCRDs("clusterqueues.kueue.x-k8s.io"); err != nil {
		t.Fatal(err)
	}
	mustApply(t, queueOfMuster01)
	installDefinitionsAlone(t, "--force-conflicts")
	const fields = "--output=jsonpath={.apiVersion} {.spec.cohort} {.spec.admissionChecks[0]}"
	const want = "kueue.x-k8s.io/v1beta2 research budget"
	// By its version, for kubectl remembers which there were; and served it is a moment later.
	const kind = "clusterqueues.v1beta2.kueue.x-k8s.io"
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		output, err := shared.Kubectl("get", kind, "stored")
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err, output)
		}
	}
	if got := mustKubectl(t, "get", kind, "stored", fields); got != want {
		t.Errorf("stored before, read as %q, want %q", got, want)
	}
	mustKubectl(t, "annotate", kind, "stored", "touched=yes")
	if got := mustKubectl(t, "get", kind, "stored", fields); got != want {
		t.Errorf("written again, read as %q, want %q", got, want)
	}
}

func TestManifestsWrittenForKueueApply(t *testing.T) {
	installDefinitionsAlone(t)
	mustApply(t, everyField)
	mustKubectl(t, "apply", "--validate=strict", "--filename=../../deploy/examples/queues.yaml")
	if got := mustKubectl(t, "get", "cq/plain", "--output=jsonpath={.spec.queueingStrategy} {.spec.preemption.borrowWithinCohort.policy}"); got != "BestEffortFIFO Never" {
		t.Errorf("defaults of a queue are %q", got)
	}
	// Nothing would convert it.
	if output, err := applyStrictly(t, queueOfMuster01); err == nil {
		t.Errorf("a manifest of v1beta1 applies: %s", output)
	}
}

func TestMusterWritesTheStatusOfQueuesAndNothingElse(t *testing.T) {
	installDefinitionsAlone(t)
	mustApply(t, everyField)
	usage := `[{"name":"spot","resources":[{"name":"cpu","total":"1500m","borrowed":"500m"}]}]`
	active := `[{"type":"Active","status":"False","reason":"FlavorNotFound","message":"spot is missing","lastTransitionTime":"2026-01-02T03:04:05Z","observedGeneration":1}]`
	counts := `"pendingWorkloads":3,"reservingWorkloads":2,"admittedWorkloads":1`
	for _, resource := range []string{"clusterqueues", "localqueues"} {
		usage := usage
		if resource == "localqueues" {
			usage = strings.ReplaceAll(usage, `,"borrowed":"500m"`, "")
		}
		// As the administrator, because kubectl wants to read the subresource
		// first; Muster doesn't, and may not.
		mustKubectl(t, "patch", resource, "full", "--namespace=default", "--type=merge", "--subresource=status",
			"--patch="+`{"status":{`+counts+`,"flavorsReservation":`+usage+`,"flavorsUsage":`+usage+`,"conditions":`+active+`}}`)
		answer, err := shared.KubectlAsMuster("auth", "can-i", "patch", resource+".kueue.x-k8s.io", "--subresource=status", "--all-namespaces")
		if err != nil {
			t.Errorf("may Muster patch the status of %s? %s", resource, answer)
		}
		if _, err := shared.KubectlAsMuster("get", resource, "--all-namespaces"); err != nil {
			t.Error(err)
		}
		if _, err := shared.KubectlAsMuster("patch", resource, "full", "--namespace=default", "--type=merge", `--patch={"spec":{"stopPolicy":"Hold"}}`); err == nil || !strings.Contains(err.Error(), "forbidden") {
			t.Errorf("Muster patched the spec of %s: %v", resource, err)
		}
		stored := mustKubectl(t, "get", resource, "full", "--namespace=default", "--output=jsonpath={.status}")
		for _, want := range []string{`"total":"1500m"`, `"FlavorNotFound"`, `"pendingWorkloads":3`} {
			if !strings.Contains(stored, want) {
				t.Errorf("status of %s has no %s: %s", resource, want, stored)
			}
		}
	}
	if got := mustKubectl(t, "get", "cq/full", "--output=jsonpath={.status.flavorsUsage[0].resources[0].borrowed} {.spec.stopPolicy}"); got != "500m None" {
		t.Errorf("borrowed and stopPolicy are %q, want 500m None", got)
	}
}

const workload = `
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: w, namespace: default}
spec:
  queueName: full
  priority: 1
  priorityClassRef: {group: kueue.x-k8s.io, kind: WorkloadPriorityClass, name: urgent}
  maximumExecutionTimeSeconds: 60
  podSets:
  - {name: main, count: 2, minCount: 1, template: {spec: {containers: [{name: main, image: i}]}}}
status:
  admission: {clusterQueue: mine}
`

func trueConditions(types ...string) string {
	var all []string
	for _, name := range types {
		all = append(all, `{"type":"`+name+`","status":"True","reason":"`+name+`","message":"","lastTransitionTime":"2026-01-02T03:04:05Z"}`)
	}
	return `"conditions":[` + strings.Join(all, ",") + `]`
}

// What Kueue's own definition refuses, of which Muster relies on each.
func TestWorkloadsHaveTheRulesOfKueuesDefinition(t *testing.T) {
	installDefinitionsAlone(t)
	mustApply(t, workload)
	if got := mustKubectl(t, "get", "kwl/w", "--output=jsonpath={.spec.active} {.status}"); got != "true " {
		t.Errorf("a new Workload has active and status %q", got)
	}
	patch := func(subresource, patch string) error {
		_, err := shared.Kubectl("patch", "kwl", "w", "--type=merge", "--subresource="+subresource, "--patch="+patch)
		return err
	}
	const admission = `"admission":{"clusterQueue":"full","podSetAssignments":[{"name":"main","count":2,"flavors":{"cpu":"spot"},"resourceUsage":{"cpu":"2"}}]},`
	set := func(name string) string {
		return `{"name":"` + name + `","template":{"spec":{"containers":[{"name":"main","image":"i"}]}}}`
	}
	sets := func(count int) string { return `{"spec":{"podSets":[` + repeat(count, set) + `]}}` }
	for _, step := range []struct{ name, subresource, patch, refusal string }{
		{"18 pod sets", "", sets(18), ""},
		{"19 pod sets", "", sets(19), "spec.podSets: Too many: 19"},
		{"no pod set", "", sets(0), "spec.podSets"},
		{"a minCount above count", "", `{"spec":{"podSets":[{"name":"main","count":2,"minCount":3,"template":{"spec":{"containers":[]}}}]}}`, "minCount is at most count"},
		{"a class without a priority", "", `{"spec":{"priority":null}}`, "priorityClassRef needs priority"},
		{"a class of the wrong kind", "", `{"spec":{"priorityClassRef":{"kind":"PriorityClass"}}}`, "kind is WorkloadPriorityClass in group kueue.x-k8s.io"},
		{"another queue while it waits", "", `{"spec":{"queueName":"other"}}`, ""},
		{"one pod set again", "", sets(1), ""},
		{"fewer assignments than pod sets", "status", `{"status":{"admission":{"clusterQueue":"full"},` + trueConditions("QuotaReserved") + `}}`, "one of podSetAssignments for each of podSets"},
		{"a reservation", "status", `{"status":{` + admission + trueConditions("QuotaReserved") + `}}`, ""},
		{"another queue", "", `{"spec":{"queueName":"third"}}`, "queueName can't be changed"},
		{"no queue", "", `{"spec":{"queueName":null}}`, "queueName can't be changed"},
		{"no class", "", `{"spec":{"priorityClassRef":null}}`, "priorityClassRef can't be changed"},
		{"a class of another kind", "", `{"spec":{"priorityClassRef":{"group":"scheduling.k8s.io","kind":"PriorityClass"}}}`, "priorityClassRef can't be changed"},
		{"another class of the same kind", "", `{"spec":{"priorityClassRef":{"name":"idle"},"priority":2}}`, ""},
		{"another time while only reserved", "", `{"spec":{"maximumExecutionTimeSeconds":61}}`, ""},
		{"an admission", "status", `{"status":{` + trueConditions("QuotaReserved", "Admitted") + `}}`, ""},
		{"another time", "", `{"spec":{"maximumExecutionTimeSeconds":62}}`, "maximumExecutionTimeSeconds can't be changed"},
		{"other pods", "", `{"spec":{"podSets":[{"name":"aa","count":7,"template":{"spec":{"containers":[]}}}]}}`, ""},
		{"another flavor", "status", `{"status":{` + strings.ReplaceAll(admission, "spot", "plain") + trueConditions("QuotaReserved", "Admitted") + `}}`, ""},
		{"no reservation", "status", `{"status":{"admission":null,` + trueConditions("Evicted") + `}}`, ""},
		{"another queue once it waits again", "", `{"spec":{"queueName":"third"}}`, ""},
	} {
		err := patch(step.subresource, step.patch)
		if step.refusal == "" && err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		if step.refusal != "" && (err == nil || !strings.Contains(err.Error(), step.refusal)) {
			t.Errorf("%s isn't refused with %q: %v", step.name, step.refusal, err)
		}
	}
}

// clusterQueue is a manifest with the given spec, indented by two.
func clusterQueue(spec string) string {
	return "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: wrong}\nspec:\n" + spec
}

func flavor(spec string) string {
	return "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: wrong}\nspec:\n" + spec
}

func topology(levels string) string {
	return "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Topology\nmetadata: {name: wrong}\nspec: {levels: [" + levels + "]}\n"
}

func group(covered, flavors string) string {
	return "  resourceGroups:\n  - coveredResources: " + covered + "\n    flavors: " + flavors
}

func repeat(count int, element func(i string) string) string {
	var elements []string
	for i := range count {
		elements = append(elements, element(string(rune('a'+i/26))+string(rune('a'+i%26))))
	}
	return strings.Join(elements, ", ")
}

func TestWrongQueueManifestsAreRefusedByField(t *testing.T) {
	installDefinitionsAlone(t)
	mustApply(t, everyField)
	cpu := "{name: cpu, nominalQuota: 1}"
	cases := []struct{ name, manifest, want string }{
		// Both as the workshop has them.
		{"a flavor with nodeSelector", flavor("  nodeSelector: {nodeType: nvidia}\n  tolerations:\n  - {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}\n"),
			`unknown field "spec.nodeSelector"`},
		{"flavors as strings", clusterQueue("  resourceGroups:\n  - flavors:\n    - flavor-gpu-nvidia\n    - flavor-gpu-nvidia-efa\n    resources:\n    - {name: nvidia.com/gpu, nominalQuota: 100}\n"),
			`unknown field "spec.resourceGroups[0].resources"`},
		{"flavors as strings where the rest is sound", clusterQueue(group("[nvidia.com/gpu]", "[flavor-gpu-nvidia]")),
			"spec.resourceGroups[0].flavors[0]"},

		{"an amount that is no quantity", clusterQueue(group("[cpu]", "[{name: f, resources: [{name: cpu, nominalQuota: plenty}]}]")),
			"spec.resourceGroups[0].flavors[0].resources[0].nominalQuota"},
		{"no amount", clusterQueue(group("[cpu]", "[{name: f, resources: [{name: cpu}]}]")),
			"spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: Required value"},
		{"fewer amounts than resources", clusterQueue(group("[cpu, memory]", "[{name: f, resources: ["+cpu+"]}]")),
			"each flavor needs as many resources as coveredResources has"},
		{"a flavor twice in a group", clusterQueue(group("[cpu]", "[{name: f, resources: ["+cpu+"]}, {name: f, resources: ["+cpu+"]}]")),
			"spec.resourceGroups[0].flavors[1]: Duplicate value"},
		{"a borrowing limit without a cohort", clusterQueue(group("[cpu]", "[{name: f, resources: [{name: cpu, nominalQuota: 1, borrowingLimit: 1}]}]")),
			"borrowingLimit needs a cohort to borrow from"},
		{"two cohorts", clusterQueue("  cohort: a\n  cohortName: b\n"), "must not differ"},
		{"a cohort that can't be a name", clusterQueue("  cohortName: A_B\n"), "spec.cohortName"},
		{"17 groups", clusterQueue("  resourceGroups: [" + repeat(17, func(i string) string {
			return "{coveredResources: [" + i + "], flavors: [{name: " + i + ", resources: [{name: " + i + ", nominalQuota: 1}]}]}"
		}) + "]"), "spec.resourceGroups: Too many: 17: must have at most 16 items"},
		{"65 flavors", clusterQueue(group("[cpu]", "["+repeat(65, func(i string) string { return "{name: " + i + ", resources: [" + cpu + "]}" })+"]")),
			"spec.resourceGroups[0].flavors: Too many: 65"},
		{"an unknown strategy", clusterQueue("  queueingStrategy: LIFO\n"), "spec.queueingStrategy: Unsupported value"},
		{"an unknown stop policy", clusterQueue("  stopPolicy: Drain\n"), "spec.stopPolicy: Unsupported value"},
		{"an unknown fungibility", clusterQueue("  flavorFungibility: {whenCanBorrow: Borrow}\n"), "spec.flavorFungibility.whenCanBorrow: Unsupported value"},
		{"a preference with nothing to prefer", clusterQueue("  flavorFungibility: {preference: PreemptionOverBorrowing}\n"),
			"preference needs whenCanBorrow and whenCanPreempt TryNextFlavor"},
		{"borrowing by preemption without reclaiming", clusterQueue("  preemption: {borrowWithinCohort: {policy: LowerPriority}}\n"),
			"borrowWithinCohort needs a reclaimWithinCohort other than Never"},
		{"a weight that is no quantity", clusterQueue("  fairSharing: {weight: heavy}\n"), "spec.fairSharing.weight"},

		{"nine labels", flavor("  nodeLabels: {" + repeat(9, func(i string) string { return i + ": x" }) + "}"), "spec.nodeLabels: Too many: 9"},
		{"an unknown taint effect", flavor("  nodeTaints: [{key: k, effect: Never}]\n"), "spec.nodeTaints"},
		{"a toleration of everything by Equal", flavor("  tolerations: [{effect: NoSchedule}]\n"), "operator must be Exists where key is empty"},
		{"a toleration for a time of no eviction", flavor("  tolerations: [{key: k, operator: Exists, tolerationSeconds: 5}]\n"), "tolerationSeconds needs effect NoExecute"},
		{"a topology without labels", flavor("  nodeLabels: {}\n  topologyName: blocks\n"), "topologyName needs at least one of nodeLabels"},

		{"a topology without levels", topology(""), "spec.levels"},
		{"a level twice", topology("{nodeLabel: rack}, {nodeLabel: rack}"), "each label is named once"},
		{"a level below the host", topology("{nodeLabel: kubernetes.io/hostname}, {nodeLabel: rack}"),
			"kubernetes.io/hostname is the lowest level"},
		{"other levels than before", strings.Replace(topology("{nodeLabel: rack}"), "wrong", "blocks", 1), "levels are immutable"},

		{"another ClusterQueue behind a LocalQueue", "apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: full, namespace: default}\nspec: {clusterQueue: plain, stopPolicy: Hold}\n",
			"clusterQueue can't be changed"},
		{"a priority past int32", "apiVersion: kueue.x-k8s.io/v1beta2\nkind: WorkloadPriorityClass\nmetadata: {name: wrong}\nvalue: 3000000000\n", "value"},
		{"a class without a value", "apiVersion: kueue.x-k8s.io/v1beta2\nkind: WorkloadPriorityClass\nmetadata: {name: wrong}\n", "value: Required value"},
		{"a cohort's unknown field", "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Cohort\nmetadata: {name: wrong}\nspec: {parent: top}\n", `unknown field "spec.parent"`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			output, err := applyStrictly(t, c.manifest)
			if err == nil {
				t.Fatalf("accepted: %s", output)
			}
			if !strings.Contains(output, c.want) {
				t.Errorf("refused without saying %q: %s", c.want, output)
			}
		})
	}
}
