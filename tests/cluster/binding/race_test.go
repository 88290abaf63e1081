package main

import (
	"bytes"
	"encoding/xml"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/tests/cluster/plane"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func after(seconds float64) time.Time {
	return noon.Add(time.Duration(seconds * float64(time.Second)))
}

// Two gangs of two: the first one's members come at 1 and 2 s, the second one's at 3 and 4 s.
func someRace(mode string, bindings map[string]time.Time) result {
	return result{
		row: standalone, load: eachWithNodes(2, 2), mode: mode, began: after(5),
		pods: []created{
			{0, "gang-0-0", "", after(1)}, {0, "gang-0-1", "", after(2)}, {1, "gang-1-0", "", after(3)}, {1, "gang-1-1", "", after(4)},
		},
		bindings: bindings,
		bound:    map[int]int{0: 2, 1: 2},
	}
}

func TestTheClocksOfARace(t *testing.T) {
	bindings := map[string]time.Time{
		"gang-0-0": after(5.5), "gang-0-1": after(6), "gang-1-0": after(6.5), "gang-1-1": after(9),
	}
	f := figuresOf(someRace(draining, bindings), nil)
	if f.Seconds != 4 || f.Rate != 0.86 || f.First != 0.5 || f.GangP50 != 4 || f.GangP99 != 4 {
		t.Errorf("draining counts from the scheduler's start, its rate from the first binding: %+v", f)
	}
	if f.Creating != 3 || f.Spread != 3.5 || f.Parts != 2.5 || f.Bound != 4 {
		t.Errorf("what is bound when: %+v", f)
	}
	f = figuresOf(someRace(creating, bindings), nil)
	// Gang 0 is whole at 2 s and bound at 6 s, gang 1 at 4 s and 9 s.
	if f.Seconds != 8 || f.Rate != 0.5 || f.First != 3.5 || f.GangP50 != 5 {
		t.Errorf("creating counts from the first pod, and of a gang from its last one: %+v", f)
	}
}

func TestARaceThatDidNotEnd(t *testing.T) {
	r := someRace(draining, map[string]time.Time{"gang-0-0": after(6), "gang-0-1": after(6), "gang-1-0": after(7)})
	r.bound = map[int]int{0: 2, 1: 1}
	if f := figuresOf(r, nil); f.Whole != 1 || f.Partial != 1 || f.Bound != 3 || f.Rate != 2 {
		t.Errorf("one gang stands in parts: %+v", f)
	}
	if f := figuresOf(someRace(draining, nil), nil); f.Bound != 0 || f.Rate != 0 {
		t.Errorf("nothing was bound: %+v", f)
	}
}

func TestWritesAreCountedForEachGang(t *testing.T) {
	r := someRace(draining, nil)
	r.cpu = map[string]time.Duration{"muster": 1500 * time.Millisecond, "kube-apiserver": 2 * time.Second, "etcd": time.Second}
	r.memory = map[string]int64{"muster": 40 << 20, "etcd": 1 << 30}
	r.requests = []plane.Request{
		{Resource: "pods/binding", Code: 201}, {Resource: "pods/binding", Code: 201}, {Resource: "pods/binding", Code: 409},
		{Resource: "events", Code: 201},
	}
	f := figuresOf(r, []string{"muster"})
	if f.Writes["pods/binding"] != 1.5 || f.Writes["events"] != 0.5 || f.Refused != 1 {
		t.Errorf("writes %v, %d refused", f.Writes, f.Refused)
	}
	if f.CPU != 1.5 || f.ServerCPU != 2 || f.Memory != 40 {
		t.Errorf("only its own programs count: %+v", f)
	}
	if got, want := describeWrites(f), " pods/binding 1.50 events 0.50"; got != want {
		t.Errorf("described as %q, want %q", got, want)
	}
}

func TestWhatStandsInTheEnd(t *testing.T) {
	pod := func(namespace, gang, node string) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: map[string]string{podGroupLabel: gang}},
			Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{gpu: resource.MustParse("8")}},
			}}},
		}
	}
	bound, over := standing([]corev1.Pod{
		pod("race", "gang-0", "a"), pod("race", "gang-0", "b"), pod("race", "gang-1", ""), pod("race", "gang-1", "a"),
		pod("other", "gang-1", "c"),
	}, "race")
	if bound[0] != 2 || bound[1] != 1 || over != 1 {
		t.Errorf("bound %v, %d nodes overcommitted; want 2 and 1 members, and node a", bound, over)
	}
}

func TestBoundsAreOfTheBestOfTheirRaces(t *testing.T) {
	big, small := eachWithNodes(1, 2000), eachWithNodes(667, 3)
	all := []figures{
		{Row: raw, Load: big.String(), Mode: draining, Pods: 2000, Rate: 800, Spread: 2},
		{Row: raw, Load: big.String(), Mode: draining, Pods: 2000, Rate: 1000, Spread: 2.5},
		{Row: standalone, Load: big.String(), Mode: draining, Pods: 2000, Rate: 850, Spread: 3, Memory: 40},
		{Row: schedulerPlugins, Load: big.String(), Mode: draining, Pods: 2000, Rate: 200, Memory: 100},
	}
	met := map[string]bool{}
	for _, b := range boundsOf(all, []load{big, small}) {
		met[b.what] = b.met()
	}
	for what, want := range map[string]bool{
		"1 x 2000: standalone, of its raw limit, draining":        true,
		"1 x 2000: standalone, spread, of the raw one":            true,
		"1 x 2000: standalone, memory, of scheduler-plugins'":     true,
		"1 x 2000: standalone, times scheduler-plugins, draining": false,
	} {
		if got, said := met[what]; !said || got != want {
			t.Errorf("%q: said %v, met %v, want met %v", what, said, got, want)
		}
	}
	if len(met) != 4 {
		t.Errorf("of what wasn't raced nothing is said: %v", met)
	}
	var out bytes.Buffer
	if err := printTable(&out, all, []string{raw, standalone}, []load{big}); err != nil || !strings.Contains(out.String(), "4.25") {
		t.Errorf("the table doesn't say that it is 4.25 times the peer's: %v\n%s", err, out.String())
	}
}

func TestContentionIsForTwiceTheCluster(t *testing.T) {
	for _, mixed := range []bool{false, true} {
		loads := contentions(100, 10, mixed)
		if got, want := loads[0].String(), "10 x 160 for room of 5"; got != want || len(loads) != 11 {
			t.Fatalf("the first of %d is %q, want %q of 11", len(loads), got, want)
		}
		if first := loads[0].order[:10]; !slices.Equal(first, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
			t.Errorf("the gangs come one after the other: %v", first)
		}
		if !slices.Equal(loads[3].order, contentions(100, 3, mixed)[3].order) {
			t.Error("a seed doesn't always draw the same")
		}
		for _, l := range loads {
			members := make([]int, len(l.sizes))
			for _, gang := range l.order {
				members[gang]++
			}
			if asked := int64(l.pods()) * l.gpus; !slices.Equal(members, l.sizes) || asked < 1600 || asked > 1800 {
				t.Errorf("%v: %d GPUs for gangs of %v, created %v", l, asked, l.sizes, members)
			}
			if same := slices.Max(l.sizes) == slices.Min(l.sizes); same == mixed && l.name != loads[0].name {
				t.Errorf("%v: gangs of %v", l, l.sizes)
			}
		}
	}
}

func TestContentionIsSettledWhenNoGangCanBecomeWhole(t *testing.T) {
	l := load{sizes: []int{3, 5, 2}, gpus: 1}
	for _, test := range []struct {
		bound   map[int]int
		gpus    int64
		fitting int
	}{
		{nil, 8, 3},
		{map[int]int{0: 3, 1: 5}, 8, 0},
		{map[int]int{0: 3, 1: 5}, 10, 1},
		{map[int]int{0: 3, 1: 4}, 8, 1},
		{map[int]int{0: 2, 1: 3, 2: 1}, 6, 0}, // each in parts
		{map[int]int{0: 3, 1: 5, 2: 2}, 100, 0},
	} {
		if got := l.fitting(test.bound, test.gpus); got != test.fitting {
			t.Errorf("%v of %v on %d: %d fit, want %d", test.bound, l.sizes, test.gpus, got, test.fitting)
		}
	}
}

func TestMusterMakesNotFewerGangsWholeThanAnyPeer(t *testing.T) {
	loads := contentions(100, 2, false)
	all := []figures{
		{Row: standalone, Load: loads[0].String(), Mode: contending, Whole: 5},
		{Row: standalone, Load: loads[1].String(), Mode: contending, Whole: 7},
		{Row: standalone, Load: loads[2].String(), Mode: contending, Whole: 6},
		{Row: extender, Load: loads[0].String(), Mode: contending, Whole: 4},
		{Row: native, Load: loads[1].String(), Mode: contending, Whole: 7},
		{Row: schedulerPlugins, Load: loads[2].String(), Mode: contending, Whole: 7},
	}
	var met []bool
	for _, b := range contentionBounds(all, loads, false) {
		met = append(met, b.met())
	}
	if mixed := contentionBounds(all, loads, true); len(mixed) != 2 {
		t.Errorf("of mixed sizes only the first load is bounded: %v", mixed)
	}
	// Standalone and extender of the first load, standalone of the others.
	if want := []bool{true, false, true, false}; !slices.Equal(met, want) {
		t.Errorf("met %v, want %v", met, want)
	}
}

func TestThePlotIsAnImage(t *testing.T) {
	r := someRace(draining, map[string]time.Time{"gang-0-0": after(5.5), "gang-0-1": after(6)})
	drawn := plot([]figures{figuresOf(r, nil)}, []string{standalone, raw}, []load{r.load})
	lines := 0
	for decoder := xml.NewDecoder(bytes.NewReader(drawn)); ; {
		token, err := decoder.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, drawn)
		}
		if start, is := token.(xml.StartElement); is && start.Name.Local == "polyline" {
			lines++
		}
	}
	if lines != 1 {
		t.Errorf("%d curves, want that of the one race", lines)
	}
}
