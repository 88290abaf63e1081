package cluster

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

// From the version before to this one, back, and here again, then out, as docs/upgrade.md says, with
// gangs in each state and pods that go on being created: by its Deployment, whose pods are of both
// versions meanwhile. each_state_test.go has the gangs.

const upgradePage = docsFolder + "/upgrade.md"

// So long a gang may lack members in these cases.
const hastyRepair = 20 * time.Second

// What a hand-over takes, and as long again for what waited meanwhile.
const soonAfterRollout = 30 * time.Second

func TestSoakUpgrade(t *testing.T) {
	for _, name := range []string{"without queues", "with queues"} {
		t.Run(name, func(t *testing.T) { startUpgrade(t, name == "with queues").run() })
	}
}

// upgrade is a cluster that runs one version or the other.
type upgrade struct {
	*docsCluster
	queues   bool
	page     map[string][]docsCommand // by the kind of block
	old      bool                     // the version before runs
	versions map[bool]string          // images, of the one before and of this one
	fresh    *freshPods

	quota, fallback *Case // with queues
	highest         usage
}

func startUpgrade(t *testing.T, queues bool) *upgrade {
	t.Helper()
	before, err := exec.Command("./version-before.sh", "--where").Output()
	if err != nil {
		t.Fatal(err)
	}
	folder := strings.TrimSpace(string(before))
	options, err := plane.Locate(".")
	if err != nil {
		t.Fatal(err)
	}
	options.Bare, options.Audited = true, true
	server, err := plane.Start(options)
	if err != nil {
		t.Fatal(err)
	}
	others := shared
	shared = server
	t.Cleanup(func() {
		server.Stop()
		shared = others
		if !t.Failed() {
			_ = os.RemoveAll(server.Folder)
		} else {
			t.Log("logs are in", server.Folder)
		}
	})
	u := &upgrade{
		docsCluster: &docsCluster{T: t, plane: server, tree: filepath.Join(server.Folder, "tree"), state: filepath.Join(server.Folder, "exported")},
		queues:      queues, page: map[string][]docsCommand{}, versions: map[bool]string{true: "muster:0.1.0", false: "muster:0.2.0"},
	}
	u.must(os.CopyFS(filepath.Join(u.tree, "deploy"), os.DirFS("../../deploy")))
	u.must(os.CopyFS(filepath.Join(u.tree, "muster-0.1/deploy"), os.DirFS(filepath.Join(folder, "deploy"))))
	for _, tree := range []string{"deploy", "muster-0.1/deploy"} {
		u.keepOnSystemNode(filepath.Join(u.tree, tree, "base/deployment.yaml"))
		u.hasten(filepath.Join(u.tree, tree, "base/muster-config.yaml"))
	}
	u.must(os.WriteFile(u.state, nil, 0o644))
	programs := filepath.Join(server.Folder, "bin")
	u.must(os.MkdirAll(programs, 0o755))
	for name, path := range map[string]string{"muster": options.Muster, "kubectl": filepath.Join(options.Programs, "kubectl")} {
		u.must(os.Symlink(path, filepath.Join(programs, name)))
	}
	u.environment = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "KUBECONFIG="+server.Kubeconfig, "HOME="+server.Folder)
	u.readUpgradePage()
	_, err = server.RunPods(map[string]string{u.versions[true]: filepath.Join(folder, "muster")})
	u.must(err)
	return u
}

// keepOnSystemNode keeps Muster's pods off the nodes of the cases, where nobody would run them.
func (u *upgrade) keepOnSystemNode(manifest string) {
	u.Helper()
	const selector = "kubernetes.io/os: linux\n"
	content, err := os.ReadFile(manifest)
	u.must(err)
	before, after, found := strings.Cut(string(content), selector)
	if !found {
		u.Fatalf("%s has no node selector", manifest)
	}
	indent := before[strings.LastIndex(before, "\n")+1:]
	u.must(os.WriteFile(manifest, []byte(before+selector+indent+corev1.LabelHostname+": "+plane.SystemNode+"\n"+after), 0o644))
}

// hasten makes a version restart sooner what it can't repair.
func (u *upgrade) hasten(path string) {
	u.Helper()
	content, err := os.ReadFile(path)
	u.must(err)
	before, after, found := strings.Cut(string(content), "    quota: internal\n")
	if !found {
		u.Fatalf("%s doesn't say who admits", path)
	}
	u.must(os.WriteFile(path, fmt.Appendf(nil, "%s    quota: internal\n    engine:\n      repairDeadline: %ds\n%s", before, int(hastyRepair.Seconds()), after), 0o644))
}

func (u *upgrade) readUpgradePage() {
	u.Helper()
	content, err := os.ReadFile(upgradePage)
	u.must(err)
	commands, _, wrong := readPage(string(content))
	for _, one := range wrong {
		u.Error(one)
	}
	for _, command := range commands {
		u.page[command.kind] = append(u.page[command.kind], command)
	}
	for _, kind := range []string{"sh upgrade", "sh downgrade", "sh downgrade with queues"} {
		if len(u.page[kind]) < 2 {
			u.Fatalf("%s has no %q any more", upgradePage, kind)
		}
	}
}

func (u *upgrade) run() {
	u.install()
	u.fresh = u.createFresh()

	for range 2 {
		s := u.fill()
		u.roll(s)
		s.checkGoesOn()
		s.end()
	}
	s := u.fill()
	u.roll(s)
	s.checkGoesOn()
	u.leave(s)
	for _, one := range u.fresh.stop() {
		u.Errorf("a pod was refused at %s, of %d: %v", one.at.Format("15:04:05.000"), u.fresh.created.Load(), one.why)
	}
	u.Logf("%d pods were created all the while; at most %s GPUs were in use", u.fresh.created.Load(), u.highest)
	u.checkRights()
}

// install is what the version before said of itself.
func (u *upgrade) install() {
	u.Helper()
	if u.queues {
		u.does("kubectl apply --server-side -k muster-0.1/deploy/crds/kueue")
	}
	u.does("kubectl apply --server-side -k muster-0.1/deploy")
	u.does("kubectl -n muster-system rollout status deployment/muster --timeout=3m")
	u.old = true
	u.must(u.plane.AwaitCRDs("podgroups.scheduling.x-k8s.io"))
	u.must(u.plane.Record())
	if u.queues {
		u.apply(roomyQueue)
		u.quota, u.fallback = u.newCase("quota"), u.newCase("fallback")
		u.quota.Apply("quota.yaml", nominalQuota(stageQuota), onNodesLabelled, preempting)
		u.quota.flavorNodes(usage{"nvidia": stageQuota["nvidia"] + 4})
		u.fallback.Apply("fallback_quota.yaml", withoutThird, intoClusterQueue("fallback"))
		u.fallback.NodePool("first", 1, 2, time.Second, soldOut)
		// Room for one round's nodes while the last one's go.
		u.fallback.NodePool("second", 1, 4, lateNodes)
		u.awaitQueueStatus()
	}
}

// awaitQueueStatus waits until Muster shows that it knows the queue.
func (u *upgrade) awaitQueueStatus() {
	u.Helper()
	for deadline := time.Now().Add(30 * time.Second); strings.Contains(u.quota.queueStatus(), "-1"); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			u.Fatalf("Muster says nothing of the ClusterQueue: %s", u.quota.queueStatus())
		}
	}
}

// newCase is a namespace that is under no quota to speak of, where there are queues.
func (u *upgrade) newCase(name string) *Case {
	u.Helper()
	c := newCase(u.T, name)
	c.persistent = true
	if u.queues && name != "quota" && name != "fallback" {
		u.apply(fmt.Sprintf(roomyLocalQueue, c.Namespace))
	}
	return c
}

func (u *upgrade) does(command string) {
	u.Helper()
	u.doesAs(docsCommand{text: command})
}

func (u *upgrade) doesAs(command docsCommand) {
	u.Helper()
	began := time.Now()
	output, status := u.docsCluster.run(command.text)
	u.Logf("%s (%.1f s)\n%s", command.text, time.Since(began).Seconds(), output)
	if status != command.status {
		u.Fatalf("%s ended with %d\n%s", command.text, status, output)
	}
}

// roll changes the version by the page's commands. The commit that is stopped in its middle goes on once
// the pod that began it is to end.
func (u *upgrade) roll(s *eachState) {
	u.Helper()
	how := "sh upgrade"
	if !u.old {
		how = "sh downgrade"
		if u.queues {
			how += " with queues"
		}
	}
	leader := u.leader()
	began := time.Now()
	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		defer s.turnstile.letAllPass()
		for {
			pod, err := shared.Client.CoreV1().Pods("muster-system").Get(context.Background(), leader, metav1.GetOptions{})
			if err != nil || pod.DeletionTimestamp != nil {
				time.Sleep(2 * time.Second)
				return
			}
			select {
			case <-over:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	for _, command := range u.page[how] {
		u.doesAs(command)
	}
	close(over)
	watching.Wait()
	u.old = !u.old
	if u.old && u.queues {
		// Nothing is scarce there.
		u.resumeQueue("roomy")
		u.resumeQueue("fallback")
	}
	next := u.leader()
	u.Logf("%s: %s -> %s after %v", how, leader, next, time.Since(began).Round(time.Second))
	pods, err := shared.Client.CoreV1().Pods("muster-system").List(u.Context(), metav1.ListOptions{})
	u.must(err)
	for _, pod := range pods.Items {
		if image := pod.Spec.Containers[0].Image; pod.DeletionTimestamp == nil && image != u.versions[u.old] {
			u.Errorf("pod %s is of %s, want %s", pod.Name, image, u.versions[u.old])
		}
	}
}

// resumeQueue lets a queue go on that was stopped.
func (u *upgrade) resumeQueue(name string) {
	u.Helper()
	u.does(`kubectl patch clusterqueue ` + name + ` --type=merge --patch '{"spec": {"stopPolicy": "None"}}'`)
}

// leader is the pod that leads.
func (u *upgrade) leader() (name string) {
	u.Helper()
	u.must(shared.Timeline.Await(time.Minute, func(state *timeline.State) string {
		for _, pod := range state.Pods {
			if pod.Namespace == "muster-system" && pod.Labels["muster.dev/leading"] == "true" && pod.DeletionTimestamp == nil {
				name = pod.Name
				return ""
			}
		}
		return "no pod of Muster's leads"
	}))
	return name
}

// leave takes this version out, with gangs in each state.
func (u *upgrade) leave(s *eachState) {
	u.Helper()
	l := &leaving{Case: s.plain, quota: cmp.Or(u.quota, s.plain), coming: s.coming}
	l.command(1, "--yes", "--gates=lift")
	u.does("kubectl -n muster-system scale deployment muster --replicas=0")
	u.must(shared.Timeline.Await(time.Minute, func(state *timeline.State) string {
		for _, pod := range state.Pods {
			if pod.Namespace == "muster-system" {
				return "pod " + pod.Name + " is still there"
			}
		}
		return ""
	}))
	l.command(0, "--yes", "--gates=lift")
	l.says(l.command(0, "--yes", "--gates=lift"), "Nothing is left to do.")
	l.checkGivenBack()
	u.does("kubectl delete --ignore-not-found -k deploy/base --timeout=120s")
	u.must(shared.ScheduleStock())
	s.checkRan()
	s.awaitWhole(time.Minute, s.short)
	u.fresh.awaitBound(time.Minute)
	s.remove()
	mustKubectl(u.T, "delete", "validatingwebhookconfigurations", "--all", "--timeout=30s") // turnstiles name Muster's account
	l.checkNothingIsLeft("PodGroup", "Workload", "CustomResourceDefinition", "Job")
}

// checkRights logs what either version was forbidden: while both run one of them has the other's rights.
func (u *upgrade) checkRights() {
	u.Helper()
	requests, err := shared.Requests(time.Time{}, time.Now())
	u.must(err)
	counts := map[string]int{}
	for _, request := range requests {
		if request.Forbidden && request.User == plane.ServiceAccount && request.Program == "muster" {
			counts[request.Verb+" "+request.Resource]++
		}
	}
	u.Logf("forbidden: %v", counts)
}

// freshPods are created one after the other, whatever runs.
type freshPods struct {
	*Case
	created atomic.Int64
	over    sync.WaitGroup
	done    chan struct{}
	refused []refusal
}

type refusal struct {
	at  time.Time
	why error
}

func (u *upgrade) createFresh() *freshPods {
	u.Helper()
	f := &freshPods{Case: u.newCase("fresh"), done: make(chan struct{})}
	f.Nodes(4, 1)
	f.over.Go(func() {
		for {
			select {
			case <-f.done:
				return
			case <-time.After(time.Second):
			}
			number := f.created.Load()
			pod := f.Pod(fmt.Sprintf("fresh-%d", number), plane.SchedulerName, 0)
			withoutCPU(pod)
			if _, err := shared.Client.CoreV1().Pods(f.Namespace).Create(context.Background(), pod, metav1.CreateOptions{}); err != nil {
				f.refused = append(f.refused, refusal{time.Now(), err})
			} else {
				f.created.Add(1)
			}
			// There is room for so many on the nodes.
			if number >= 60 {
				_ = shared.Client.CoreV1().Pods(f.Namespace).Delete(context.Background(), fmt.Sprintf("fresh-%d", number-60), metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
			}
		}
	})
	return f
}

func (f *freshPods) stop() []refusal {
	close(f.done)
	f.over.Wait()
	return f.refused
}

// awaitBound waits for all that have been created up to now.
func (f *freshPods) awaitBound(patience time.Duration) {
	f.Helper()
	last := f.created.Load()
	if err := shared.Timeline.Await(patience, func(state *timeline.State) string {
		for number := max(0, last-30); number < last; number++ {
			name := fmt.Sprintf("fresh-%d", number)
			if pod := state.Pods[f.Namespace+"/"+name]; pod != nil && !bound(pod) {
				return fmt.Sprintf("pod %s isn't bound: %v", name, describePod(pod))
			}
		}
		return ""
	}); err != nil {
		f.Error(err)
	}
}

var camel = regexp.MustCompile(`^[A-Z][A-Za-z0-9]+$`)

// reasonIn is what the gang's PodGroup says, in either version.
func (g *Gang) reasonIn(state *timeline.State) (code, message string) {
	group := state.PodGroups[g.Namespace+"/"+g.Name]
	if group == nil {
		return "", "there is no PodGroup"
	}
	status, _ := group.Object["status"].(map[string]any)
	conditions, _ := status["conditions"].([]any)
	for _, each := range conditions {
		if condition, _ := each.(map[string]any); condition["type"] == "Admitted" {
			return text(condition, "reason"), text(condition, "message")
		}
	}
	return "", "its PodGroup says nothing"
}

// awaitSays waits until it says one of these.
func (g *Gang) awaitSays(patience time.Duration, codes ...string) {
	g.Helper()
	g.must(shared.Timeline.Await(patience, func(state *timeline.State) string {
		code, message := g.reasonIn(state)
		if camel.MatchString(code) && slices.Contains(codes, code) {
			return ""
		}
		return fmt.Sprintf("gang %s says %s %s, want one of %v", g.Name, code, message, codes)
	}))
}

// jobNamed is the Job as the API server has it.
func (c *Case) jobNamed(name string) *batchv1.Job {
	c.Helper()
	job, err := shared.Client.BatchV1().Jobs(c.Namespace).Get(c.Context(), name, metav1.GetOptions{})
	c.must(err)
	return job
}

// gpusInUse are the GPUs of bound pods that have not ended.
func gpusInUse(pods map[string]*corev1.Pod) int64 {
	sum := int64(0)
	for _, pod := range pods {
		if bound(pod) && unfinished(pod) && pod.DeletionTimestamp == nil {
			amount := pod.Spec.Containers[0].Resources.Requests[gpu]
			sum += amount.Value()
		}
	}
	return sum
}
