package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Where Kueue isn't installed, its quota objects are those of these
// definitions. They are put up and taken down again while no other case runs:
// a cluster with queues is another cluster to every gang.
const queueDefinitions = "../../deploy/crds/kueue"

func installQueueDefinitions(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if output, err := shared.Kubectl("delete", "--kustomize="+queueDefinitions, "--ignore-not-found", "--timeout=60s"); err != nil {
			t.Error(err, output)
		}
	})
	mustKubectl(t, "apply", "--server-side", "--validate=strict", "--kustomize="+queueDefinitions)
	if err := shared.AwaitCRDs("resourceflavors.kueue.x-k8s.io", "clusterqueues.kueue.x-k8s.io",
		"localqueues.kueue.x-k8s.io", "cohorts.kueue.x-k8s.io", "workloadpriorityclasses.kueue.x-k8s.io"); err != nil {
		t.Fatal(err)
	}
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

const everyFieldOfV1beta1 = `
apiVersion: kueue.x-k8s.io/v1beta1
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
apiVersion: kueue.x-k8s.io/v1beta1
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
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: older}
spec:
  cohort: research
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
  flavorFungibility: {whenCanBorrow: Borrow, whenCanPreempt: Preempt}
  preemption:
    reclaimWithinCohort: Any
    withinClusterQueue: LowerOrNewerEqualPriority
    borrowWithinCohort: {policy: LowerPriority, maxPriorityThreshold: 100}
  admissionChecks: [budget]
  stopPolicy: None
  fairSharing: {weight: 2}
  admissionScope: {admissionMode: UsageBasedAdmissionFairSharing}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: older, namespace: default}
spec:
  clusterQueue: older
  stopPolicy: Hold
  fairSharing: {weight: 500m}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: WorkloadPriorityClass
metadata: {name: urgent}
value: 10000
description: Deadlines.
`

const everyFieldOfV1beta2 = `
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
metadata: {name: newer}
spec:
  cohortName: research
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors:
    - name: plain
      resources:
      - {name: nvidia.com/gpu, nominalQuota: 8}
  flavorFungibility:
    whenCanBorrow: TryNextFlavor
    whenCanPreempt: TryNextFlavor
    preference: PreemptionOverBorrowing
  admissionChecksStrategy:
    admissionChecks:
    - {name: budget, onFlavors: [plain]}
  stopPolicy: HoldAndDrain
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: newer, namespace: default}
spec:
  clusterQueue: newer
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: idle}
value: -10
`

func TestManifestsWrittenForKueueApplyInBothVersions(t *testing.T) {
	installQueueDefinitions(t)
	mustApply(t, everyFieldOfV1beta1)
	mustApply(t, everyFieldOfV1beta2)
	mustKubectl(t, "apply", "--validate=strict", "--filename=../../deploy/examples/queues.yaml")

	// Neither version loses what was written in the other, not even when it
	// writes in between.
	for _, version := range []string{"v1beta1", "v1beta2", "v1beta1"} {
		resource := "clusterqueues." + version + ".kueue.x-k8s.io/"
		for name, field := range map[string]string{"older": "{.spec.cohort}", "newer": "{.spec.cohortName}"} {
			mustKubectl(t, "annotate", "--overwrite", resource+name, "touched-in="+version)
			if got := mustKubectl(t, "get", resource+name, "--output=jsonpath="+field); got != "research" {
				t.Errorf("%s of %s in %s is %q, want research", field, name, version, got)
			}
		}
		if got := mustKubectl(t, "get", resource+"older", "--output=jsonpath={.spec.flavorFungibility.whenCanBorrow}"); got != "Borrow" {
			t.Errorf("whenCanBorrow in %s is %q", version, got)
		}
	}
	if got := mustKubectl(t, "get", "cq/newer", "--output=jsonpath={.spec.queueingStrategy} {.spec.preemption.borrowWithinCohort.policy}"); got != "BestEffortFIFO Never" {
		t.Errorf("defaults of a queue are %q", got)
	}
}

func TestMusterWritesTheStatusOfQueuesAndNothingElse(t *testing.T) {
	installQueueDefinitions(t)
	mustApply(t, everyFieldOfV1beta1)
	usage := `[{"name":"spot","resources":[{"name":"cpu","total":"1500m","borrowed":"500m"}]}]`
	active := `[{"type":"Active","status":"False","reason":"FlavorNotFound","message":"spot is missing","lastTransitionTime":"2026-01-02T03:04:05Z","observedGeneration":1}]`
	counts := `"pendingWorkloads":3,"reservingWorkloads":2,"admittedWorkloads":1`
	patches := map[string]string{
		"clusterqueues.v1beta1.kueue.x-k8s.io": `{"status":{` + counts + `,"flavorsReservation":` + usage + `,"flavorsUsage":` + usage + `,"conditions":` + active + `}}`,
		"localqueues.v1beta1.kueue.x-k8s.io":   `{"status":{` + counts + `,"flavorsReservation":` + strings.ReplaceAll(usage, `,"borrowed":"500m"`, "") + `,"flavorUsage":` + strings.ReplaceAll(usage, `,"borrowed":"500m"`, "") + `,"conditions":` + active + `}}`,
		"localqueues.v1beta2.kueue.x-k8s.io":   `{"status":{"flavorsUsage":` + strings.ReplaceAll(usage, `,"borrowed":"500m"`, "") + `}}`,
	}
	for resource, patch := range patches {
		// As the administrator, because kubectl wants to read the subresource
		// first; Muster doesn't, and may not.
		mustKubectl(t, "patch", resource, "older", "--namespace=default", "--type=merge", "--subresource=status", "--patch="+patch)
		answer, err := shared.KubectlAsMuster("auth", "can-i", "patch", resource, "--subresource=status", "--all-namespaces")
		if err != nil {
			t.Errorf("may Muster patch the status of %s? %s", resource, answer)
		}
		if _, err := shared.KubectlAsMuster("get", resource, "--all-namespaces"); err != nil {
			t.Error(err)
		}
		if _, err := shared.KubectlAsMuster("patch", resource, "older", "--namespace=default", "--type=merge", `--patch={"spec":{"stopPolicy":"Hold"}}`); err == nil || !strings.Contains(err.Error(), "forbidden") {
			t.Errorf("Muster patched the spec of %s: %v", resource, err)
		}
	}
	for _, resource := range []string{"clusterqueues", "localqueues"} {
		stored := mustKubectl(t, "get", resource, "older", "--namespace=default", "--output=jsonpath={.status}")
		for _, want := range []string{`"total":"1500m"`, `"FlavorNotFound"`, `"pendingWorkloads":3`} {
			if !strings.Contains(stored, want) {
				t.Errorf("status of %s has no %s: %s", resource, want, stored)
			}
		}
	}
	if got := mustKubectl(t, "get", "cq/older", "--output=jsonpath={.status.flavorsUsage[0].resources[0].borrowed}"); got != "500m" {
		t.Errorf("borrowed is %q, want 500m", got)
	}
	if got := mustKubectl(t, "get", "lq/older", "--namespace=default", "--output=jsonpath={.status.flavorsUsage[0].name} {.status.flavorUsage[0].name}"); got != "spot spot" {
		t.Errorf("flavors of the LocalQueue's usage are %q, want spot in both spellings", got)
	}
	if got := mustKubectl(t, "get", "cq/older", "--output=jsonpath={.spec.stopPolicy}"); got != "None" {
		t.Errorf("stopPolicy is %q", got)
	}
}

// clusterQueue is a manifest with the given spec, indented by two.
func clusterQueue(spec string) string {
	return "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQueue\nmetadata: {name: wrong}\nspec:\n" + spec
}

func flavor(spec string) string {
	return "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ResourceFlavor\nmetadata: {name: wrong}\nspec:\n" + spec
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
	installQueueDefinitions(t)
	mustApply(t, everyFieldOfV1beta1)
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
		{"a cohort that can't be a name", clusterQueue("  cohort: A_B\n"), "spec.cohort"},
		{"17 groups", clusterQueue("  resourceGroups: [" + repeat(17, func(i string) string {
			return "{coveredResources: [" + i + "], flavors: [{name: " + i + ", resources: [{name: " + i + ", nominalQuota: 1}]}]}"
		}) + "]"), "spec.resourceGroups: Too many: 17: must have at most 16 items"},
		{"65 flavors", clusterQueue(group("[cpu]", "["+repeat(65, func(i string) string { return "{name: " + i + ", resources: [" + cpu + "]}" })+"]")),
			"spec.resourceGroups[0].flavors: Too many: 65"},
		{"an unknown strategy", clusterQueue("  queueingStrategy: LIFO\n"), "spec.queueingStrategy: Unsupported value"},
		{"an unknown stop policy", clusterQueue("  stopPolicy: Drain\n"), "spec.stopPolicy: Unsupported value"},
		{"an unknown fungibility", clusterQueue("  flavorFungibility: {whenCanBorrow: Preempt}\n"), "spec.flavorFungibility.whenCanBorrow: Unsupported value"},
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

		{"another ClusterQueue behind a LocalQueue", "apiVersion: kueue.x-k8s.io/v1beta1\nkind: LocalQueue\nmetadata: {name: older, namespace: default}\nspec: {clusterQueue: newer, stopPolicy: Hold}\n",
			"clusterQueue can't be changed"},
		{"a priority past int32", "apiVersion: kueue.x-k8s.io/v1beta1\nkind: WorkloadPriorityClass\nmetadata: {name: wrong}\nvalue: 3000000000\n", "value"},
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
