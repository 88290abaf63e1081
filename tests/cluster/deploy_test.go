package cluster

import (
	"strings"
	"testing"

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
	} {
		// kubectl ends with status 1 after a "no".
		answer, _ := shared.KubectlAsMuster(append([]string{"auth", "can-i", "--all-namespaces"}, forbidden...)...)
		if lines := strings.Fields(answer); len(lines) == 0 || lines[len(lines)-1] != "no" {
			t.Errorf("may Muster %s? %s", strings.Join(forbidden, " "), answer)
		}
	}
}
