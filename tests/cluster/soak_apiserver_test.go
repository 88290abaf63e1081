package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

// soak is what this run is a soak of, if it is one: `./run soak NAME`.
var soak = os.Getenv("MUSTER_SOAK")

const (
	// So long after a fault that lasts Muster may call itself ready still, and so long after its end
	// not yet.
	unreadyWithin = 45 * time.Second
	readyWithin   = 15 * time.Second
	// So long after its end the API server may not answer yet: it asks an etcd that was away less and
	// less often, at last every two minutes (the default of google.golang.org/grpc/backoff).
	returns = 3 * time.Minute
	// So long after its launch kwok's Node may come on a busy machine.
	nodeComesWithin = 20 * time.Second
	// What all rounds may take together: the control plane's start is part of the soak's 45 minutes.
	soakLimit = 43 * time.Minute
)

// outage is a way in which Muster loses the API server.
type outage struct {
	name       string
	begin, end func(*plane.Line) error
	// The API server can be written to meanwhile.
	serves bool
}

var outages = []outage{
	freezing("the API server is frozen", plane.APIServer),
	freezing("etcd is frozen", plane.Etcd),
	freezing("API server and etcd are frozen", plane.APIServer, plane.Etcd),
	killing("the API server is killed", plane.APIServer),
	killing("etcd is killed", plane.Etcd),
	{
		name:   "muster is cut off",
		begin:  func(line *plane.Line) error { line.Cut(); return nil },
		end:    func(line *plane.Line) error { line.Mend(); return nil },
		serves: true,
	},
}

func freezing(name string, programs ...string) outage {
	return outage{
		name:  name,
		begin: func(*plane.Line) error { return shared.Freeze(programs...) },
		end:   func(*plane.Line) error { return shared.Thaw(programs...) },
	}
}

func killing(name string, programs ...string) outage {
	return outage{
		name:  name,
		begin: func(*plane.Line) error { return shared.Crash(programs...) },
		end:   func(*plane.Line) error { return shared.Restart(programs...) },
	}
}

// At a random moment of one gang's provisioning and another's commit the API server or its store
// hangs, ends, or is out of reach, for 5 to 60 s. Muster says that it isn't ready, and that it is
// again; both gangs end whole, a gang that was deleted is told no longer, and no node stays held.
// In a soak there are five rounds of each outage, else one.
func TestSoakApiServerOutagesLeaveGangsWhole(t *testing.T) {
	shared.Timeline.BridgeGaps()
	line, err := shared.NewLine()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(line.Close)
	replica := soakedReplica(t, line)
	random, seed := randomSource(t)
	t.Logf("seed %d", seed)

	rounds := 1
	if soak == "apiserver" {
		rounds = 5
	}
	begin := time.Now()
	for round := range rounds {
		for i, what := range outages {
			if time.Since(begin) > soakLimit-4*time.Minute {
				t.Fatalf("no time is left for round %d of %q after %v", round+1, what.name, time.Since(begin).Round(time.Second))
			}
			// Drawn here, so that a round is the same whatever came before it.
			s := soakRound{outage: what, line: line, replica: replica, lasts: drawOutage(random, (round+i)%3 == 0), moment: drawMoment(random)}
			t.Run(fmt.Sprintf("%s for %v, round %d", what.name, s.lasts, round+1), s.run)
			if err := shared.AwaitAPIServer(returns); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// soakedReplica puts a replica in the place of the one that other cases share: its kube-scheduler
// ends when it can't renew its Lease, and comes back as in a pod.
func soakedReplica(t *testing.T, line *plane.Line) *plane.Replica {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(shared.StandAside())
	replica, err := shared.NewReplica("soaked")
	must(err)
	must(replica.ConnectThrough(line))
	t.Cleanup(func() {
		line.Mend()
		if err := errors.Join(shared.Retire(replica), shared.StandIn()); err != nil {
			t.Error(err)
		}
	})
	must(replica.Start())
	must(replica.Muster.AwaitReady(time.Minute))
	must(awaitLeads(replica, time.Minute))
	return replica
}

// A long one lasts longer than Muster may call itself ready.
func drawOutage(random *rand.Rand, long bool) time.Duration {
	if long {
		return time.Duration(48+random.IntN(13)) * time.Second
	}
	return time.Duration(5+random.IntN(16)) * time.Second
}

// moment is when the outage begins: so long after the gang that needs new nodes came, and so long
// after the one whose nodes are there did, or when its gates are lifted, or its first binding is
// stored.
type moment struct {
	provisioning time.Duration
	commit       time.Duration
	at           func(*corev1.Pod) bool
	of           string
}

func drawMoment(random *rand.Rand) moment {
	m := moment{provisioning: time.Duration(random.Int64N(int64(9 * time.Second))).Round(time.Millisecond)}
	switch random.IntN(3) {
	case 0:
		m.commit = time.Duration(random.Int64N(int64(500 * time.Millisecond))).Round(time.Millisecond)
	case 1:
		m.at, m.of = func(pod *corev1.Pod) bool { return !gated(pod) }, "the first gate is lifted"
	case 2:
		m.at, m.of = bound, "the first binding is stored"
	}
	return m
}

type soakRound struct {
	outage  outage
	line    *plane.Line
	replica *plane.Replica
	lasts   time.Duration
	moment  moment
}

func (s *soakRound) run(t *testing.T) {
	buying, standing := s.newCase(t, "buying"), s.newCase(t, "standing")
	for i, delay := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 7 * time.Second} {
		buying.NodePool(fmt.Sprint(i), 1, 1, delay)
	}
	standing.Nodes(4, 1)
	deleted := standing.Gang("deleted", 2, 8)
	deleted.AwaitAnswer(20*time.Second, func(answer map[string]any) string {
		if answer["state"] == nil {
			return "it has no state"
		}
		return ""
	})
	train := buying.Gang("train", 4, 1)
	time.Sleep(s.moment.provisioning)
	local := standing.Gang("local", 4, 1)
	if !s.outage.serves {
		deleted.deleteWhole()
	}
	s.awaitMoment(local)

	readiness := followReadiness(s.replica.Muster)
	t.Logf("begins %v after the gang that needs nodes came, %v after the other (%s): %s; %s",
		time.Since(train.Created).Round(time.Millisecond), time.Since(local.Created).Round(time.Millisecond), s.moment.of, train.progress(), local.progress())
	began := time.Now()
	if err := s.outage.begin(s.line); err != nil {
		t.Fatal(err)
	}
	if s.outage.serves {
		deleted.deleteWhole()
	}
	time.Sleep(s.lasts - time.Since(began))
	if err := s.outage.end(s.line); err != nil {
		t.Fatal(err)
	}
	ended := time.Now()
	if err := shared.AwaitAPIServer(returns); err != nil {
		t.Fatal(err)
	}
	recovered := time.Now()
	revived, err := shared.Revive()
	buying.must(err)
	if len(revived) > 0 {
		t.Logf("started again, having ended meanwhile: %s", strings.Join(revived, ", "))
	}
	s.checkReadiness(t, readiness, began, ended, recovered)
	s.checkOutcome(t, recovered, train, local, deleted)
}

func (s *soakRound) newCase(t *testing.T, name string) *Case {
	c := newCase(t, "soak-"+name)
	c.leader = func() *plane.Muster { return s.replica.Muster }
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.replica.Logs())
		}
	})
	return c
}

// deleteWhole deletes the gang with its PodGroup.
func (g *Gang) deleteWhole() {
	g.Helper()
	g.Delete()
	err := shared.Dynamic.Resource(timeline.PodGroups).Namespace(g.Namespace).Delete(g.Context(), g.Name, metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		g.must(err)
	}
}

func (s *soakRound) awaitMoment(local *Gang) {
	if s.moment.at == nil {
		time.Sleep(s.moment.commit)
		s.moment.of = "a time"
		return
	}
	local.must(shared.Timeline.Await(20*time.Second, func(state *timeline.State) string {
		if countPods(local.pods(state), s.moment.at) == 0 {
			return "not yet: " + s.moment.of
		}
		return ""
	}))
}

// readiness is what /readyz answered, each time the answer was another one.
type readiness struct {
	cancel  context.CancelFunc
	done    chan struct{}
	changes []readinessChange
}

type readinessChange struct {
	at    time.Time
	ready bool
	says  string
}

func followReadiness(muster *plane.Muster) *readiness {
	ctx, cancel := context.WithCancel(context.Background())
	r := &readiness{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		for ctx.Err() == nil {
			code, body := get(muster.Address + "/readyz")
			if ready := code == http.StatusOK; len(r.changes) == 0 || r.changes[len(r.changes)-1].ready != ready {
				r.changes = append(r.changes, readinessChange{time.Now(), ready, fmt.Sprintf("%d %s", code, strings.TrimSpace(body))})
			}
			time.Sleep(100 * time.Millisecond)
		}
	}()
	return r
}

// stop ends the record.
func (r *readiness) stop() []readinessChange {
	r.cancel()
	<-r.done
	return r.changes
}

// awaitReadyForASecond waits until Muster is ready and stays so: a short outage may be noticed only
// once it is over.
func (s *soakRound) awaitReadyForASecond(deadline time.Time) error {
	for {
		if err := s.replica.Muster.AwaitReady(time.Until(deadline)); err != nil {
			return err
		}
		time.Sleep(time.Second)
		if code, _ := get(s.replica.Muster.Address + "/readyz"); code == http.StatusOK {
			return nil
		}
	}
}

// checkReadiness waits until Muster is ready again, and judges when it wasn't.
func (s *soakRound) checkReadiness(t *testing.T, r *readiness, began, ended, recovered time.Time) {
	t.Helper()
	late := s.awaitReadyForASecond(recovered.Add(readyWithin))
	if late != nil {
		t.Errorf("%v after the API server answers again: %v", readyWithin, late)
		if err := s.replica.Muster.AwaitReady(2 * time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	changes := r.stop()
	var story strings.Builder
	for _, change := range changes {
		fmt.Fprintf(&story, "\n%8.3f s  %s", change.at.Sub(began).Seconds(), change.says)
	}
	t.Logf("the outage took %v, the API server answered after %v; /readyz from its beginning on:%s",
		ended.Sub(began).Round(time.Millisecond), recovered.Sub(began).Round(time.Millisecond), story.String())
	if !changes[len(changes)-1].ready {
		t.Error("muster was ready again and isn't any more")
	}
	i := slices.IndexFunc(changes, func(change readinessChange) bool { return !change.ready })
	switch {
	case ended.Sub(began) < unreadyWithin+time.Second: // it needn't have noticed
	case i < 0:
		t.Errorf("muster called itself ready all through an outage of %v", s.lasts)
	case changes[i].at.Sub(began) > unreadyWithin:
		t.Errorf("muster called itself ready for %v of an outage, want at most %v", changes[i].at.Sub(began).Round(time.Millisecond), unreadyWithin)
	}
}

// checkOutcome waits until both gangs are whole, and judges what is left behind.
func (s *soakRound) checkOutcome(t *testing.T, recovered time.Time, train, local, deleted *Gang) {
	t.Helper()
	// Only a leader tells of gangs. Which is when the kube-scheduler beside it has the Lease again: one
	// that ended meanwhile pauses for up to 30 s, as client-go does, before it reads anew what it watches.
	if err := awaitLeads(s.replica, 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	awaitNoGang(t, s.replica.Muster, deleted.Namespace, 15*time.Second, deleted.Name)
	local.AwaitBound(time.Minute)
	train.replaceLostClaims(3 * time.Minute)
	train.AwaitBound(time.Second)
	whole := func(g *Gang) time.Duration {
		moments := g.Moments(bound)
		return moments[len(moments)-1].At.Sub(recovered).Round(time.Millisecond)
	}
	t.Logf("after the API server answered they were whole within %v (bought nodes) and %v (those that were there)", whole(train), whole(local))
	for _, g := range []*Gang{train, local} {
		g.AwaitAnswer(15*time.Second, func(answer map[string]any) string {
			if answer["state"] != "BOUND" {
				return fmt.Sprintf("it is bound whole, and told to be %v", answer["state"])
			}
			return ""
		})
		g.AwaitHoldsGone(20 * time.Second)
	}
	for _, g := range []*Gang{train, local} {
		g.deleteWhole()
		awaitNoGang(t, s.replica.Muster, g.Namespace, 15*time.Second)
	}
}

// replaceLostClaims deletes NodeClaims whose Nodes don't come, as Karpenter would 15 minutes after their
// launch: its kwok provider makes a Node once, and one that the API server wasn't there for is lost.
// Until the gang is bound, for that long at most.
func (g *Gang) replaceLostClaims(patience time.Duration) {
	g.Helper()
	launched := map[string]time.Time{} // since when it was seen to be
	replaced := map[string]bool{}
	whole := false
	for deadline := time.Now().Add(patience); !whole && time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		var lost []string
		shared.Timeline.Look(func(state *timeline.State) {
			whole = countPods(g.pods(state), bound) == len(g.Members)
			for _, claim := range state.NodeClaims {
				name := claim.GetName()
				node, _, _ := unstructured.NestedString(claim.Object, "status", "nodeName")
				if !g.mine(claim) || state.Nodes[node] != nil || conditions(claim)["Launched"] != "True" {
					continue
				}
				if launched[name].IsZero() {
					launched[name] = time.Now()
				}
				if time.Since(launched[name]) > nodeComesWithin && !replaced[name] {
					lost = append(lost, name)
				}
			}
		})
		for _, name := range lost {
			replaced[name] = true
			g.Logf("the Node of NodeClaim %s is lost; it is deleted", name)
			err := shared.Dynamic.Resource(timeline.NodeClaims).Delete(g.Context(), name, metav1.DeleteOptions{})
			if !apierrors.IsNotFound(err) {
				g.must(err)
			}
		}
	}
}

// awaitNoGang waits until Muster tells of none of these gangs, or of no gang of the namespace at all.
func awaitNoGang(t *testing.T, muster *plane.Muster, namespace string, patience time.Duration, names ...string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		answer, err := muster.Get("/v1/gangs?namespace=" + namespace)
		var phantoms []string
		if err == nil {
			gangs, _ := answer["gangs"].([]any)
			for _, one := range gangs {
				gang, _ := one.(map[string]any)
				if name := fmt.Sprint(gang["name"]); len(names) == 0 || slices.Contains(names, name) {
					phantoms = append(phantoms, fmt.Sprintf("%s (%v)", name, gang["state"]))
				}
			}
			if len(phantoms) == 0 {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Errorf("%v after they were gone muster tells of gangs %v in %s (%v)", patience, phantoms, namespace, err)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}
