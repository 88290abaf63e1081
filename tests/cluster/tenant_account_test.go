package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"muster.dev/tests/cluster/kubelet"
	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

// The tenant's account, and the steps that cases are made of.

const tenantRole = "tests-tenant"

// installTenants makes what all tenants share: the flavors, and what they may do beside the
// built-in role edit, which has PodGroups, and Kueue's objects to read, from the manifests.
func installTenants(t *testing.T) {
	t.Helper()
	for _, name := range []string{"fast", "slow"} {
		mustApply(t, "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: "+name+"}\nspec: {nodeLabels: {"+flavorLabel+": "+name+"}}\n")
	}
	installUser(t)
	roles := shared.Client.RbacV1().ClusterRoles()
	_, err := roles.Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: tenantRole},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"pods/resize"}, Verbs: []string{"patch", "update"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = roles.Delete(context.Background(), tenantRole, metav1.DeleteOptions{}) })
}

// signIn makes the tenant's ServiceAccount and calls as it.
func (t *tenant) signIn() error {
	const name = "tenant"
	accounts := shared.Client.CoreV1().ServiceAccounts(t.Namespace)
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	for _, role := range []string{"edit", tenantRole} {
		if _, err := shared.Client.RbacV1().RoleBindings(t.Namespace).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: name, Namespace: t.Namespace}},
		}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	token, err := shared.Kubectl("create", "token", name, "--namespace="+t.Namespace, "--duration=2h")
	if err != nil {
		return err
	}
	config := &rest.Config{
		Host: shared.URL(), BearerToken: strings.TrimSpace(token),
		TLSClientConfig: rest.TLSClientConfig{CAData: shared.Authority()},
		QPS:             1000, Burst: 1000, WarningHandler: rest.NoWarnings{},
	}
	if t.account, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	t.dynamic, err = dynamic.NewForConfig(config)
	return err
}

// setPolicies applies deploy/policies, or takes them away, and waits until the API server does so.
func setPolicies(t *testing.T, wanted bool) {
	t.Helper()
	arguments := []string{"delete", "--ignore-not-found", "--kustomize=" + policiesFolder}
	if wanted {
		arguments = []string{"apply", "--server-side", "--validate=strict", "--kustomize=" + policiesFolder}
	}
	mustKubectl(t, arguments...)
	for deadline := time.Now().Add(30 * time.Second); stateIsGuarded() != wanted; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the policies were set to %v, and the API server doesn't do so after 30 s", wanted)
		}
	}
}

// ---- What is done ----

// action is something that the API server may refuse.
type action func(*tenant) error

// step is an action with what must come of it, or something to wait for.
type step func(*tenant)

// can is for what everybody may do.
func can(does action) step {
	return func(t *tenant) {
		t.Helper()
		t.must(does(t))
	}
}

// try is for what may be refused or not: what comes of it counts.
func try(does action) step { return func(t *tenant) { _ = does(t) } }

// refused is for what nobody of the tenant's rights may do.
func refused(words string, does action) step {
	return func(t *tenant) { t.expectRefusal(words, does(t)) }
}

// policed is for what the policies refuse, and nothing else does.
func policed(words string, does action) step {
	return func(t *tenant) {
		t.Helper()
		err := does(t)
		if t.policies {
			t.expectRefusal(words, err)
		} else {
			t.must(err)
		}
	}
}

func (t *tenant) expectRefusal(words string, err error) {
	if err == nil {
		t.violated("what should be refused with %q was let through", words)
	} else if !strings.Contains(err.Error(), words) {
		t.violated("a refusal doesn't say %q: %v", words, err)
	}
}

// ---- What it is done to ----

var tenantKinds = map[string]schema.GroupVersionResource{
	"podgroup":      timeline.PodGroups,
	"pod":           timeline.Pods,
	"node":          timeline.Nodes,
	"job":           batchv1.SchemeGroupVersion.WithResource("jobs"),
	"event":         corev1.SchemeGroupVersion.WithResource("events"),
	"clusterqueue":  clusterQueueResource,
	"flavor":        clusterQueueResource.GroupVersion().WithResource("resourceflavors"),
	"localqueue":    clusterQueueResource.GroupVersion().WithResource("localqueues"),
	"workload":      clusterQueueResource.GroupVersion().WithResource("workloads"),
	"priorityclass": {Group: "scheduling.k8s.io", Version: "v1", Resource: "priorityclasses"},
	"webhook":       {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"},
	"policybinding": {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"},
	"configmap":     corev1.SchemeGroupVersion.WithResource("configmaps"),
	"lease":         {Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
}

var withoutNamespace = []string{"node", "clusterqueue", "flavor", "priorityclass", "webhook", "policybinding"}

// at finds an object: "pod/train-0", "others/job/bystander", "muster-system/configmap/muster".
func (t *tenant) at(client dynamic.Interface, reference string) (dynamic.ResourceInterface, string) {
	parts := strings.Split(t.expand(reference), "/")
	namespace := t.Namespace
	if len(parts) == 3 {
		if namespace = parts[0]; namespace == "others" {
			namespace = t.others
		}
		parts = parts[1:]
	}
	kind, known := tenantKinds[parts[0]]
	if !known || len(parts) != 2 {
		t.Fatalf("%q names no object", reference)
	}
	for _, one := range withoutNamespace {
		if one == parts[0] {
			return client.Resource(kind), parts[1]
		}
	}
	return client.Resource(kind).Namespace(namespace), parts[1]
}

func (t *tenant) read(reference string) *unstructured.Unstructured {
	t.Helper()
	client, name := t.at(shared.Dynamic, reference)
	object, err := client.Get(t.Context(), name, metav1.GetOptions{})
	t.must(err)
	return object
}

var placeholder = regexp.MustCompile(`\{\{([^}]*)\}\}`)

// expand replaces {{ns}}, {{others}}, {{node}}, {{node of REFERENCE}}, {{uid REFERENCE}} and
// {{annotation NAME of REFERENCE}}.
func (t *tenant) expand(text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(found string) string {
		words := strings.Fields(strings.Trim(found, "{}"))
		switch {
		case words[0] == "ns":
			return t.Namespace
		case words[0] == "others":
			return t.others
		case words[0] == "node" && len(words) == 1:
			return t.Namespace + "-fast-1"
		case words[0] == "node":
			node, _, _ := unstructured.NestedString(t.read(words[2]).Object, "spec", "nodeName")
			return node
		case words[0] == "uid":
			return string(t.read(words[1]).GetUID())
		case words[0] == "annotation":
			return t.read(words[3]).GetAnnotations()[words[1]]
		}
		t.Fatalf("%s means nothing", found)
		return ""
	})
}

// merge patches an object, or with a third part of the reference after a colon a subresource of it.
func merge(reference, patch string) action { return patching(types.MergePatchType, reference, patch) }

func jsonPatch(reference, patch string) action {
	return patching(types.JSONPatchType, reference, patch)
}

func strategic(reference, patch string) action {
	return patching(types.StrategicMergePatchType, reference, patch)
}

func patching(kind types.PatchType, reference, patch string) action {
	return func(t *tenant) error {
		reference, subresource, _ := strings.Cut(reference, ":")
		client, name := t.at(t.dynamic, reference)
		var subresources []string
		if subresource != "" {
			subresources = append(subresources, subresource)
		}
		_, err := client.Patch(t.Context(), name, kind, []byte(t.expand(patch)), metav1.PatchOptions{}, subresources...)
		return err
	}
}

// annotate sets an annotation; "" takes it off.
func annotate(reference, key, value string) action {
	return func(t *tenant) error { return merge(reference, annotations(key, t.expand(value)))(t) }
}

func annotations(key, value string) string {
	var said any = value
	if value == "" {
		said = nil
	}
	patch, _ := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: said}}})
	return string(patch)
}

// create creates an object of which the kind is the first part of the reference.
func create(reference, manifest string) action {
	return func(t *tenant) error {
		client, name := t.at(t.dynamic, reference)
		object := &unstructured.Unstructured{}
		t.must(json.Unmarshal([]byte(t.expand(manifest)), &object.Object))
		object.SetName(name)
		_, err := client.Create(t.Context(), object, metav1.CreateOptions{})
		return err
	}
}

func remove(reference string) action { return removing(reference, metav1.DeletePropagationBackground) }

func removing(reference string, propagation metav1.DeletionPropagation) action {
	return func(t *tenant) error {
		client, name := t.at(t.dynamic, reference)
		return client.Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &propagation, GracePeriodSeconds: new(int64)})
	}
}

// bind is what a scheduler does.
func bind(pod, node string) action {
	return func(t *tenant) error {
		return t.account.CoreV1().Pods(t.Namespace).Bind(t.Context(), &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: pod},
			Target:     corev1.ObjectReference{Kind: "Node", Name: t.expand(node)},
		}, metav1.CreateOptions{})
	}
}

// ---- Gangs, pods and jobs ----

// kubeletSays writes a pod's status, as the kubelet does for what its containers did.
func kubeletSays(pod, status string) step {
	return func(t *tenant) { t.patchStatus(pod, `{"status":`+t.expand(status)+`}`) }
}

// administrator does what a case needs beside the tenant.
func administrator(does func(t *tenant)) step { return does }

// podEdit changes a pod before it is created.
type podEdit func(t *tenant, pod *corev1.Pod)

func withAnnotation(key, value string) podEdit {
	return func(t *tenant, pod *corev1.Pod) {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, t.expand(value))
	}
}

func withLabel(key, value string) podEdit {
	return func(t *tenant, pod *corev1.Pod) { metav1.SetMetaDataLabel(&pod.ObjectMeta, key, t.expand(value)) }
}

// withFinalizer keeps the pod when it is deleted, and its containers run on. kwok would take any
// finalizer off.
func withFinalizer(name string) podEdit {
	return func(_ *tenant, pod *corev1.Pod) {
		pod.Finalizers = append(pod.Finalizers, name)
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, kubelet.Annotation, kubelet.RunsProcesses)
	}
}

func withScheduler(name string) podEdit {
	return func(_ *tenant, pod *corev1.Pod) { pod.Spec.SchedulerName = name }
}

func withPriority(class string) podEdit {
	return func(_ *tenant, pod *corev1.Pod) { pod.Spec.PriorityClassName = class }
}

func withNode(name string) podEdit {
	return func(t *tenant, pod *corev1.Pod) { pod.Spec.NodeName = t.expand(name) }
}

func withGate(name string) podEdit {
	return func(_ *tenant, pod *corev1.Pod) {
		pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: name})
	}
}

func withOwner(kind, apiVersion, name, uid string) podEdit {
	return func(t *tenant, pod *corev1.Pod) {
		yes := true
		pod.OwnerReferences = append(pod.OwnerReferences, metav1.OwnerReference{
			APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(t.expand(uid)), Controller: &yes,
		})
	}
}

// inInitContainer moves what the container asks for to one that runs before it, or beside it.
func inInitContainer(beside bool) podEdit {
	return func(_ *tenant, pod *corev1.Pod) {
		first := pod.Spec.Containers[0]
		first.Name = "first"
		if beside {
			always := corev1.ContainerRestartPolicyAlways
			first.RestartPolicy = &always
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, first)
		pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	}
}

// onFlavor leads to the nodes of a flavor.
func onFlavor(name string) podEdit {
	return func(_ *tenant, pod *corev1.Pod) { pod.Spec.NodeSelector[flavorLabel] = name }
}

// limitsAlone leaves the requests to the API server's defaults.
func limitsAlone(_ *tenant, pod *corev1.Pod) { pod.Spec.Containers[0].Resources.Requests = nil }

// withoutGPUs leaves the cpu alone.
func withoutGPUs(_ *tenant, pod *corev1.Pod) {
	for _, list := range []corev1.ResourceList{pod.Spec.Containers[0].Resources.Requests, pod.Spec.Containers[0].Resources.Limits} {
		delete(list, gpu)
	}
}

// bestEffort asks for nothing.
func bestEffort(_ *tenant, pod *corev1.Pod) {
	pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
}

// withPodResources says for the whole pod what it asks for of cpu.
func withPodResources(cpu string) podEdit {
	return func(_ *tenant, pod *corev1.Pod) {
		list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		pod.Spec.Resources = &corev1.ResourceRequirements{Requests: list, Limits: list}
	}
}

func (t *tenant) podIn(namespace, name string, gpus int, edits ...podEdit) *corev1.Pod {
	pod := t.Pod(name, plane.SchedulerName, gpus)
	pod.Namespace = namespace
	for _, edit := range edits {
		edit(t, pod)
	}
	return pod
}

// gang creates a PodGroup and as many pods as it needs.
func gang(name string, size, gpus int, edits ...podEdit) step {
	return func(t *tenant) {
		t.Helper()
		t.must(t.createGang(t.account, t.dynamic, t.Namespace, name, size, gpus, edits...))
	}
}

func (t *tenant) createGang(account kubernetes.Interface, objects dynamic.Interface, namespace, name string, size, gpus int, edits ...podEdit) error {
	if err := createGroup(t.Context(), objects, namespace, name, size); err != nil {
		return err
	}
	return t.createMembers(account, namespace, name, 0, size, gpus, edits...)
}

func createGroup(ctx context.Context, objects dynamic.Interface, namespace, name string, size int) error {
	_, err := objects.Resource(timeline.PodGroups).Namespace(namespace).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": timeline.PodGroups.GroupVersion().String(), "kind": "PodGroup",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"minMember": int64(size)},
	}}, metav1.CreateOptions{})
	return err
}

func (t *tenant) createMembers(account kubernetes.Interface, namespace, group string, from, count, gpus int, edits ...podEdit) error {
	for i := from; i < from+count; i++ {
		pod := t.podIn(namespace, fmt.Sprintf("%s-%d", group, i), gpus, edits...)
		if _, said := pod.Labels[podGroupLabel]; !said {
			metav1.SetMetaDataLabel(&pod.ObjectMeta, podGroupLabel, group)
		}
		if _, err := account.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// groupOf creates a PodGroup alone.
func groupOf(name string, size int) action {
	return func(t *tenant) error { return createGroup(t.Context(), t.dynamic, t.Namespace, name, size) }
}

// members creates further members of a group.
func members(group string, from, count, gpus int, edits ...podEdit) action {
	return func(t *tenant) error {
		return t.createMembers(t.account, t.Namespace, group, from, count, gpus, edits...)
	}
}

// lonePod creates a pod that names no group.
func lonePod(name string, gpus int, edits ...podEdit) action {
	return func(t *tenant) error {
		_, err := t.account.CoreV1().Pods(t.Namespace).Create(t.Context(), t.podIn(t.Namespace, name, gpus, edits...), metav1.CreateOptions{})
		return err
	}
}

// batchJob creates a Job of that many pods at once.
func batchJob(name string, parallelism int32, gpus int, edits ...podEdit) action {
	return editedJob(name, parallelism, gpus, func(*tenant, *batchv1.Job) {}, edits...)
}

func editedJob(name string, parallelism int32, gpus int, edit func(*tenant, *batchv1.Job), edits ...podEdit) action {
	return func(t *tenant) error {
		job := t.jobOf(t.Namespace, name, parallelism, gpus, edits...)
		edit(t, job)
		_, err := t.account.BatchV1().Jobs(t.Namespace).Create(t.Context(), job, metav1.CreateOptions{})
		return err
	}
}

func (t *tenant) jobOf(namespace, name string, parallelism int32, gpus int, edits ...podEdit) *batchv1.Job {
	pod := t.podIn(namespace, name, gpus, edits...)
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, kubelet.Annotation, kubelet.RunsProcesses)
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: batchv1.JobSpec{
			Parallelism: &parallelism, Completions: &parallelism,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations, Finalizers: pod.Finalizers},
				Spec:       pod.Spec,
			},
		},
	}
}

// ---- What is waited for ----

const tenantPatience = time.Minute

// awaitPods waits until that many pods whose names begin so are what the predicate says.
func awaitPods(prefix string, count int, what string, predicate func(*corev1.Pod) bool) step {
	return func(t *tenant) {
		t.Helper()
		if err := shared.Timeline.Await(tenantPatience, t.counting(prefix, count, what, predicate)); err != nil {
			t.Fatal(err)
		}
	}
}

func (t *tenant) counting(prefix string, count int, what string, predicate func(*corev1.Pod) bool) func(*timeline.State) string {
	return func(state *timeline.State) string {
		if have := countPods((&Gang{Case: t.Case, Name: prefix}).pods(state), predicate); have < count {
			return fmt.Sprintf("%d of %d pods %s-* are %s", have, count, prefix, what)
		}
		return ""
	}
}

// runs waits until that many of the gang's or job's pods run.
func runs(name string, count int) step {
	return awaitPods(name, count, "running", func(pod *corev1.Pod) bool {
		return bound(pod) && pod.Status.Phase == corev1.PodRunning
	})
}

// exist waits until the job has made its pods.
func exist(name string, count int) step {
	return awaitPods(name, count, "there", func(*corev1.Pod) bool { return true })
}

// startsAnyway is for what the tenant has a right to.
func startsAnyway(name string, count int) step {
	return func(t *tenant) {
		if err := shared.Timeline.Await(tenantPatience, t.counting(name, count, "bound", bound)); err != nil {
			answer, _ := shared.Muster.Get("/v1/gangs/" + t.Namespace + "/" + name)
			t.violated("what the tenant may have he doesn't get: %v (%v: %s)", err, answer["state"], reasonText(answer))
		}
	}
}

// staysOut sees that none of a gang's pods is bound, whatever there is room for.
func staysOut(name string) step {
	return func(t *tenant) {
		count := 0
		shared.Timeline.Look(func(state *timeline.State) {
			count = countPods((&Gang{Case: t.Case, Name: name}).pods(state), bound)
		})
		if count > 0 {
			t.violated("%d pods %s-* are bound, want none", count, name)
		}
	}
}

// gone waits until the pods are.
func gone(name string) step {
	return func(t *tenant) {
		t.must(shared.Timeline.Await(tenantPatience, func(state *timeline.State) string {
			if left := len((&Gang{Case: t.Case, Name: name}).pods(state)); left > 0 {
				return fmt.Sprintf("%d pods %s-* are left", left, name)
			}
			return ""
		}))
	}
}

// recorded waits until Muster's record of a gang is there.
func recorded(group string) step {
	return func(t *tenant) {
		t.must(shared.Timeline.Await(tenantPatience, func(state *timeline.State) string {
			if object := state.PodGroups[t.Namespace+"/"+group]; object == nil || object.GetAnnotations()[gate] == "" {
				return "PodGroup " + group + " has no record"
			}
			return ""
		}))
	}
}

// awaitGone waits until no such namespace is left. Pods with the tenant's finalizer may come until
// then: a Job that is resumed makes them anew.
func awaitGone(t *testing.T, such func(namespace string) bool) {
	t.Helper()
	ctx := context.Background()
	letGo := []byte(`{"metadata":{"finalizers":null}}`)
	var left []string
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); time.Sleep(time.Second) {
		namespaces, err := shared.Client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		left = nil
		for i := range namespaces.Items {
			if name := namespaces.Items[i].Name; such(name) {
				left = append(left, name)
			}
		}
		if len(left) == 0 {
			return
		}
		for _, namespace := range left {
			pods := shared.Client.CoreV1().Pods(namespace)
			list, err := pods.List(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for i := range list.Items {
				if pod := &list.Items[i]; slices.Contains(pod.Finalizers, keep) {
					_, _ = pods.Patch(ctx, pod.Name, types.MergePatchType, letGo, metav1.PatchOptions{})
				}
			}
		}
	}
	t.Errorf("these namespaces are still there: %s", strings.Join(left, ", "))
}

// sleeps gives Muster time between two steps.
func sleeps(duration time.Duration) step { return func(*tenant) { time.Sleep(duration) } }

// flood creates gangs that can't all run, from many sides at once. Other cases don't begin before they
// are gone: it takes a while to delete so many, and Muster, started again, to look at them.
func flood(gangs, size int, edits ...podEdit) step {
	return func(t *tenant) {
		t.Cleanup(func() {
			t.clear()
			awaitGone(t.T, func(namespace string) bool { return namespace == t.Namespace })
		})
		var all sync.WaitGroup
		next := make(chan int)
		for range 8 {
			all.Go(func() {
				for i := range next {
					if err := t.createGang(t.account, t.dynamic, t.Namespace, fmt.Sprintf("flood-%d", i), size, 1, edits...); err != nil {
						t.Errorf("flood-%d: %v", i, err)
					}
				}
			})
		}
		begin := time.Now()
		for i := range gangs {
			next <- i
		}
		close(next)
		all.Wait()
		t.Logf("%d objects created in %v", gangs*(size+1), time.Since(begin).Round(time.Second))
	}
}
