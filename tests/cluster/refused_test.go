package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

// A ResourceQuota with room for two of four: nothing but the Job controller's
// events says why the others don't exist.
func TestPodsThatAResourceQuotaRefusesAreNamedUntilItIsRaised(t *testing.T) {
	t.Parallel()
	c := newGangCase(t, "refused")
	c.checkRefusedAndThenBound("job.yaml", "Job")
}

// The training operator says it in its own words.
func TestPeerPyTorchJobsPodsThatAResourceQuotaRefusesAreNamed(t *testing.T) {
	c := newGangCase(t, "refused")
	c.started(shared.StartTrainingOperator(""))
	c.checkRefusedAndThenBound("pytorchjob.yaml", "PyTorchJob")
}

func TestPeerJobSetsPodsThatAResourceQuotaRefusesAreNamed(t *testing.T) {
	c := newGangCase(t, "refused")
	c.started(shared.StartJobSet())
	c.checkRefusedAndThenBound("jobset.yaml", "Job")
}

// checkRefusedAndThenBound applies a training of four with a quota for two GPUs,
// and raises the quota once the gang has named it.
func (c *Case) checkRefusedAndThenBound(file, maker string) {
	c.Helper()
	const counted = corev1.ResourceName("requests.nvidia.com/gpu")
	quotas := shared.Client.CoreV1().ResourceQuotas(c.Namespace)
	quota, err := quotas.Create(c.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "gpus"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{counted: resource.MustParse("2")}},
	}, metav1.CreateOptions{})
	c.must(err)
	c.awaitEnforced(quota)
	c.NodePool("gpu", 1, 4, 2*time.Second)
	c.Apply(file, scheduledBy(plane.SchedulerName))

	g := c.AwaitPods("train", 2, 30*time.Second)
	g.AwaitAnswer(30*time.Second, func(answer map[string]any) string {
		reason, _ := answer["reason"].(map[string]any)
		message := fmt.Sprint(reason["message"])
		for _, part := range []string{
			"2 of 4 members exist; pods of " + maker + " " + c.Namespace + "/train", " are refused: exceeded quota: gpus, ",
			"requested: requests.nvidia.com/gpu=1", "used: requests.nvidia.com/gpu=2", "limited: requests.nvidia.com/gpu=2",
		} {
			if !strings.Contains(message, part) {
				return fmt.Sprintf("its reason is %v, want %q in it", reason, part)
			}
		}
		if answer["state"] != "WAITING_FOR_MEMBERS" || reason["code"] != "PODS_REFUSED" {
			return fmt.Sprintf("it is %v, %v", answer["state"], reason["code"])
		}
		if fix := fmt.Sprint(reason["fix"]); !strings.Contains(fix, "raise ResourceQuota "+c.Namespace+"/gpus") {
			return "the fix is " + fix
		}
		return ""
	})
	c.must(shared.Timeline.Await(10*time.Second, func(state *timeline.State) string {
		group := state.PodGroups[c.Namespace+"/train"]
		if group == nil || !strings.Contains(fmt.Sprint(group.Object["status"]), "exceeded quota: gpus") {
			return "the PodGroup's status doesn't name the quota"
		}
		return ""
	}))
	if asked := c.Claims(); len(asked) > 0 {
		c.Errorf("%d NodeClaims were made for a gang that isn't whole", len(asked))
	}

	quota, err = quotas.Get(c.Context(), "gpus", metav1.GetOptions{})
	c.must(err)
	quota.Spec.Hard[counted] = resource.MustParse("4")
	_, err = quotas.Update(c.Context(), quota, metav1.UpdateOptions{})
	c.must(err)
	// Controllers pause for longer the more often they were refused.
	c.AwaitPods("train", 4, 90*time.Second).AwaitOnPool("gpu", time.Minute)
}

// awaitEnforced waits until the quota's controller has counted: a quota without a
// status refuses everything or nothing.
func (c *Case) awaitEnforced(quota *corev1.ResourceQuota) {
	c.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		now, err := shared.Client.CoreV1().ResourceQuotas(c.Namespace).Get(c.Context(), quota.Name, metav1.GetOptions{})
		c.must(err)
		if len(now.Status.Hard) == len(quota.Spec.Hard) {
			return
		}
		if time.Now().After(deadline) {
			c.Fatalf("ResourceQuota %s isn't counted after 30 s: %v", quota.Name, now.Status)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
