package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Volumes with the real PersistentVolume controller: what kube-scheduler's plugins see to where it is
// beside Muster, and what Muster sees to alone.

const diskDriver = "disk.csi.tests"

// A node that can attach no more volumes is no room; once it can, the gang has it.
func TestVolumesANodeThatCanAttachNoMoreIsNoRoom(t *testing.T) {
	c := newGangCase(t, "volumes")
	nodes := c.Nodes(2, 4)
	for _, node := range nodes {
		c.attachable(node, 1)
	}
	g := c.PodGroup("train", 3, 1)
	g.edit = func(pod *corev1.Pod) {
		c.boundClaim(pod.Name, corev1.ReadWriteOnce)
		claiming(pod, pod.Name)
	}
	g.AddMembers(3)
	g.awaitReason("more attached")
	c.stays(3*time.Second, "no member is bound", g.noneBound)
	c.attachable(nodes[0], 2)
	g.AwaitBound(30 * time.Second)
}

// A ReadWriteOncePod claim that a pod has is awaited.
func TestVolumesAClaimThatIsOnePodsAloneIsAwaited(t *testing.T) {
	c := newGangCase(t, "volumes")
	node := c.Nodes(1, 4)[0]
	c.boundClaim("data", corev1.ReadWriteOncePod)
	holder := c.Pod("holder", "default-scheduler", 1)
	holder.Spec.NodeName = node
	claiming(holder, "data")
	c.Create(holder)
	g := c.PodGroup("one", 1, 1)
	g.edit = func(pod *corev1.Pod) { claiming(pod, "data") }
	g.AddMembers(1)
	g.awaitReason("VOLUME_IN_USE")
	c.must(shared.Client.CoreV1().Pods(c.Namespace).Delete(c.Context(), "holder", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	g.AwaitBound(30 * time.Second)
}

// claiming mounts a claim in the pod.
func claiming(pod *corev1.Pod, claim string) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}})
}

// attachable says how many volumes the node can have attached.
func (c *Case) attachable(node string, most int32) {
	c.Helper()
	nodes := shared.Client.StorageV1().CSINodes()
	spec := storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
		{Name: diskDriver, NodeID: node, Allocatable: &storagev1.VolumeNodeResources{Count: &most}},
	}}
	_ = nodes.Delete(c.Context(), node, metav1.DeleteOptions{})
	_, err := nodes.Create(c.Context(), &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: spec}, metav1.CreateOptions{})
	c.must(err)
	c.Cleanup(func() { _ = nodes.Delete(context.Background(), node, metav1.DeleteOptions{}) })
}

// boundClaim makes a claim and the volume of a driver to which it is bound, and waits for that.
func (c *Case) boundClaim(name string, mode corev1.PersistentVolumeAccessMode) {
	c.Helper()
	volume := c.volume(name, "", "1Gi", mode)
	volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: c.Namespace, Name: name}
	volume.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: diskDriver, VolumeHandle: volume.Name}
	c.createVolume(volume)
	c.createClaim(name, "", "1Gi", volume.Name, mode)
	deadline := time.Now().Add(time.Minute)
	for {
		claim, err := shared.Client.CoreV1().PersistentVolumeClaims(c.Namespace).Get(c.Context(), name, metav1.GetOptions{})
		c.must(err)
		if claim.Status.Phase == corev1.ClaimBound {
			return
		}
		if time.Now().After(deadline) {
			c.Fatalf("claim %s is %s", name, claim.Status.Phase)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (c *Case) volume(name, class, size string, mode corev1.PersistentVolumeAccessMode) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%s", c.Namespace, name)},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: class,
			AccessModes:      []corev1.PersistentVolumeAccessMode{mode},
			Capacity:         corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
		},
	}
}

func (c *Case) createVolume(volume *corev1.PersistentVolume) {
	c.Helper()
	volumes := shared.Client.CoreV1().PersistentVolumes()
	_, err := volumes.Create(c.Context(), volume, metav1.CreateOptions{})
	c.must(err)
	c.Cleanup(func() { _ = volumes.Delete(context.Background(), volume.Name, metav1.DeleteOptions{}) })
}

func (c *Case) createClaim(name, class, size, volume string, mode corev1.PersistentVolumeAccessMode) {
	c.Helper()
	_, err := shared.Client.CoreV1().PersistentVolumeClaims(c.Namespace).Create(c.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			VolumeName:       volume,
			AccessModes:      []corev1.PersistentVolumeAccessMode{mode},
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
		},
	}, metav1.CreateOptions{})
	c.must(err)
}
