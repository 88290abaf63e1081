package cluster

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/tests/cluster/kubelet"
	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/process"
	"muster.dev/tests/cluster/timeline"
)

// The whole life of a gang with the training worker in its pods: what users get
// of all parts together. The losses must be those of a training that nothing
// happened to.

func TestTrainingOutlivesItsNode(t *testing.T) {
	operator := newGangCase(t, "operator")
	operator.started(shared.StartTrainingOperator(""))
	for _, member := range pick([]string{"train-worker-1"}, []string{"train-worker-1", "train-master-0"}) {
		t.Run("that of "+member+" dies", func(t *testing.T) { testLostNode(t, member) })
	}
	t.Run("it is drained", testDrainedNode)
}

// The three ranks that are left wait for the fourth, Muster has its replacement
// placed on a new node, and all go on from the last checkpoint.
func testLostNode(t *testing.T, member string) {
	job := newTraining(t)
	g := job.begin()
	before, all := g.pod(member), g.uids()

	job.kubelet.LoseNode(before.Spec.NodeName)
	job.deleteByForce(before.Spec.NodeName)
	g.awaitState(10*time.Second, "REPAIRING")
	t.Log(g.Explained())
	// Kubernetes itself collects the pods of a node that is no more after a minute.
	if !full {
		_, err := shared.Kubectl("delete", "pod", member, "--namespace="+job.Namespace, "--force", "--wait=false")
		job.must(err)
	}
	g.awaitReplaced(before, all, 2*time.Minute)

	job.checkEnd(g)
	// The three saw it and went on as they were; the fourth knows nothing of it.
	for _, pod := range g.all() {
		told := strings.Contains(job.log(pod), "generation 1 is over: rank "+rankOf(before)+" ")
		if want := pod.Name != member; told != want {
			t.Errorf("the log of %s tells of the loss: %v, want %v:\n%s", pod.Name, told, want, job.log(pod))
		}
	}
}

// The worker on the node is told to end; all four write a checkpoint and end with an
// exit code that asks for another start, which their operator and Muster give them.
func testDrainedNode(t *testing.T) {
	job := newTraining(t)
	g := job.begin()
	drained := g.all()[0].Spec.NodeName
	_, err := shared.Kubectl("drain", drained, "--timeout=1m")
	job.must(err)
	t.Log(g.Explained())

	job.checkEnd(g)
	stopped := g.Moments(func(pod *corev1.Pod) bool {
		ended := endOf(pod)
		return ended != nil && ended.ExitCode == 143 && strings.Contains(ended.Message, `"cause":"terminated"`)
	})
	if len(stopped) != len(g.Members) {
		t.Errorf("%d members ended with 143 and said why, want %d", len(stopped), len(g.Members))
	}
	for _, pod := range g.all() {
		if pod.Spec.NodeName == drained {
			t.Errorf("%s is on the node that was drained", pod.Name)
		}
	}
}

// training is a PyTorchJob whose pods train.
type training struct {
	*Case
	kubelet *kubelet.Kubelet
	folder  string // what its pods have as /mnt
	logs    string
	// What an undisturbed run of the same four ranks tells.
	undisturbed map[int64]float64
}

// newTraining is newGangCase with kubelets that run its pods, and prepares what
// they train on.
func newTraining(t *testing.T) *training {
	t.Helper()
	c := newGangCase(t, "training")
	if _, err := os.Stat(shared.Worker); err != nil {
		c.Fatalf("the training worker is missing (./run build makes it): %v", err)
	}
	job := &training{Case: c, folder: filepath.Join(shared.Folder, c.Namespace), logs: filepath.Join(shared.Folder, "logs", c.Namespace)}
	c.must(os.MkdirAll(job.folder, 0o755))
	c.must(os.MkdirAll(job.logs, 0o755))
	var text bytes.Buffer
	for i := range 600 {
		fmt.Fprintf(&text, "gang %d waits for node %d, and then all bind.\n", i%7, i*3%10)
	}
	c.must(os.WriteFile(job.path("text"), text.Bytes(), 0o644))
	c.must(os.WriteFile(job.path("config.yaml"), []byte(trainingConfig), 0o644))
	job.work("convert", "convert", "--output="+job.path("tokens"), job.path("text"))
	job.work("undisturbed", "train", "--config="+job.path("config.yaml"), "--processes-per-node=4",
		"--data="+job.path("tokens"), "--checkpoints=", "--events="+job.path("undisturbed"))
	job.undisturbed = job.losses("undisturbed")

	var err error
	job.kubelet, err = kubelet.Start(kubelet.Options{
		Client: shared.Client, Namespace: c.Namespace, Folder: job.logs,
		Path: filepath.Dir(shared.Worker) + ":/usr/bin:/bin",
	})
	c.must(err)
	c.Cleanup(func() {
		for _, err := range job.kubelet.Stop() {
			c.Errorf("the kubelets: %v", err)
		}
		if c.Failed() {
			c.Log("the pods' logs are in ", job.logs)
		}
	})
	return job
}

// Seconds of training, most of them after the first checkpoint.
const trainingConfig = `
model: gpt2-tiny
layers: 1
width: 32
heads: 2
vocabulary: 257
context: 32
batch: 16
steps: 400
warmup-steps: 4
learning-rate: 1e-2
report-every: 1
data: /mnt/tokens
events: /mnt/events
checkpoints: /mnt/checkpoints
checkpoint-every: 40
`

// work runs the worker itself to its end.
func (job *training) work(name string, arguments ...string) {
	job.Helper()
	one, err := process.Start(name, filepath.Join(job.logs, name+".log"), nil, shared.Worker, arguments...)
	job.must(err)
	select {
	case <-one.Exited():
	case <-time.After(2 * time.Minute):
		one.Kill()
	}
	if one.ExitCode() != 0 {
		job.Fatalf("muster-worker %s: %s:\n%s", strings.Join(arguments, " "), one.Ending(), one.Tail(20))
	}
}

func (job *training) path(name string) string { return filepath.Join(job.folder, name) }

// mounted gives the job's pods the training's folder.
func (job *training) mounted(object *unstructured.Unstructured) {
	eachMap(object.Object, func(m map[string]any) {
		if _, ok := m["hostPath"]; ok {
			m["hostPath"] = map[string]any{"path": job.folder}
		}
	})
}

// begin lets the job train until a checkpoint is committed.
func (job *training) begin() *Gang {
	job.Helper()
	job.NodePool("gpu", 1, 5, time.Second)
	job.Apply("pytorchjob-worker.yaml", scheduledBy(plane.SchedulerName), job.mounted)
	g := job.checkOneGang("train", 4, derivedFrom("PyTorchJob"))
	job.awaitCheckpoint(time.Minute)
	return g
}

// awaitCheckpoint waits until a checkpoint is committed.
func (job *training) awaitCheckpoint(patience time.Duration) {
	job.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		found, err := filepath.Glob(job.path("checkpoints/step-*/manifest.json"))
		job.must(err)
		if len(found) > 0 {
			return
		}
		if time.Now().After(deadline) {
			job.Fatalf("there is no checkpoint after %v", patience)
		}
	}
}

// losses reads a file of events: the loss of each step; where a step was done
// twice, the last one.
func (job *training) losses(events string) map[int64]float64 {
	job.Helper()
	content, err := os.ReadFile(job.path(events))
	job.must(err)
	losses := map[int64]float64{}
	lines := bufio.NewScanner(bytes.NewReader(content))
	for lines.Scan() {
		var line struct {
			Event string
			Step  int64
			Loss  float64
		}
		job.must(json.Unmarshal(lines.Bytes(), &line))
		if line.Event == "step" {
			losses[line.Step] = line.Loss
		}
	}
	return losses
}

// checkEnd waits for the job's end, and sees that it went on from a checkpoint and
// ended as an undisturbed one.
func (job *training) checkEnd(g *Gang) {
	job.Helper()
	job.awaitJob("Succeeded", 2*time.Minute)
	g.awaitState(10*time.Second, "FINISHED")
	for _, pod := range g.all() {
		if ended := endOf(pod); ended == nil || ended.ExitCode != 0 {
			job.Errorf("%s didn't end well: %v", pod.Name, ended)
		}
	}
	if log := job.log(g.pod("train-master-0")); !strings.Contains(log, "resuming after step ") {
		job.Errorf("the training didn't go on from a checkpoint:\n%s", log)
	}
	job.checkLosses()
}

// checkLosses compares with the undisturbed run, to the last bit.
func (job *training) checkLosses() {
	job.Helper()
	losses := job.losses("events")
	if len(losses) == 0 || !maps.Equal(losses, job.undisturbed) {
		job.Errorf("the losses are %v, want those of an undisturbed run: %v", losses, job.undisturbed)
	}
}

func (job *training) log(pod *corev1.Pod) string {
	job.Helper()
	content, err := os.ReadFile(job.kubelet.LogPath(pod))
	job.must(err)
	return string(content)
}

// pod is the member of that name.
func (g *Gang) pod(name string) *corev1.Pod {
	g.Helper()
	pod, err := shared.Client.CoreV1().Pods(g.Namespace).Get(g.Context(), name, metav1.GetOptions{})
	g.must(err)
	return pod
}

// endOf says how a pod's container ended; nil while it hasn't.
func endOf(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	if len(pod.Status.ContainerStatuses) == 0 {
		return nil
	}
	return pod.Status.ContainerStatuses[0].State.Terminated
}

// rankOf is the one that the operator gave a pod.
func rankOf(pod *corev1.Pod) string {
	for _, variable := range pod.Spec.Containers[0].Env {
		if variable.Name == "RANK" {
			return variable.Value
		}
	}
	return ""
}

// deleteByForce takes a Node away as if there had never been a machine.
func (c *Case) deleteByForce(node string) {
	c.Helper()
	nodes := shared.Client.CoreV1().Nodes()
	_, err := nodes.Patch(c.Context(), node, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	c.must(err)
	c.must(nodes.Delete(c.Context(), node, metav1.DeleteOptions{}))
}

// awaitReplaced waits until a member runs again, as another pod on another node,
// and sees that the others are those of old.
func (g *Gang) awaitReplaced(before *corev1.Pod, old map[types.UID]bool, patience time.Duration) {
	g.Helper()
	if err := shared.Timeline.Await(patience, func(state *timeline.State) string {
		now := state.Pods[timeline.Key(before)]
		if now == nil || now.UID == before.UID || now.Status.Phase == corev1.PodPending {
			return before.Name + " isn't running again"
		}
		if now.Spec.NodeName == before.Spec.NodeName {
			return before.Name + " is on " + before.Spec.NodeName + " again"
		}
		return ""
	}); err != nil {
		g.Fatalf("%v\nmuster says: %s", err, g.Explained())
	}
	kept := 0
	for uid := range g.uids() {
		if uid != before.UID && old[uid] {
			kept++
		}
	}
	if kept != len(g.Members)-1 {
		g.Errorf("%d other members are the same as before, want %d", kept, len(g.Members)-1)
	}
}

// awaitJob waits for a condition of the PyTorchJob.
func (c *Case) awaitJob(condition string, patience time.Duration) {
	c.Helper()
	_, err := shared.Kubectl("wait", "pytorchjob", "train", "--namespace="+c.Namespace,
		"--for=condition="+condition, "--timeout="+patience.String())
	c.must(err)
}

// all are the members, in the order of their names.
func (g *Gang) all() []*corev1.Pod {
	g.Helper()
	var pods []*corev1.Pod
	for _, name := range g.Members {
		pods = append(pods, g.pod(name))
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods
}
