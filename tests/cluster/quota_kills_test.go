package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

// Quota is exact whenever Muster ends or hangs between two writes of an admission, an eviction, a second
// admission and an end, of each form of gang (quota_story_test.go).

// everyWrite: none is ever held.
const everyWrite = 1 << 20

// gap lies between two writes that follow each other.
type gap struct {
	shape shape
	after int // so many writes
	class string
}

// gaps has each form live once undisturbed and returns between which writes that could end, in an order
// in which all that differ come before any that is like one before.
func gaps(t *testing.T, random *rand.Rand, forms []shape) []gap {
	t.Helper()
	classes := map[string][]gap{}
	for _, form := range forms {
		t.Run("undisturbed, "+form.name, func(t *testing.T) {
			c := newGangCase(t, "exact")
			l := c.lock(everyWrite, nil)
			c.newStory(form, l).run()
			c.checkExactThroughout(storyQuota)
			for i, one := range l.all()[1:] {
				class := fmt.Sprintf("%s, %s: %s | %s", form.name, one.step, l.all()[i], one)
				classes[class] = append(classes[class], gap{form, i + 1, class})
			}
			t.Logf("%d writes", len(l.all()))
		})
	}
	names := slices.Sorted(maps.Keys(classes))
	random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	var order []gap
	for depth := 0; ; depth++ {
		before := len(order)
		for _, name := range names {
			if depth < len(classes[name]) {
				order = append(order, classes[name][depth])
			}
		}
		if len(order) == before {
			t.Logf("%d gaps between two writes, of %d kinds", len(order), len(names))
			return order
		}
	}
}

// drawn are all forms of gang, or one.
func drawn(random *rand.Rand) []shape {
	forms := slices.Clone(shapes)
	random.Shuffle(len(forms), func(i, j int) { forms[i], forms[j] = forms[j], forms[i] })
	return forms[:pick(1, len(forms))]
}

func TestExactQuotaAfterAKillBetweenAnyTwoWrites(t *testing.T) {
	random, seed := randomSource(t)
	defineStoryKinds(t)
	order := gaps(t, random, drawn(random))
	if t.Failed() {
		return
	}
	met, kills := map[string]int{}, 0
	for round := 0; kills < pick(2, 50) && round < 2*pick(2, 50); round++ {
		one := order[round%len(order)]
		t.Run(fmt.Sprintf("round %d: %s after %d writes", round+1, one.shape.name, one.after), func(t *testing.T) {
			c := newGangCase(t, "kill")
			l := c.lock(one.after, nil)
			s := c.newStory(one.shape, l)
			pause := time.Duration(random.Int64N(int64(time.Second)))
			await := beside(func(ended context.Context) error { return s.killWhenFull(ended, pause, seed) })
			defer await()
			s.run()
			c.must(await())
			c.checkExactThroughout(storyQuota)
			if last, held := l.around(); len(held) > 0 {
				met[fmt.Sprintf("%s, %s: %s | %s", one.shape.name, held[0].step, last, held[0])]++
				kills++
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("seed %d: killed %d times, between two writes of %d kinds:\n%s", seed, kills, len(met),
		strings.Join(slices.Sorted(maps.Keys(met)), "\n"))
}

// beside runs what is to happen meanwhile, and returns what tells it that all is over and waits for it.
func beside(what func(ended context.Context) error) (await func() error) {
	ended, end := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- what(ended) }()
	return sync.OnceValue(func() error {
		end()
		return <-done
	})
}

// killWhenFull kills Muster once a write waits behind those that may pass, starts it again, and sees
// that it counts what there is.
func (s *story) killWhenFull(ended context.Context, pause time.Duration, seed uint64) error {
	select {
	case <-s.lock.full:
	case <-ended.Done():
		s.Logf("there were only %d writes", len(s.lock.all()))
		return nil
	}
	time.Sleep(settles)
	shared.Muster.Kill()
	s.lock.open(true)
	last, held := s.lock.around()
	s.Logf("seed %d: killed in %s after %q, before %q", seed, held[0].step, last, held)
	time.Sleep(pause)
	return errors.Join(shared.Muster.Start(plane.Launch{}), s.checkRecount(storyQuota))
}

// What has passed is stored by then.
const settles = 150 * time.Millisecond

// defineStoryKinds makes the kinds that the stories need for as long as the test lasts: Muster looks for
// new ones every ten seconds.
func defineStoryKinds(t *testing.T) {
	t.Helper()
	installQueues(t)
	newCase(t, "kinds").defineJobSets()
}

// A leader that hangs between what it has decided and its write finds, when it goes on, that another one
// has decided something else. Nothing that it writes then may count.
func TestExactQuotaAfterAnOldLeadersLateWrite(t *testing.T) {
	random, seed := randomSource(t)
	defineStoryKinds(t)
	order := gaps(t, random, drawn(random))
	if t.Failed() {
		return
	}
	pair := startReplicas(t, "east", "west")
	answers := map[string]int{}
	for round := range pick(1, 50) {
		one := order[round%len(order)]
		t.Run(fmt.Sprintf("round %d: %s after %d writes", round+1, one.shape.name, one.after), func(t *testing.T) {
			leader, _ := pair.awaitLeader(t)
			c := pair.newCase(t, leader)
			late := &lateWrite{
				story: c.newStory(one.shape, c.lock(one.after, madeBy(leader))),
				pair:  pair, leader: leader, answers: answers, thawFirst: random.IntN(4) == 0,
			}
			// Where none is held the leader stops by itself, before it has sent what it decided.
			late.lock.onlyTells = random.IntN(3) == 0
			late.present.Store(leader)
			c.leader = func() *plane.Muster { return late.present.Load().Muster }
			moment := time.Duration(random.Int64N(int64(20 * time.Millisecond)))
			await := beside(func(ended context.Context) error { return late.hang(ended, seed, moment) })
			defer await()
			late.run()
			c.must(await())
			c.checkExactThroughout(storyQuota)
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("seed %d: how the API server answered what old leaders wrote late: %v", seed, answers)
}

// madeBy tells the writes of one replica's Muster.
func madeBy(replica *plane.Replica) func(*admissionv1.AdmissionRequest) bool {
	return func(request *admissionv1.AdmissionRequest) bool {
		return slices.Contains(request.UserInfo.Extra["authentication.kubernetes.io/credential-id"], replica.MusterCredential)
	}
}

// lateWrite is a story in which a leader hangs.
type lateWrite struct {
	*story
	pair    *replicas
	leader  *plane.Replica
	present atomic.Pointer[plane.Replica] // who is asked
	// It goes on before what is held does.
	thawFirst bool
	answers   map[string]int
}

// hang stops the leader, has the next one decide something else, and lets the former go on.
func (l *lateWrite) hang(ended context.Context, seed uint64, moment time.Duration) error {
	select {
	case <-l.lock.full:
	case <-ended.Done():
		l.Logf("there were only %d writes", len(l.lock.all()))
		return nil
	}
	l.turn.Lock()
	defer l.turn.Unlock()
	if l.lock.onlyTells {
		time.Sleep(moment)
	} else {
		time.Sleep(settles)
	}
	before, stopped := l.pair.holder(), time.Now()
	if err := l.leader.Freeze(); err != nil {
		return err
	}
	thaw := sync.OnceValue(l.leader.Thaw)
	defer thaw()
	last, held := l.lock.around()
	step := l.lock.present()
	l.Logf("seed %d: %s hangs in %s after %q, before %q", seed, l.leader.Host, step, last, held)
	holder, err := l.pair.awaitHolder(leaseRunsOut, func(holder string) bool { return holder != "" && holder != before })
	if err != nil {
		return err
	}
	next := l.pair.of(holder)
	if err := awaitLeads(next, leaseRunsOut); err != nil {
		return err
	}
	l.present.Store(next)
	undo, err := l.decideOtherwise(step)
	if err != nil {
		return err
	}
	released := time.Now()
	if l.thawFirst {
		err = thaw()
		time.Sleep(settles)
	}
	l.lock.open(false)
	time.Sleep(settles)
	err = errors.Join(err, thaw())
	// It writes what it was about to, and learns that it doesn't lead.
	time.Sleep(2 * time.Second)
	err = errors.Join(err, l.checkRecount(storyQuota))
	l.noteAnswers(stopped, released)
	undo()
	return err
}

// decideOtherwise lets the next leader decide about who asks for as much and goes first, and about a
// itself: evicted where it was being admitted, wanted again where it was being evicted.
func (l *lateWrite) decideOtherwise(step string) (undo func(), err error) {
	if err := l.createJobOf("urgent", l.PriorityClass(1000)); err != nil {
		return nil, err
	}
	// A pod that is evicted is made anew, and would stand behind b, who had come already.
	behind := l.shape.goesWithPods && l.other != nil
	l.setActive(step == "eviction" || step == "end" || behind)
	// Whether it is its turn depends on what the former has done.
	_ = shared.Timeline.Await(5*time.Second, func(state *timeline.State) string {
		if l.account(state.Workloads, state.Pods).hold["urgent"].String() == "{}" {
			return "it waits"
		}
		return ""
	})
	shared.Timeline.Look(func(state *timeline.State) {
		l.Logf("decided otherwise: %v", l.account(state.Workloads, state.Pods).hold)
	})
	return func() {
		l.removeJobOf("urgent")
		l.setActive(step != "eviction")
	}, nil
}

// noteAnswers counts how what the former leader had sent before it hung, or sent when it went on, was
// answered.
func (l *lateWrite) noteAnswers(stopped, released time.Time) {
	requests, err := shared.Requests(stopped.Add(-time.Minute), time.Now())
	if err != nil {
		l.Error(err)
	}
	for _, one := range requests {
		if one.Credential != l.leader.MusterCredential || !one.Writes() || !one.Answered.After(released) {
			continue
		}
		if !strings.HasPrefix(one.Object, l.Namespace+"/") || slices.Contains(reports, one.Resource) {
			continue
		}
		answer := fmt.Sprintf("%s %s: %d", one.Verb, one.Resource, one.Code)
		l.Logf("late: %s of %s", answer, one.Object)
		l.answers[answer]++
	}
}
