package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Volumes that somebody has made, each on one node: every member gets one of its own that is large
// enough, and runs on its node.
func TestVolumesMembersGetLocalVolumesOfTheirOwn(t *testing.T) {
	c := newGangCase(t, "volumes")
	nodes := c.Nodes(3, 4)
	class := c.Namespace
	mode := storagev1.VolumeBindingWaitForFirstConsumer
	classes := shared.Client.StorageV1().StorageClasses()
	_, err := classes.Create(c.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: &mode,
	}, metav1.CreateOptions{})
	c.must(err)
	c.Cleanup(func() { _ = classes.Delete(context.Background(), class, metav1.DeleteOptions{}) })
	disks := []struct{ node, size string }{{nodes[1], "1Gi"}, {nodes[1], "2Gi"}, {nodes[2], "9Gi"}, {nodes[0], "512Mi"}}
	for i, disk := range disks {
		volume := c.volume(fmt.Sprint(i), class, disk.size, corev1.ReadWriteOnce)
		volume.Spec.Local = &corev1.LocalVolumeSource{Path: "/disk"}
		volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{disk.node}}},
		}}}}
		c.createVolume(volume)
	}
	sizes := map[string]string{"train-0": "1Gi", "train-1": "1Gi", "train-2": "3Gi"}
	g := c.PodGroup("train", 3, 1)
	g.edit = func(pod *corev1.Pod) {
		c.createClaim(pod.Name, class, sizes[pod.Name], "", corev1.ReadWriteOnce)
		claiming(pod, pod.Name)
	}
	g.AddMembers(3)
	g.AwaitBound(time.Minute)
	taken := map[string]bool{}
	for _, member := range g.Members {
		pod, err := shared.Client.CoreV1().Pods(c.Namespace).Get(c.Context(), member, metav1.GetOptions{})
		c.must(err)
		claim, err := shared.Client.CoreV1().PersistentVolumeClaims(c.Namespace).Get(c.Context(), member, metav1.GetOptions{})
		c.must(err)
		volume, err := shared.Client.CoreV1().PersistentVolumes().Get(c.Context(), claim.Spec.VolumeName, metav1.GetOptions{})
		c.must(err)
		node := volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0]
		if claim.Status.Phase != corev1.ClaimBound || node != pod.Spec.NodeName || taken[volume.Name] {
			t.Errorf("%s is on %s, its claim is %s to %s of %s", member, pod.Spec.NodeName, claim.Status.Phase, volume.Name, node)
		}
		taken[volume.Name] = true
	}
}
