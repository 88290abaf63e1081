package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

// Two replicas as deploy/ makes them, and every way in which the one that leads
// can end while a gang has two of its four nodes. They are the only ones on the
// control plane meanwhile, so this doesn't run beside other cases.
func TestWhenTheLeadingReplicaEndsItsGangStartsWhole(t *testing.T) {
	pair := startReplicas(t, "east", "west")
	ends := []endOfALeader{hostLost, musterCrashed, schedulerCrashed, drained}
	if full {
		ends = append(ends, frozen)
	}
	var measured []measurement
	for round := range pick(1, 5) {
		for _, end := range ends {
			t.Run(fmt.Sprintf("%s, round %d", end.name, round+1), func(t *testing.T) {
				measured = append(measured, pair.handOver(t, end))
			})
		}
	}
	for _, end := range ends {
		t.Log(summary(end.name, measured))
	}
	for round := range pick(0, 3) {
		t.Run(fmt.Sprintf("its host is lost between two bindings, round %d", round+1), pair.loseBetweenBindings)
	}
}

// A way in which the leading replica ends, or a part of it.
type endOfALeader struct {
	name string
	do   func(leader *plane.Replica) error
	// What brings it back once somebody else leads; nil: it comes back by itself.
	back func(former *plane.Replica) error
	// Which replica leads afterwards.
	successor succession
	// How long it may take until one leads again.
	patience time.Duration
	// The last two nodes register so long after the first two: while nobody
	// leads, or under the next leader.
	lastNodes time.Duration
	// It hangs and goes on later: the API server can't know that its webhook
	// doesn't answer, and until it looks at the Lease and the clock it goes on
	// with what it was about to do.
	hangs bool
}

type succession int

const (
	same succession = iota
	other
	either
)

// kube-scheduler's Lease lasts 6 s from when the other one last saw it renewed.
// They look every 1 to 2.2 s, and Muster four times a second once it has run out.
const leaseRunsOut = 15 * time.Second

var (
	hostLost = endOfALeader{
		name: "its host is lost", successor: other, patience: leaseRunsOut, lastNodes: 4 * time.Second,
		do: func(leader *plane.Replica) error {
			leader.Lose()
			return nil
		},
		back: (*plane.Replica).Start,
	}
	musterCrashed = endOfALeader{
		name: "its muster crashes", successor: same, patience: 5 * time.Second, lastNodes: 3 * time.Second,
		do: func(leader *plane.Replica) error {
			leader.CrashMuster()
			return nil
		},
	}
	schedulerCrashed = endOfALeader{
		name: "its kube-scheduler crashes", successor: either, patience: leaseRunsOut, lastNodes: 4 * time.Second,
		do: func(leader *plane.Replica) error {
			leader.CrashScheduler()
			return nil
		},
	}
	drained = endOfALeader{
		name: "it is asked to end", successor: other, patience: 8 * time.Second, lastNodes: 6 * time.Second,
		do:   (*plane.Replica).Stop,
		back: (*plane.Replica).Start,
	}
	// It is still there, but time passes without it: when it goes on, it may write
	// what it was about to, but must not bind, nor make the gang start in part.
	frozen = endOfALeader{
		name: "it is frozen", successor: other, patience: leaseRunsOut, lastNodes: 4 * time.Second,
		do:    (*plane.Replica).Freeze,
		back:  (*plane.Replica).Thaw,
		hangs: true,
	}
)

// handOver lets a gang get two of its nodes, ends the leader, and judges what
// becomes of the gang.
func (p *replicas) handOver(t *testing.T, end endOfALeader) measurement {
	leader, follower := p.awaitLeader(t)
	c := p.newCase(t, leader)
	for i, delay := range []time.Duration{0, 0, end.lastNodes, end.lastNodes} {
		c.NodePool(fmt.Sprint(i), 1, 1, delay)
	}
	writes := c.recordWrites(leader, follower)
	g := c.Gang("train", 4, 1)
	c.awaitNodesHeld(2)
	g.checkOnlyTheLeaderAnswers(leader, follower)
	writes.check(t, leader.Host)
	writes.checkSchedulers(t, leader.Host)

	before := p.holder()
	ended := time.Now()
	c.must(end.do(leader))
	if end.successor == other && !end.hangs {
		// Nobody has to lead for the gate to work. A connection that the API
		// server had kept may cost one attempt.
		c.persistent = true
		if pod := c.Create(c.Pod("newcomer", plane.SchedulerName, 1000)); !gated(pod) {
			t.Error("a pod got in ungated when the leader had just ended")
		}
	}
	next := p.awaitNext(t, end, leader, before)
	led := time.Now()
	c.leader = func() *plane.Muster { return next.Muster }
	if end.successor == other && next != follower {
		t.Errorf("%s leads, want %s", next.Host, follower.Host)
	}
	if took := led.Sub(ended); took > end.patience {
		t.Errorf("nobody led for %v, want at most %v", took.Round(time.Millisecond), end.patience)
	}
	if end.back != nil {
		c.must(end.back(leader))
	}

	g.AwaitBound(30 * time.Second)
	c.AwaitHoldsGone(15 * time.Second)
	m := measurement{end: end.name, lead: led.Sub(ended), lastNode: c.lastNodeComplete().At.Sub(ended), binding: g.Moments(bound)[0].At.Sub(ended)}
	g.checkOneStroke(max(0, m.lead-m.lastNode) + 3*time.Second)
	g.checkMembersProtected()
	c.checkNoNodeLost(4)
	want := []string{leader.Host}
	if next != leader {
		want = append(want, next.Host)
	}
	writes.check(t, want...)
	// A kube-scheduler that thaws writes before it looks at its Lease.
	if !end.hangs {
		writes.checkSchedulers(t, want...)
	}
	writes.checkBound(t, next.Host)
	t.Logf("%s -> %s: %v", leader.Host, next.Host, m)
	return m
}

// loseBetweenBindings ends the leader for good when two of a gang's four
// bindings are stored and the others are on their way.
func (p *replicas) loseBetweenBindings(t *testing.T) {
	leader, _ := p.awaitLeader(t)
	c := p.newCase(t, leader)
	c.Nodes(4, 1)
	turnstile := c.turnstile(binding, 2)
	g := c.Gang("train", 4, 1)
	c.must(turnstile.awaitFull(g, 30*time.Second))
	before := p.holder()
	ended := time.Now()
	leader.Lose()
	turnstile.letAllPass()
	next := p.awaitNext(t, hostLost, leader, before)
	c.leader = func() *plane.Muster { return next.Muster }
	c.must(leader.Start())
	g.AwaitBound(30 * time.Second)
	c.AwaitHoldsGone(15 * time.Second)
	t.Logf("whole after %v", time.Since(ended).Round(time.Millisecond))
}

// newCase makes a case that asks the leader's Muster.
func (p *replicas) newCase(t *testing.T, leader *plane.Replica) *Case {
	t.Helper()
	c := newCase(t, "handover")
	c.leader = func() *plane.Muster { return leader.Muster }
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		t.Log(p.story(c.Begin))
		for _, replica := range p.all {
			t.Log(replica.Logs())
		}
	})
	return c
}

// awaitNext waits until one leads after the end of the leader: the Lease has a
// live holder, and the Muster beside it knows.
func (p *replicas) awaitNext(t *testing.T, end endOfALeader, former *plane.Replica, before string) *plane.Replica {
	t.Helper()
	next := former
	if end.successor != same {
		holder, err := p.awaitHolder(end.patience, func(holder string) bool { return holder != "" && holder != before })
		if err != nil {
			t.Fatal(err)
		}
		next = p.of(holder)
	}
	if err := awaitLeads(next, end.patience); err != nil {
		t.Fatal(err)
	}
	return next
}

// checkOnlyTheLeaderAnswers asks both replicas what people, tools and
// kube-scheduler ask.
func (g *Gang) checkOnlyTheLeaderAnswers(leader, follower *plane.Replica) {
	g.Helper()
	if code, body := get(follower.Muster.Address + g.resource()); code != http.StatusServiceUnavailable || !strings.Contains(body, "leader is "+leader.Host+"_") {
		g.Errorf("the follower answers %d %s, want 503 naming %s", code, body, leader.Host)
	}
	if code, body := get(leader.Muster.Address + g.resource()); code != http.StatusOK {
		g.Errorf("the leader answers %d %s, want 200", code, body)
	}
	pod, err := shared.Client.CoreV1().Pods(g.Namespace).Get(g.Context(), g.Members[0], metav1.GetOptions{})
	g.must(err)
	filter := map[string]any{"Pod": pod, "NodeNames": []string{"none"}}
	bind := map[string]any{"PodName": pod.Name, "PodNamespace": pod.Namespace, "PodUID": pod.UID, "Node": "none"}
	for verb, arguments := range map[string]any{"filter": filter, "bind": bind} {
		if answer := g.call(follower, verb, arguments); !strings.Contains(answer, "not leading; leader is "+leader.Host+"_") {
			g.Errorf("the follower's %s answers %s, want an error naming %s", verb, answer, leader.Host)
		}
		if answer := g.call(leader, verb, arguments); strings.Contains(answer, "not leading") {
			g.Errorf("the leader's %s answers %s", verb, answer)
		}
	}
}

// call calls one of the extender's verbs as kube-scheduler does. A refusal
// stands in the answer, with status 200: so it is in the protocol.
func (c *Case) call(replica *plane.Replica, verb string, arguments any) string {
	c.Helper()
	body, err := json.Marshal(arguments)
	c.must(err)
	response, err := patient.Post("http://"+replica.Muster.ExtenderAddress+"/"+verb, "application/json", bytes.NewReader(body))
	c.must(err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	c.must(err)
	return string(answer)
}

// patient is for what a test asks by itself.
var patient = &http.Client{Timeout: 5 * time.Second}

func get(resource string) (int, string) {
	response, err := patient.Get("http://" + resource)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(body)
}

func (c *Case) awaitNodesHeld(count int) {
	c.Helper()
	c.must(shared.Timeline.Await(30*time.Second, func(state *timeline.State) string {
		have := 0
		for _, node := range state.Nodes {
			if c.mine(node) && complete(node) && held(node) {
				have++
			}
		}
		if have != count {
			return fmt.Sprintf("%d nodes are there and held, want %d", have, count)
		}
		return ""
	}))
}

// measurement is what one hand-over took, from the end of the leader on.
type measurement struct {
	end      string
	lead     time.Duration // until a Muster led whose kube-scheduler holds the Lease
	lastNode time.Duration // until the gang's last node was there; may be negative
	binding  time.Duration // until the gang's first binding
}

func (m measurement) String() string {
	return fmt.Sprintf("led again after %v, last node after %v, first binding after %v",
		m.lead.Round(time.Millisecond), m.lastNode.Round(time.Millisecond), m.binding.Round(time.Millisecond))
}

func summary(end string, measured []measurement) string {
	var leads, delays []time.Duration
	for _, m := range measured {
		if m.end == end {
			leads = append(leads, m.lead)
			delays = append(delays, m.binding-max(m.lead, m.lastNode))
		}
	}
	if len(leads) == 0 {
		return end + ": nothing was measured"
	}
	return fmt.Sprintf("%s (%d runs): led again after %v to %v, first binding %v to %v after that and after the last node", end, len(leads),
		slices.Min(leads).Round(time.Millisecond), slices.Max(leads).Round(time.Millisecond),
		slices.Min(delays).Round(time.Millisecond), slices.Max(delays).Round(time.Millisecond))
}

// replicas are those of deploy/, and what their Lease said over time.
type replicas struct {
	all []*plane.Replica

	mutex   sync.Mutex
	changed chan struct{} // closed and replaced at every change
	leases  []holding
}

type holding struct {
	at     time.Time
	holder string
}

// startReplicas puts replicas in the place of the one that other cases share,
// and sees to it that they get it back.
func startReplicas(t *testing.T, hosts ...string) *replicas {
	t.Helper()
	return startReplicasWith(t, plane.Launch{}, hosts...)
}

// startReplicasWith is the same where Muster's configuration is another one.
func startReplicasWith(t *testing.T, launch plane.Launch, hosts ...string) *replicas {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	p := &replicas{changed: make(chan struct{})}
	go p.followLease(t.Context())
	must(shared.StandAside())
	t.Cleanup(func() {
		for _, replica := range p.all {
			if err := shared.Retire(replica); err != nil {
				t.Error(err)
			}
		}
		if err := shared.StandIn(); err != nil {
			t.Error(err)
		}
	})
	for _, host := range hosts {
		replica, err := shared.NewReplica(host)
		must(err)
		replica.Launch = launch
		p.all = append(p.all, replica)
		must(replica.Start())
	}
	return p
}

// awaitLeader waits until one replica leads and all are ready, as a rollout
// does, and returns it and another one.
func (p *replicas) awaitLeader(t *testing.T) (leader, follower *plane.Replica) {
	t.Helper()
	holder, err := p.awaitHolder(time.Minute, func(holder string) bool { return holder != "" })
	if err != nil {
		t.Fatal(err)
	}
	leader = p.of(holder)
	if err := awaitLeads(leader, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	for _, replica := range p.all {
		if err := replica.Muster.AwaitReady(30 * time.Second); err != nil {
			t.Fatal(err)
		}
		if replica != leader {
			follower = replica
		}
	}
	return leader, follower
}

// awaitLeads waits until a replica's Muster leads, by its own metrics.
func awaitLeads(replica *plane.Replica, patience time.Duration) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		code, body := get(replica.Muster.Address + "/metrics")
		if strings.Contains(body, "\nmuster_leading 1\n") {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the muster on %s doesn't lead after %v, its metrics answer %d", replica.Host, patience, code)
		}
	}
}

// of returns the replica whose kube-scheduler this is.
func (p *replicas) of(holder string) *plane.Replica {
	host, _, _ := strings.Cut(holder, "_")
	for _, replica := range p.all {
		if replica.Host == host {
			return replica
		}
	}
	panic("the Lease's holder is no replica: " + holder)
}

func (p *replicas) followLease(ctx context.Context) {
	leases := shared.Client.CoordinationV1().Leases(plane.LeaseNamespace)
	for ctx.Err() == nil {
		// Without a revision a watch begins with the object as it is.
		stream, err := leases.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + plane.LeaseName})
		if err != nil {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		for event := range stream.ResultChan() {
			if lease, ok := event.Object.(*coordinationv1.Lease); ok && lease.Spec.HolderIdentity != nil {
				p.saw(*lease.Spec.HolderIdentity)
			}
		}
	}
}

func (p *replicas) saw(holder string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if len(p.leases) > 0 && p.leases[len(p.leases)-1].holder == holder {
		return
	}
	p.leases = append(p.leases, holding{time.Now(), holder})
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *replicas) holder() string {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if len(p.leases) == 0 {
		return ""
	}
	return p.leases[len(p.leases)-1].holder
}

// heldSince is when the Lease's present holder was seen first.
func (p *replicas) heldSince() time.Time {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.leases[len(p.leases)-1].at
}

// awaitHolder waits until the Lease's holder is as wanted.
func (p *replicas) awaitHolder(patience time.Duration, wanted func(holder string) bool) (string, error) {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		p.mutex.Lock()
		changed := p.changed
		p.mutex.Unlock()
		holder := p.holder()
		if wanted(holder) {
			return holder, nil
		}
		select {
		case <-changed:
		case <-deadline.C:
			return "", fmt.Errorf("after %v the Lease's holder is %q", patience, holder)
		}
	}
}

// story tells who held the Lease.
func (p *replicas) story(begin time.Time) string {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	var lines strings.Builder
	for _, one := range p.leases {
		fmt.Fprintf(&lines, "%8.3f s  Lease: %q\n", one.at.Sub(begin).Seconds(), one.holder)
	}
	return lines.String()
}

// writes are what the replicas asked the API server to store of a case.
type writes struct {
	begin time.Time

	mutex      sync.Mutex
	musters    authors
	schedulers authors
	binders    authors // the musters again, but for bindings only
	story      strings.Builder
}

// authors tell by token on which host a write was made, and remember the order,
// without repetitions in a row.
type authors struct {
	hosts map[string]string
	order []string
}

// saw returns the host, or "" if the token is none of these.
func (a *authors) saw(credential string) string {
	host, known := a.hosts[credential]
	if known && (len(a.order) == 0 || a.order[len(a.order)-1] != host) {
		a.order = append(a.order, host)
	}
	return host
}

func (c *Case) recordWrites(by ...*plane.Replica) *writes {
	c.Helper()
	musters, schedulers := map[string]string{}, map[string]string{}
	for _, replica := range by {
		musters[replica.MusterCredential] = replica.Host
		schedulers[replica.SchedulerCredential] = replica.Host
	}
	w := &writes{begin: c.Begin, musters: authors{hosts: musters}, schedulers: authors{hosts: schedulers}, binders: authors{hosts: musters}}
	everything := func(scope registrationv1.ScopeType, resources ...string) []registrationv1.RuleWithOperations {
		return []registrationv1.RuleWithOperations{{
			Operations: []registrationv1.OperationType{registrationv1.OperationAll},
			Rule:       registrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: resources, Scope: &scope},
		}}
	}
	c.reviewWrites(w.saw,
		registrationv1.ValidatingWebhook{
			Name:              "namespaced.tests.muster.dev",
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: c.Namespace}},
			Rules:             everything(registrationv1.NamespacedScope, "*/*"),
		},
		registrationv1.ValidatingWebhook{
			Name:           "nodes.tests.muster.dev",
			ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{caseLabel: c.Namespace}},
			Rules:          everything(registrationv1.ClusterScope, "nodes", "nodes/*"),
		})
	c.Cleanup(func() {
		w.mutex.Lock()
		defer w.mutex.Unlock()
		if c.Failed() {
			c.Logf("writes of the musters (first column) and kube-schedulers:\n%s", w.story.String())
		}
	})
	return w
}

func (w *writes) saw(_ context.Context, request *admissionv1.AdmissionRequest) bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, credential := range request.UserInfo.Extra["authentication.kubernetes.io/credential-id"] {
		muster, scheduler := w.musters.saw(credential), w.schedulers.saw(credential)
		if request.SubResource == "binding" {
			w.binders.saw(credential)
		}
		fmt.Fprintf(&w.story, "%8.3f s  %-5s %-5s %s %s/%s %s\n", time.Since(w.begin).Seconds(), muster, scheduler,
			request.Operation, request.Resource.Resource, request.SubResource, request.Name)
	}
	return true
}

// check compares which musters wrote so far, one after the other, with the
// leaders. One that wrote after it had lost the lead stands there once more.
func (w *writes) check(t *testing.T, leaders ...string) {
	t.Helper()
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if !slices.Equal(w.musters.order, leaders) {
		t.Errorf("the musters on %v wrote, one after the other, want %v", w.musters.order, leaders)
	}
}

// checkSchedulers does the same for the kube-schedulers, which prove that the
// musters' leaders are theirs. A leading one may have had nothing to write yet.
func (w *writes) checkSchedulers(t *testing.T, leaders ...string) {
	t.Helper()
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if !slices.Equal(w.schedulers.order, slices.DeleteFunc(slices.Clone(leaders), func(host string) bool {
		return !slices.Contains(w.schedulers.order, host)
	})) {
		t.Errorf("the kube-schedulers on %v wrote, one after the other, want %v", w.schedulers.order, leaders)
	}
}

// checkBound makes sure that nobody else asked for a binding.
func (w *writes) checkBound(t *testing.T, by string) {
	t.Helper()
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if !slices.Equal(w.binders.order, []string{by}) {
		t.Errorf("the musters on %v asked for bindings, want %s alone", w.binders.order, by)
	}
}
