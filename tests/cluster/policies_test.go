package cluster

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"muster.dev/tests/cluster/plane"
)

// What deploy/policies refuses and what it lets through, on the real API server. They are part of
// deploy/, so every other case runs with them: none of the controllers here is hindered.

const (
	policiesFolder = "../../deploy/policies"
	// What a refusal of state says.
	stateRefusal = "only Muster writes"
)

// A user who may do everything to what namespaces have, and isn't the administrator, who may change
// state.
var asUser = []string{"--as=somebody", "--as-group=tests-users"}

func stateIsGuarded() bool {
	_, err := shared.Kubectl(append(asUser[:2:2], "annotate", "--overwrite", "--namespace=default", "pg/probe",
		fmt.Sprintf("muster.dev/admission=%d", time.Now().UnixNano()))...)
	return err != nil && strings.Contains(err.Error(), stateRefusal)
}

// installUser gives that user his rights, and a PodGroup by which to see whether state is guarded.
func installUser(t *testing.T) {
	t.Helper()
	const manifest = `
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: {name: probe, namespace: default}
spec: {minMember: 1000}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: tests-users}
rules:
- {apiGroups: ["", apps, batch, scheduling.x-k8s.io], resources: ["*"], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: tests-users}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tests-users}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: tests-users}]
`
	mustApply(t, manifest)
	t.Cleanup(func() {
		_, _ = shared.Kubectl("delete", "--ignore-not-found", "--wait=false", "--namespace=default",
			"pg/probe", "clusterrole/tests-users", "clusterrolebinding/tests-users")
	})
}

func TestPoliciesApplyStrictlyAndTheirExpressionsFitTheirObjects(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{policiesFolder, policiesFolder + "/gpu-queues"} {
		mustKubectl(t, "apply", "--server-side", "--dry-run=server", "--validate=strict", "--kustomize="+folder)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		unchecked := checkedPolicies(t)
		if unchecked == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(unchecked)
		}
	}
}

// checkedPolicies fails for each warning of the controller that checks expressions against the
// kinds that they are about, and says what it hasn't looked at yet.
func checkedPolicies(t *testing.T) (unchecked string) {
	t.Helper()
	policies := shared.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	list, err := policies.List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=muster"})
	if err != nil || len(list.Items) < 5 {
		t.Fatalf("there are %d policies, want state's and the account's four: %v", len(list.Items), err)
	}
	for _, policy := range list.Items {
		if policy.Status.ObservedGeneration != policy.Generation || policy.Status.TypeChecking == nil {
			return "policy " + policy.Name + " isn't checked"
		}
		for _, warning := range policy.Status.TypeChecking.ExpressionWarnings {
			t.Errorf("policy %s, %s: %s", policy.Name, warning.FieldRef, warning.Warning)
		}
	}
	return ""
}

// attempt is one kubectl command and how the API server must answer: "" lets it through.
type attempt struct {
	command string // its words; ' quotes
	refusal string
}

func (a attempt) run(t *testing.T, kubectl func(...string) (string, error), flags ...string) {
	t.Helper()
	words := quoted(a.command)
	output, err := kubectl(append(flags, words...)...)
	switch {
	case a.refusal == "" && err != nil:
		t.Errorf("%s: %v", a.command, err)
	case a.refusal != "" && err == nil:
		t.Errorf("%s went through: %s", a.command, output)
	case a.refusal != "" && !strings.Contains(err.Error(), a.refusal):
		t.Errorf("%s: the refusal doesn't say %q: %v", a.command, a.refusal, err)
	}
}

// quoted splits a command into words.
func quoted(command string) (words []string) {
	for i, part := range strings.Split(command, "'") {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}

const stateObjects = `
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: {name: group, annotations: {muster.dev/admission: "{}", mine: a}, labels: {muster.dev/derived: "true"}}
spec: {minMember: 1000}
---
apiVersion: v1
kind: Pod
metadata: {name: gated, annotations: {mine: a}, labels: {scheduling.x-k8s.io/pod-group: group}}
spec: {schedulerName: coscheduling, containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: Pod
metadata: {name: other}
spec: {nodeSelector: {none: none}, containers: [{name: c, image: i}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: job, annotations: {muster.dev/restart: "{}"}}
spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: set}
spec: {replicas: 0, serviceName: s, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}
`

func TestStateOnObjectsOfUsersIsMustersAlone(t *testing.T) {
	t.Parallel()
	c := newGangCase(t, "state")
	installUser(t)
	names := c.Nodes(1, 1)
	node := names[0]
	// Created by a user, with state: it isn't refused.
	path := c.write("state.yaml", stateObjects)
	in := "--namespace=" + c.Namespace
	attempt{"create --filename=" + path, ""}.run(t, shared.Kubectl, append(asUser, in)...)
	for _, one := range []attempt{
		{"annotate podgroup/group --overwrite muster.dev/admission=forged", "metadata.annotations: muster.dev/admission is state that only Muster writes; leave it as it is"},
		{"annotate podgroup/group muster.dev/admission-", stateRefusal},
		{"label podgroup/group --overwrite muster.dev/derived=false", "metadata.labels: muster.dev/derived"},
		{"annotate pod/gated muster.dev/pod-set=x muster.dev/queue=y", "metadata.annotations: muster.dev/pod-set, muster.dev/queue"},
		{"annotate pod/gated muster.dev/epoch=9", stateRefusal},
		{"patch pod/gated --patch '{\"spec\":{\"schedulingGates\":null}}' --type=merge", "spec.schedulingGates: muster.dev/admission goes when Muster admits"},
		{"annotate job/job muster.dev/flavors-tried={}", stateRefusal},
		{"annotate job/job --overwrite muster.dev/restart=later", stateRefusal},
		{"annotate statefulset/set muster.dev/admission={}", stateRefusal},
		{"annotate node/" + node + " muster.dev/holds={}", stateRefusal},
		{"annotate node/" + node + " muster.dev/suspect={}", stateRefusal},
		// What is a user's own stays his own.
		{"annotate podgroup/group --overwrite mine=b muster.dev/fallback=never muster.dev/assume-feasible=true", ""},
		{"label pod/gated kueue.x-k8s.io/queue-name=q", ""},
		{"annotate statefulset/set muster.dev/gang=true", ""},
		{"annotate job/job muster.dev/restart-", ""},
		{"patch job/job --type=merge --patch '{\"spec\":{\"suspend\":false}}'", ""},
		{"annotate node/" + node + " karpenter.sh/do-not-disrupt=true", ""},
		// Nor do the same files again, or deletions, fail.
		{"delete pod/gated --grace-period=0 --force", ""},
		{"delete podgroup/group", ""},
	} {
		one.run(t, shared.Kubectl, append(asUser, in)...)
	}
	// The administrator may mend it.
	path = c.write("again.yaml", strings.SplitN(stateObjects, "---", 2)[0])
	for _, one := range []attempt{
		{"create --filename=" + path, ""},
		{"annotate podgroup/group --overwrite muster.dev/admission={}", ""},
		{"annotate podgroup/group muster.dev/admission-", ""},
		{"annotate node/" + node + " muster.dev/holds={}", ""},
		{"annotate node/" + node + " muster.dev/holds-", ""},
	} {
		one.run(t, shared.Kubectl, in)
	}
}

func TestMustersAccountIsHeldToWhatItNeeds(t *testing.T) {
	t.Parallel()
	c := newGangCase(t, "account")
	node := c.Nodes(1, 1)[0]
	mustKubectl(t, "create", "--namespace="+c.Namespace, "--filename="+c.write("account.yaml",
		strings.Replace(stateObjects, `, annotations: {muster.dev/restart: "{}"}`, "", 1)))
	const system = `
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: kube-system}
spec: {nodeSelector: {none: none}, containers: [{name: c, image: i}]}
`
	mustKubectl(t, "create", "--namespace="+c.Namespace, "--filename="+c.write("twice.yaml", `
apiVersion: v1
kind: Pod
metadata: {name: twice}
spec: {schedulerName: coscheduling, schedulingGates: [{name: a.b/c}], containers: [{name: c, image: i}]}
`))
	name := c.Namespace
	mustApply(t, fmt.Sprintf(system, name))
	c.Cleanup(func() {
		_, _ = shared.Kubectl("delete", "pod", name, "--namespace=kube-system", "--force", "--grace-period=0")
	})
	merge := func(what, patch string) string { return "patch " + what + " --type=merge --patch '" + patch + "'" }
	in := "--namespace=" + c.Namespace
	for _, one := range []attempt{
		{merge("pod/gated", `{"metadata":{"labels":{"a":"b"}}}`), "metadata.labels"},
		{merge("pod/gated", `{"metadata":{"annotations":{"mine":"b"}}}`), "metadata.annotations"},
		{merge("pod/gated", `{"metadata":{"finalizers":["a.b/c"]}}`), "metadata.finalizers"},
		{merge("pod/gated", `{"spec":{"activeDeadlineSeconds":1}}`), "spec: Muster's account"},
		{merge("pod/gated", `{"spec":{"containers":[{"name":"c","image":"mine"}]}}`), "spec: Muster's account"},
		{merge("pod/other", `{"metadata":{"annotations":{"muster.dev/wake":"1"}}}`), "spec.schedulerName"},
		// Whatever comes with the gate's end is looked at as well.
		{merge("pod/gated", `{"spec":{"schedulingGates":null,"activeDeadlineSeconds":1}}`), "spec: Muster's account"},
		{merge("pod/gated", `{"metadata":{"annotations":{"mine":null}},"spec":{"schedulingGates":null}}`), "metadata.annotations"},
		{merge("pod/gated", `{"metadata":{"labels":{"a":"b"}},"spec":{"schedulingGates":null}}`), "metadata.labels"},
		{merge("pod/twice", `{"spec":{"schedulingGates":null}}`), "spec.schedulingGates"},
		{merge("pod/twice", `{"spec":{"schedulingGates":[{"name":"muster.dev/admission"}]}}`), "spec.schedulingGates"},
		{"delete pod/other --wait=false", "never deletes"},
		{merge("job/job", `{"spec":{"parallelism":0}}`), "spec: Muster's account"},
		{merge("job/job", `{"spec":{"template":{"spec":{"schedulingGates":[{"name":"a.b/c"}]}}}}`), "spec: Muster's account"},
		{merge("job/job", `{"metadata":{"annotations":{"mine":"b"}}}`), "metadata.annotations"},
		{merge("podgroup/group", `{"metadata":{"annotations":{"mine":"b"}}}`), "metadata.annotations"},
		{merge("podgroup/group", `{"metadata":{"labels":{"muster.dev/derived":"false"}}}`), "metadata"},
		{merge("podgroup/group", `{"spec":{"scheduleTimeoutSeconds":1}}`), "spec: Muster's account"},
		{merge("node/"+node, `{"spec":{"unschedulable":true}}`), "spec: Muster's account"},
		{merge("node/"+node, `{"metadata":{"labels":{"a":"b"}}}`), "metadata: Muster's account"},
		{merge("node/"+node, `{"metadata":{"annotations":{"a":"b"}}}`), "metadata.annotations"},
		{merge("node/"+node, `{"spec":{"taints":[{"key":"a","effect":"NoSchedule"}]}}`), "spec.taints"},
		{merge("node/"+node, `{"spec":{"taints":[{"key":"muster.dev/suspect","effect":"NoExecute"}]}}`), "spec.taints"},

		{merge("pod/gated", `{"metadata":{"annotations":{"muster.dev/wake":"1"}}}`), ""},
		{merge("pod/gated", `{"spec":{"nodeSelector":{"a":"b"}}}`), ""},
		{merge("pod/gated", `{"spec":{"schedulingGates":null}}`), ""},
		{merge("pod/twice", `{"spec":{"schedulingGates":[{"name":"a.b/c"}]}}`), ""},
		{merge("podgroup/group", `{"metadata":{"annotations":{"muster.dev/admission":"{}"}},"spec":{"minMember":2}}`), ""},
		{merge("job/job", `{"metadata":{"annotations":{"muster.dev/flavors-tried":"{}"}},"spec":{"suspend":false,"template":{"metadata":{"labels":{"a":"b"}},"spec":{"nodeSelector":{"a":"b"}}}}}`), ""},
		{merge("node/"+node, `{"metadata":{"annotations":{"muster.dev/holds":"{}","karpenter.sh/do-not-disrupt":"true"}},"spec":{"taints":[{"key":"muster.dev/suspect","effect":"NoSchedule"}]}}`), ""},
		{merge("node/"+node, `{"metadata":{"annotations":{"muster.dev/holds":null,"karpenter.sh/do-not-disrupt":null}},"spec":{"taints":null}}`), ""},
	} {
		one.run(t, shared.KubectlAsMuster, in)
	}
	// kubectl would read a status first, and may not.
	muster, err := kubernetes.NewForConfig(&rest.Config{
		Host: shared.URL(), BearerToken: shared.Token("admin"), TLSClientConfig: rest.TLSClientConfig{CAData: shared.Authority()},
		Impersonate: rest.ImpersonationConfig{UserName: plane.ServiceAccount},
	})
	c.must(err)
	_, err = muster.BatchV1().Jobs(c.Namespace).Patch(c.Context(), "job", types.MergePatchType, []byte(`{"status":{"active":2}}`), metav1.PatchOptions{}, "status")
	if err == nil || !strings.Contains(err.Error(), "status: Muster's account") {
		t.Errorf("status patch of a job: %v", err)
	}
	// Of a pod's only what scheduling has to say.
	for patch, refused := range map[string]bool{
		`{"status":{"phase":"Failed"}}`:                                                                   true,
		`{"status":{"nominatedNodeName":"n"}}`:                                                            false,
		`{"status":{"nominatedNodeName":"n","phase":"Failed"}}`:                                           true,
		`{"metadata":{"annotations":{"muster.dev/wake":"2"}}}`:                                            true,
		`{"status":{"conditions":[{"type":"PodScheduled","status":"False","reason":"SchedulingGated"}]}}`: false,
	} {
		_, err := muster.CoreV1().Pods(c.Namespace).Patch(c.Context(), "gated", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
		if refused != (err != nil && strings.Contains(err.Error(), "muster-account-pods")) || !refused && err != nil {
			t.Errorf("status patch %s: refused %v, want %v: %v", patch, err != nil, refused, err)
		}
	}
	attempt{merge("pod/"+name, `{"metadata":{"annotations":{"muster.dev/wake":"1"}}}`), "kube-system"}.run(t, shared.KubectlAsMuster, "--namespace=kube-system")
	err = muster.CoreV1().Pods("kube-system").Bind(c.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), "doesn't touch pods of kube-system") {
		t.Errorf("binding of a pod of kube-system: %v", err)
	}
	_, err = muster.CoreV1().Pods("kube-system").Patch(c.Context(), name, types.MergePatchType, []byte(`{"status":{"nominatedNodeName":"n"}}`), metav1.PatchOptions{}, "status")
	// It is of another scheduler, too.
	if err == nil || !strings.Contains(err.Error(), "Muster's account") {
		t.Errorf("nomination of a pod of kube-system: %v", err)
	}
	err = muster.PolicyV1().Evictions("kube-system").Evict(c.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}})
	if err == nil || !strings.Contains(err.Error(), "doesn't touch pods of kube-system") {
		t.Errorf("eviction of a pod of kube-system: %v", err)
	}
}

const volumeObjects = `
apiVersion: v1
kind: PersistentVolume
metadata: {name: NAME, annotations: {mine: a}}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: NAME, hostPath: {path: /none}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claim, annotations: {mine: a}}
spec: {accessModes: [ReadWriteOnce], storageClassName: none, resources: {requests: {storage: 1Gi}}}
`

// Not parallel: where a kube-scheduler binds volumes Muster's account has these rights for no longer.
func TestMustersAccountChangesOfVolumesOnlyWhatBindsThem(t *testing.T) {
	c := newGangCase(t, "volumes")
	const folder = "../../deploy/standalone"
	if os.Getenv("MUSTER_MODE") != "standalone" {
		c.Cleanup(func() { mustKubectl(t, "delete", "--ignore-not-found", "--kustomize="+folder) })
		mustKubectl(t, "apply", "--server-side", "--validate=strict", "--kustomize="+folder)
	}
	volume := "persistentvolume/" + c.Namespace
	in := "--namespace=" + c.Namespace
	c.Cleanup(func() { mustKubectl(t, "delete", volume, "--wait=false") })
	mustKubectl(t, "create", in, "--filename="+c.write("volumes.yaml", strings.ReplaceAll(volumeObjects, "NAME", c.Namespace)))
	// It takes a moment until the API server knows the policies.
	for _, refused := range []string{"pvc/claim", volume} {
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			if _, err := shared.KubectlAsMuster(in, "annotate", "--overwrite", refused, fmt.Sprintf("a=%d", time.Now().UnixNano())); err != nil && strings.Contains(err.Error(), "metadata.annotations: Muster's account") {
				break
			} else if time.Now().After(deadline) {
				t.Fatalf("the policy for %s refuses nothing: %v", refused, err)
			}
		}
	}
	merge := func(what, patch string) string { return "patch " + what + " --type=merge --patch '" + patch + "'" }
	const claimOnly = "changes of a claim only annotation volume.kubernetes.io/selected-node"
	const volumeOnly = "changes of a volume only spec.claimRef"
	for _, one := range []attempt{
		{"label pvc/claim a=b", claimOnly},
		{merge("pvc/claim", `{"metadata":{"finalizers":["a.b/c"]}}`), claimOnly},
		{merge("pvc/claim", `{"spec":{"volumeName":"`+c.Namespace+`"}}`), claimOnly},
		{"annotate pvc/claim volume.kubernetes.io/selected-node=a", ""},
		{"annotate pvc/claim --overwrite volume.kubernetes.io/selected-node=b", "where nobody has said so"},
		{"annotate pvc/claim volume.kubernetes.io/selected-node-", "where nobody has said so"},

		{"label " + volume + " a=b", volumeOnly},
		{merge(volume, `{"metadata":{"finalizers":["a.b/c"]}}`), volumeOnly},
		{merge(volume, `{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`), volumeOnly},
		{merge(volume, `{"spec":{"storageClassName":null}}`), volumeOnly},
		{merge(volume, `{"metadata":{"annotations":{"pv.kubernetes.io/bound-by-controller":"yes"}},"spec":{"claimRef":{"apiVersion":"v1","kind":"PersistentVolumeClaim","namespace":"`+c.Namespace+`","name":"none"}}}`), ""},
		{merge(volume, `{"spec":{"claimRef":{"name":"other"}}}`), volumeOnly},
		{merge(volume, `{"spec":{"claimRef":null}}`), volumeOnly},
		{"annotate " + volume + " pv.kubernetes.io/bound-by-controller-", "that it was bound by a controller"},
	} {
		one.run(t, shared.KubectlAsMuster, in)
	}
}

const gpuObjects = `
apiVersion: v1
kind: Pod
metadata: {name: NAME, labels: {LABEL: q}}
spec: {schedulerName: SCHEDULER, containers: [{name: c, image: i, resources: {limits: {RESOURCE: 1}}}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: NAME, labels: {LABEL: q}}
spec: {suspend: true, template: {spec: {restartPolicy: Never, schedulerName: SCHEDULER, containers: [{name: c, image: i, resources: {limits: {RESOURCE: 1}}}]}}}
`

// Not parallel: other cases have GPU pods of the stock scheduler.
func TestGPUPodsGoThroughAQueueWhereThatIsWanted(t *testing.T) {
	c := newGangCase(t, "gpu-queues")
	folder := policiesFolder + "/gpu-queues"
	c.Cleanup(func() { mustKubectl(t, "delete", "--ignore-not-found", "--kustomize="+folder) })
	mustKubectl(t, "apply", "--server-side", "--validate=strict", "--kustomize="+folder)
	create := func(kind int, label, scheduler, resource string) error {
		manifest := strings.Split(gpuObjects, "---")[kind]
		manifest = strings.NewReplacer("NAME", fmt.Sprintf("a%d", time.Now().UnixNano()), "LABEL", label, "SCHEDULER", scheduler, "RESOURCE", resource).Replace(manifest)
		_, err := shared.Kubectl("create", "--namespace="+c.Namespace, "--filename="+c.write("gpu.yaml", manifest))
		return err
	}
	const aPod, aJob = 0, 1
	// It takes a moment until the API server knows the policy.
	for deadline := time.Now().Add(30 * time.Second); create(aPod, "none", "default-scheduler", string(gpu)) == nil; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the policy refuses nothing")
		}
	}
	for _, one := range []struct {
		what                       string
		kind                       int
		label, scheduler, resource string
		refusal                    string
	}{
		{"a pod of the stock scheduler", aPod, "none", "default-scheduler", string(gpu), "write schedulerName: coscheduling"},
		{"a pod without a queue", aPod, "none", "coscheduling", string(gpu), "write the label kueue.x-k8s.io/queue-name"},
		{"a pod with EFA alone", aPod, "none", "coscheduling", string(efa), "write the label kueue.x-k8s.io/queue-name"},
		{"a pod with both", aPod, queueLabel, "coscheduling", string(gpu), ""},
		{"a pod without accelerators", aPod, "none", "default-scheduler", "cpu", ""},
		{"a job without a queue", aJob, "none", "coscheduling", string(gpu), "write the label kueue.x-k8s.io/queue-name"},
		{"a job with one", aJob, queueLabel, "coscheduling", string(gpu), ""},
		{"a job without accelerators", aJob, "none", "default-scheduler", "cpu", ""},
	} {
		err := create(one.kind, one.label, one.scheduler, one.resource)
		switch {
		case one.refusal == "" && err != nil:
			t.Errorf("%s: %v", one.what, err)
		case one.refusal != "" && (err == nil || !strings.Contains(err.Error(), one.refusal)):
			t.Errorf("%s: want a refusal that says %q: %v", one.what, one.refusal, err)
		}
	}
	// The Job controller's own pods: a queue stands on the job.
	mustKubectl(t, "create", "--namespace="+c.Namespace, "--filename="+c.write("running.yaml", strings.NewReplacer(
		"NAME", "running", "LABEL", queueLabel, "SCHEDULER", "coscheduling", "RESOURCE", string(gpu), "suspend: true", "suspend: false").Replace(strings.Split(gpuObjects, "---")[aJob])))
	c.AwaitPods("running", 1, 20*time.Second)
	mustKubectl(t, "label", "namespace", c.Namespace, "muster.dev/gpus-without-queue=true")
	if err := create(aPod, "none", "default-scheduler", string(gpu)); err != nil {
		t.Errorf("in a namespace that is left out: %v", err)
	}
}
