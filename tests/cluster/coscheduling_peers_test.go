package cluster

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/tests/cluster/faults"
	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

// What gangs meet without Muster: Kueue admits them and scheduler-plugins'
// coscheduling binds them, on the same control plane, with the faults that the
// cases of Muster order. What is asserted holds in every run; the figures are
// logged, and are in the README's table.

// newPeersCase starts both of them in Muster's place, with quota for all.
func newPeersCase(t *testing.T, name string) *Case {
	t.Helper()
	c := newCase(t, name)
	// The next case of Muster's starts it again. Its gate guards pods that name a queue.
	c.removeMuster()
	c.started(shared.StartKueue(plane.Kueue{Frameworks: []string{"pod"}}))
	c.started(shared.StartSchedulerPlugins(plane.SchedulerPlugins{}))
	c.Apply("open_quota.yaml")
	return c
}

// peerGang makes a gang as their users do, without its members: they are one
// PodGroup of coscheduling's and one group of Kueue's, and Karpenter is told to
// leave alone what runs.
func (c *Case) peerGang(name string, size, gpus int) *Gang {
	c.Helper()
	g := c.PodGroup(name, size, gpus)
	g.edit = func(pod *corev1.Pod) {
		pod.Spec.SchedulerName = plane.PeerSchedulerName
		pod.Labels["kueue.x-k8s.io/queue-name"] = "default"
		pod.Labels["kueue.x-k8s.io/pod-group-name"] = name
		pod.Annotations = map[string]string{
			"kueue.x-k8s.io/pod-group-total-count": fmt.Sprint(size),
			doNotDisrupt:                           "true",
		}
	}
	return g
}

// ordeal is one thing that goes wrong, and what must come of it.
type ordeal struct {
	name  string
	quota string           // a file of jobs/ with the queue; without one it has quota for all
	nodes func(c *Case)    // the nodes there are, or can be
	gangs int              // 1 if it isn't said
	size  int              // of each gang
	gpus  int              // of each member, and of each node
	efa   bool             // members ask for that too
	lose  func(g *Gang)    // what happens once it runs; its members are made anew
	want  func(o *outcome) // reports to o.T
}

// peerPatience is how long a gang is watched that doesn't start. kube-scheduler looks
// anew at what it could not place after five minutes, and every half a minute which
// pods these are.
const peerPatience = 400 * time.Second

// pool gives a case one NodePool.
func pool(gpusPerNode, maxNodes int, wrong ...faults.Fault) func(*Case) {
	return func(c *Case) { c.NodePool("pool", gpusPerNode, maxNodes, time.Second, wrong...) }
}

// devices are late on one of two nodes, or for ever without a time.
func devices(launch int, lasts int64, resources map[string]int64) faults.Fault {
	return faults.Fault{Kind: faults.Devices, Launches: []int{launch}, Resources: resources, LastsSeconds: lasts}
}

func turnMemberAway(g *Gang) {
	g.fail(g.T, "UnexpectedAdmissionError", "Pod was rejected: Allocate failed due to no healthy devices present")
}

func TestPeerCoschedulingMeetsEachFault(t *testing.T) {
	meet(t, []ordeal{
		{
			name: "nodes that register one by one", size: 4, gpus: 1,
			nodes: func(c *Case) {
				for i, delay := range []time.Duration{3 * time.Second, 6 * time.Second, 12 * time.Second, 20 * time.Second} {
					c.NodePool(fmt.Sprintf("pool-%d", i), 1, 1, delay)
				}
			},
			want: startsWhole(4),
		},
		{
			name: "no capacity for one launch", size: 4, gpus: plane.TwoZones,
			nodes: pool(plane.TwoZones, 8, faults.Fault{Kind: faults.InsufficientCapacity, Launches: []int{2}}),
			want:  startsWhole(5),
		},
		{
			name: "no capacity for a time", size: 4, gpus: plane.TwoZones,
			nodes: pool(plane.TwoZones, 8, faults.Fault{Kind: faults.InsufficientCapacity, LastsSeconds: 6, UnavailableSeconds: 4}),
			want:  startsWhole(5),
		},
		{
			name: "one zone out of instances", size: 4, gpus: plane.TwoZones,
			nodes: pool(plane.TwoZones, 8, outOf(plane.Zone, 2)),
			want:  startsWhole(4),
		},
		{
			name: "no capacity for the fourth node, for ever", size: 4, gpus: 8,
			nodes: pool(8, 8, faults.Fault{Kind: faults.InsufficientCapacity, FromLaunch: 4, UnavailableSeconds: 3}),
			want:  keepsWithoutStarting(3, 3),
		},
		{
			name: "capacity for six nodes and two gangs of four", gangs: 2, size: 4, gpus: 1,
			nodes: pool(1, 8, faults.Fault{Kind: faults.InsufficientCapacity, FromLaunch: 7, UnavailableSeconds: 3}),
			want:  startsWhole(7),
		},
		{
			name: "a NodePool of six nodes and two gangs of four", gangs: 2, size: 4, gpus: 1,
			nodes: pool(1, 6),
			want:  startsWhole(6),
		},
		{
			name: "too little capacity and a second flavor", size: 4, gpus: 1, quota: "fallback_quota.yaml",
			nodes: func(c *Case) {
				c.NodePool("first", 1, 4, time.Second, faults.Fault{Kind: faults.InsufficientCapacity, FromLaunch: 4, UnavailableSeconds: 3})
				c.NodePool("second", 1, 4, time.Second)
			},
			want: staysOnTheFirstFlavor,
		},
		{
			name: "a node that never registers", size: 4, gpus: 8,
			nodes: pool(8, 8, faults.Fault{Kind: faults.NeverRegisters, FromLaunch: 4}),
			want:  keepsWithoutStarting(3, 4),
		},
		{
			name: "no GPU at first", size: 2, gpus: 8, efa: true,
			nodes: pool(8, 2, devices(1, 6, map[string]int64{string(gpu): 0})),
			want:  startsWhole(2),
		},
		{
			name: "7 of 8 GPUs at first", size: 2, gpus: 8, efa: true,
			nodes: pool(8, 2, devices(2, 6, map[string]int64{string(gpu): 7})),
			want:  startsWhole(2),
		},
		{
			name: "7 of 8 GPUs for ever", size: 4, gpus: 8,
			nodes: pool(8, 8, faults.Fault{Kind: faults.Devices, FromLaunch: 4, Resources: map[string]int64{string(gpu): 7}}),
			// What Karpenter buys beside it doesn't help, is removed and bought again.
			want: keepsWithoutStarting(3, 9),
		},
		{
			name: "a startup taint that goes late", size: 2, gpus: 8, efa: true,
			nodes: pool(8, 2, agentTaint(1, 1), agentTaint(6, 2)),
			want:  startsWhole(2),
		},
		{
			name: "a startup taint that stays", size: 4, gpus: 8,
			nodes: pool(8, 8, agentTaint(1, 1, 2, 3), agentTaintFrom(4)),
			want:  keepsWithoutStarting(4, 4),
		},
		{
			name: "a spot interruption", size: 3, gpus: 1,
			nodes: pool(1, 8,
				faults.Fault{Kind: faults.Interruption, Launches: []int{1}, DelaySeconds: 3},
				faults.Fault{Kind: faults.RegistrationDelay, Launches: []int{2}, DelaySeconds: 9}),
			want: startsWhole(4),
		},
		{
			name: "a member that the kubelet turns away", size: 2, gpus: 1,
			nodes: func(c *Case) { c.Nodes(3, 1) },
			lose:  turnMemberAway,
			want:  replacesTheLost,
		},
		{
			name: "a member that the kubelet turns away and no other node", size: 2, gpus: 1,
			nodes: pool(1, 4),
			lose:  turnMemberAway,
			want:  goesBack,
		},
		{
			name: "a Node that is deleted by force", size: 2, gpus: 1,
			nodes: pool(1, 4),
			lose:  func(g *Gang) { g.deleteByForce(g.nodes()[0].Name) },
			want:  replacesTheLost,
		},
		{
			name: "a node that is not Ready", size: 2, gpus: 1,
			nodes: func(c *Case) { c.Nodes(3, 1) },
			lose:  func(g *Gang) { g.setReady(g.nodes()[0].Name, false) },
			want:  replacesTheLost,
		},
		{
			name: "a NodeClaim that is deleted", size: 2, gpus: 1,
			nodes: pool(1, 4),
			lose: func(g *Gang) {
				_, err := shared.Kubectl("delete", "nodeclaim", "--wait=false", claimOf(g.Case, g.nodes()[0].Name))
				g.must(err)
			},
			want: runsOn,
		},
	})
}

// Alone, as TestDriftedEmptyNodeGoes is.
func TestPeerCoschedulingMeetsDrift(t *testing.T) {
	meet(t, []ordeal{{
		name: "drift", size: 3, gpus: 1,
		nodes: pool(1, 8,
			faults.Fault{Kind: faults.Drift, Launches: []int{1}},
			faults.Fault{Kind: faults.RegistrationDelay, Launches: []int{2}, DelaySeconds: 28}),
		want: startsWhole(3),
	}})
}

// startsWhole: each of the gangs starts, none of them in parts, and it took so many
// NodeClaims at least.
func startsWhole(claims int) func(*outcome) {
	return func(o *outcome) {
		if o.started() < len(o.starts) {
			o.Errorf("not every gang started: %v (0s: never)", o.starts)
		}
		// Members are bound one after the other.
		if o.alone > 10*time.Second {
			o.Errorf("a part of a gang stood alone for %v", o.alone)
		}
		o.checkClaims(claims)
	}
}

// keepsWithoutStarting: the gang doesn't start, so many nodes at least are paid for
// to the end, and so many NodeClaims are made. Its quota is kept as well, and
// neither the pods' conditions nor Kueue's say what is wrong with a node.
func keepsWithoutStarting(nodes, claims int) func(*outcome) {
	return func(o *outcome) {
		if o.started() > 0 || o.alone > 0 {
			o.Errorf("it started after all: whole after %v, a part alone for %v", o.starts, o.alone)
		}
		if o.empty < nodes {
			o.Errorf("%d nodes wait for the gang in the end, want at least %d", o.empty, nodes)
		}
		if least := float64(nodes*o.gpus) * o.watched.Seconds() / 2; o.idle.registered < least {
			o.Errorf("%.0f GPU-seconds were idle, want at least %.0f", o.idle.registered, least)
		}
		if !strings.Contains(o.said, "Workload [Admitted=True PodsReady=False QuotaReserved=True]") {
			o.Error("Kueue didn't leave it admitted")
		}
		if words := regexp.MustCompile(`(?i)capacity|offering|registered|of 8`).FindString(o.said); words != "" {
			o.Errorf("somebody says %q after all", words)
		}
		o.checkClaims(claims)
	}
}

// staysOnTheFirstFlavor: and nothing is ever asked of the second one.
func staysOnTheFirstFlavor(o *outcome) {
	keepsWithoutStarting(3, 4)(o)
	if o.second > 0 {
		o.Errorf("%d NodeClaims are of the second flavor", o.second)
	}
}

// replacesTheLost: the gang has all its members again, and those that weren't lost
// were left alone.
func replacesTheLost(o *outcome) {
	if o.started() == 0 || o.again == 0 {
		o.Errorf("started after %v and whole again after %v (0s: never)", o.starts, o.again)
	}
	if o.kept != o.size-1 {
		o.Errorf("%d of %d members were left alone, want all but one", o.kept, o.size)
	}
}

// goesBack: the new member is sent to the node that failed the old one.
func goesBack(o *outcome) {
	replacesTheLost(o)
	if !o.back {
		o.Error("no member is on the same node again")
	}
}

// runsOn: nothing happens to the members, because they mustn't be disrupted.
func runsOn(o *outcome) {
	if o.started() == 0 || o.kept != o.size {
		o.Errorf("started after %v (0s: never), and %d of %d members are those from before", o.starts, o.kept, o.size)
	}
}

func (o *outcome) checkClaims(least int) {
	o.Helper()
	if o.claims < least {
		o.Errorf("%d NodeClaims, want at least %d", o.claims, least)
	}
}

// outcome is what became of the gangs of an ordeal.
type outcome struct {
	*testing.T
	size, gpus int // the ordeal's
	watched    time.Duration
	starts     []time.Duration // of each gang after its last member was created; 0: never
	again      time.Duration   // after the loss; 0: never
	kept       int             // members that are those from before the loss
	back       bool            // a member stands on the node to which one was lost
	alone      time.Duration   // the longest time for which a part of a gang had nodes without the rest
	claims     int             // NodeClaims made
	second     int             // those of them for the second flavor
	empty      int             // nodes without a member in the end
	idle       idleGPUs
	said       string
}

func (o *outcome) started() int {
	return len(slices.DeleteFunc(slices.Clone(o.starts), func(start time.Duration) bool { return start == 0 }))
}

// trial is an ordeal that is under way.
type trial struct {
	ordeal
	*Case
	tried  []*Gang
	done   []bool
	lost   time.Time
	before map[types.UID]bool // members when it was lost
	where  string             // the node of the member that it is lost to
}

// meet lets each ordeal happen to gangs of the peers', all at the same time.
func meet(t *testing.T, ordeals []ordeal) {
	t.Helper()
	newPeersCase(t, "peers")
	trials := make([]*trial, len(ordeals))
	for i, one := range ordeals {
		trials[i] = one.begin(t)
	}
	for end := time.Now().Add(peerPatience); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		left := 0
		for _, one := range trials {
			if !one.goOn() {
				left++
			}
		}
		if left == 0 {
			break
		}
	}
	for _, one := range trials {
		t.Run(one.name, one.judge)
	}
}

func (o ordeal) begin(t *testing.T) *trial {
	t.Helper()
	o.gangs = max(o.gangs, 1)
	r := &trial{ordeal: o, Case: newCase(t, "ordeal"), done: make([]bool, o.gangs)}
	r.Apply(cmp.Or(o.quota, "open_queue.yaml"), withoutThird)
	o.nodes(r.Case)
	for i := range o.gangs {
		g := r.peerGang([]string{"one", "two"}[i], o.size, o.gpus)
		if forPeers := g.edit; o.efa {
			g.edit = func(pod *corev1.Pod) {
				forPeers(pod)
				withEFA(pod)
			}
		}
		if o.lose != nil {
			g.replicate(o.size)
		} else {
			g.AddMembers(o.size)
		}
		r.tried = append(r.tried, g)
	}
	return r
}

// goOn does what follows from a gang's start, and tells whether nothing more is
// awaited: of two gangs the one that runs ends, to see whether the other follows,
// and what is to be lost is lost.
func (r *trial) goOn() bool {
	for i, g := range r.tried {
		if r.done[i] || g.Count(running) < r.size {
			continue
		}
		switch {
		case r.lose == nil:
			r.done[i] = true
			if len(r.tried) > 1 {
				g.Delete()
			}
		case r.lost.IsZero():
			r.before, r.where = g.uids(), g.nodes()[0].Name
			r.lost = time.Now()
			r.lose(g)
		default:
			r.done[i] = !g.wholeAgain(r.size, r.lost).IsZero()
		}
	}
	return !slices.Contains(r.done, false)
}

func (r *trial) judge(t *testing.T) {
	end := time.Now()
	o := &outcome{
		T: t, size: r.size, gpus: r.gpus, watched: end.Sub(r.Begin).Round(time.Second),
		claims: len(r.Claims()), idle: r.idle(r.tried, r.size, r.gpus, end), said: r.said(),
	}
	for _, claim := range r.Claims() {
		if claim.Object.GetLabels()[nodePoolLabel] == r.Namespace+"-second" {
			o.second++
		}
	}
	shared.Timeline.Look(func(state *timeline.State) { o.empty = r.emptyNodes(state) })
	for _, g := range r.tried {
		start := time.Duration(0)
		if whole := g.firstWhole(r.size); !whole.IsZero() {
			start = whole.Sub(g.Created).Round(100 * time.Millisecond)
		}
		o.starts = append(o.starts, start)
		o.alone = max(o.alone, g.alone(r.size, end).Round(10*time.Millisecond))
	}
	t.Logf("watched for %v: started after %v (0s: never), a part alone for %v; %d NodeClaims, %d empty nodes in the end; %.0f GPU-seconds idle from the launch, %.0f from the registration",
		o.watched, o.starts, o.alone, o.claims, o.empty, o.idle.launched, o.idle.registered)
	switch {
	case !r.lost.IsZero():
		g := r.tried[0]
		if again := g.wholeAgain(r.size, r.lost); !again.IsZero() {
			o.again = again.Sub(r.lost).Round(100 * time.Millisecond)
		}
		shared.Timeline.Look(func(state *timeline.State) {
			for _, pod := range g.standing(state) {
				o.back = o.back || pod.Spec.NodeName == r.where
				if r.before[pod.UID] {
					o.kept++
				}
			}
		})
		t.Logf("whole again %v after the loss (0s: never), with %d of %d members from before; a member is on the same node again: %v",
			o.again, o.kept, r.size, o.back)
	case len(r.tried) == 1 && o.started() == 1:
		mine := r.boundNodes()
		last := r.lastNodeEvent(func(node *corev1.Node) bool {
			gpus := node.Status.Allocatable[gpu]
			return mine[node.Name] && complete(node) && gpus.Value() == int64(r.gpus) && !hasAgentTaint(node)
		})
		t.Logf("started %v after the last of its nodes was whole", r.tried[0].firstWhole(r.size).Sub(last.At).Round(100*time.Millisecond))
	}
	t.Logf("said: %s", o.said)
	r.want(o)
}

// said is all that a user is told: why members aren't bound, what Kueue's Workloads
// say, and how often each event came.
func (r *trial) said() string {
	words := map[string]bool{}
	shared.Timeline.Look(func(state *timeline.State) {
		for _, g := range r.tried {
			for _, pod := range g.pods(state) {
				for _, condition := range pod.Status.Conditions {
					if condition.Status != corev1.ConditionTrue && condition.Message != "" {
						words[fmt.Sprintf("pod %s: %s", condition.Reason, condition.Message)] = true
					}
				}
			}
		}
	})
	// The test's own context may have ended.
	ctx := context.Background()
	if list, err := shared.Dynamic.Resource(workloadResource).Namespace(r.Namespace).List(ctx, metav1.ListOptions{}); err == nil {
		for i := range list.Items {
			words[fmt.Sprint("Workload ", describeConditions(&list.Items[i]))] = true
		}
	}
	counts := map[string]int32{}
	if list, err := shared.Client.CoreV1().Events(r.Namespace).List(ctx, metav1.ListOptions{}); err == nil {
		for _, event := range list.Items {
			counts[event.Reason] += max(event.Count, 1)
		}
	}
	lines := []string{}
	for line := range words {
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return fmt.Sprintf("%s; events %v", strings.Join(lines, "; "), counts)
}
