package cluster

import (
	"net/http"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/tests/cluster/plane"
)

// The control plane was started with the project's own manifests (applied
// with strict validation on the server), and every case runs Muster and its
// kube-scheduler with the ServiceAccount's token. This case makes sure that
// this is so, and that the token opens no more than it must.
func TestMusterRunsWithExactlyTheRightsOfItsManifests(t *testing.T) {
	t.Parallel()
	identity, err := shared.KubectlAsMuster("auth", "whoami", "--output=jsonpath={.status.userInfo.username}")
	if err != nil {
		t.Fatal(err)
	}
	if identity != plane.ServiceAccount {
		t.Errorf("Muster is %q to the API server, want %q", identity, plane.ServiceAccount)
	}
	for _, forbidden := range [][]string{
		{"delete", "nodes"},
		{"create", "pods"},
		{"get", "secrets"},
		{"delete", "podgroups.scheduling.x-k8s.io"},
		{"delete", "nodeclaims.karpenter.sh"},
		{"delete", "clusterqueues.kueue.x-k8s.io"},
		{"patch", "workloads.kueue.x-k8s.io"},
		{"patch", "resourceflavors.kueue.x-k8s.io", "--subresource=status"},
		{"create", "localqueues.kueue.x-k8s.io"},
		{"create", "jobs.batch"},
		{"update", "jobs.batch"},
		{"delete", "jobs.batch"},
		{"patch", "pytorchjobs.kubeflow.org", "--subresource=status"},
		{"patch", "statefulsets.apps"},
		{"delete", "pytorchjobs.kubeflow.org"},
		{"update", "clusterroles.rbac.authorization.k8s.io"},
		{"delete", "mutatingwebhookconfigurations.admissionregistration.k8s.io"},
		{"patch", "validatingwebhookconfigurations.admissionregistration.k8s.io"},
		{"create", "mutatingwebhookconfigurations.admissionregistration.k8s.io"},
		{"create", "validatingwebhookconfigurations.admissionregistration.k8s.io"},
	} {
		// kubectl ends with status 1 after a "no".
		answer, _ := shared.KubectlAsMuster(append([]string{"auth", "can-i", "--all-namespaces"}, forbidden...)...)
		if lines := strings.Fields(answer); len(lines) == 0 || lines[len(lines)-1] != "no" {
			t.Errorf("may Muster %s? %s", strings.Join(forbidden, " "), answer)
		}
	}
}

// Whoever views a namespace sees its gangs, whoever edits it writes PodGroups, and nobody there
// writes quota. The controller manager puts that into the roles that every cluster has.
func TestRolesOfEveryClusterCoverGangs(t *testing.T) {
	t.Parallel()
	const namespace = "roles-of-users"
	mustKubectl(t, "create", "namespace", namespace)
	t.Cleanup(func() { _, _ = shared.Kubectl("delete", "namespace", namespace, "--wait=false") })
	for _, role := range []string{"view", "edit"} {
		mustKubectl(t, "create", "rolebinding", role, "--clusterrole="+role, "--user="+role+"er", "--namespace="+namespace)
	}
	type thing struct{ group, resource, subresource string }
	groups, workloads, queues := thing{"scheduling.x-k8s.io", "podgroups", ""}, thing{"kueue.x-k8s.io", "workloads", ""}, thing{"kueue.x-k8s.io", "localqueues", ""}
	expect := func(want bool, user string, verbs []string, things ...thing) {
		t.Helper()
		for _, one := range things {
			for _, verb := range verbs {
				review, err := shared.Client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
					Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
						Namespace: namespace, Verb: verb, Group: one.group, Resource: one.resource, Subresource: one.subresource,
					}},
				}, metav1.CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if review.Status.Allowed != want {
					t.Errorf("%s may %s %v: %v, want %v", user, verb, one, review.Status.Allowed, want)
				}
			}
		}
	}
	read, write := []string{"get", "list", "watch"}, []string{"create", "patch", "update", "delete"}
	for _, user := range []string{"viewer", "editer"} {
		expect(true, user, read, groups, workloads, queues)
		// What Muster says of them.
		expect(true, user, read, thing{"visibility.muster.dev", "gangs", ""}, thing{"visibility.muster.dev", "localqueues", ""})
		status := []thing{{"scheduling.x-k8s.io", "podgroups", "status"}, {"kueue.x-k8s.io", "workloads", "status"}}
		expect(false, user, write, append(status, workloads, queues)...)
	}
	expect(false, "viewer", write, groups)
	expect(true, "editer", write, groups)
}

// Of two installs the one that the webhook names leads. The other leaves everything as it is, and goes
// on once the webhook is its own.
func TestMusterStandsAsideWhileTheWebhookIsAnotherInstalls(t *testing.T) {
	c := newGangCase(t, "install")
	c.Nodes(2, 1)
	belongsTo := func(install string) {
		t.Helper()
		mustKubectl(t, "annotate", "--overwrite", "mutatingwebhookconfiguration", "muster-admission", "muster.dev/install="+install)
	}
	const own = plane.LeaseNamespace + "/" + plane.LeaseName
	belongsTo("elsewhere/coscheduling")
	t.Cleanup(func() { belongsTo(own) })
	const why = "is of install elsewhere/coscheduling, and this is " + own
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		code, body := get(shared.Muster.Address + "/readyz")
		metrics, err := shared.Muster.Metrics()
		c.must(err)
		if code == http.StatusServiceUnavailable && strings.Contains(body, why) && strings.Contains(metrics, "muster_leading 0\n") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("it is still ready or leads: %d %s", code, body)
		}
	}
	g := c.Gang("train", 2, 1)
	if code, body := get(shared.Muster.Address + g.resource()); code != http.StatusServiceUnavailable || !strings.Contains(body, why) {
		t.Errorf("who asks is told %d %s", code, body)
	}
	c.stays(3*time.Second, "nothing is bound", g.noneBound)
	belongsTo(own)
	g.AwaitBound(30 * time.Second)
}
