package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// The oracle must ask Kueue the right question. These cases are small enough
// that a reader knows the answer without Kueue.

const times = `"createdAt":"2026-01-01T00:00:00Z"`

// ask gives the oracle one line and decodes what it says.
func ask(t *testing.T, line string) Answer {
	t.Helper()
	var out bytes.Buffer
	if err := converse(strings.NewReader(line+"\n"), &out, answerCase); err != nil {
		t.Fatal(err)
	}
	var a Answer
	if err := json.Unmarshal(out.Bytes(), &a); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	return a
}

// queue is a ClusterQueue with cpu of some flavors: "f1=4,f2=2".
func queue(name, cohort, quotas, rest string) string {
	var flavors []string
	for _, quota := range strings.Split(quotas, ",") {
		flavor, amount, _ := strings.Cut(quota, "=")
		flavors = append(flavors, fmt.Sprintf(`{"name":%q,"resources":[{"name":"cpu","nominalQuota":%q}]}`, flavor, amount))
	}
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"cohortName":%q,"namespaceSelector":{},
		"resourceGroups":[{"coveredResources":["cpu"],"flavors":[%s]}]%s}}`, name, cohort, strings.Join(flavors, ","), rest)
}

func pending(uid, queue string, priority, cpu int, podSpec string) string {
	return fmt.Sprintf(`{"uid":%q,"name":%[1]q,"clusterQueue":%q,"priority":%d,%s,
		"podSets":[{"name":"main","count":%d,"requests":{"cpu":"1"}%s}]}`, uid, queue, priority, times, cpu, podSpec)
}

var reservations = 0 // each later than the one before

func admitted(uid, queue, flavor string, priority, cpu int) string {
	reservations++
	return fmt.Sprintf(`{"uid":%q,"name":%[1]q,"clusterQueue":%q,"priority":%d,%s,"reservedAt":"2026-01-01T%02d:%02d:00Z",
		"podSets":[{"name":"main","count":%d,"requests":{"cpu":"1"},"flavors":{"cpu":%q}}]}`,
		uid, queue, priority, times, reservations/60%24, reservations%60, cpu, flavor)
}

func oneCase(fair bool, flavors, cohorts, queues, admitted []string, pending ...string) string {
	line := fmt.Sprintf(`{"id":7,"fairSharing":%t,"flavors":[%s],"cohorts":[%s],"clusterQueues":[%s],"admitted":[%s],"pending":[%s]}`,
		fair, strings.Join(flavors, ","), strings.Join(cohorts, ","), strings.Join(queues, ","),
		strings.Join(admitted, ","), strings.Join(pending, ","))
	return strings.Join(strings.Fields(line), " ")
}

func flavor(name, spec string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{%s}}`, name, spec)
}

func TestVerdicts(t *testing.T) {
	plain := []string{flavor("f1", ""), flavor("f2", "")}
	preempting := `,"preemption":{"withinClusterQueue":"LowerPriority"}`
	reclaiming := `,"preemption":{"reclaimWithinCohort":"Any"}`
	for _, test := range []struct {
		name string
		line string
		want string // mode, borrowing, flavor, victims
	}{
		{"what is free fits", oneCase(false, plain, nil, []string{queue("a", "", "f1=4", "")}, nil,
			pending("p", "a", 0, 4, "")), "Fit 0 f1 []"},
		{"more than the quota never fits", oneCase(false, plain, nil, []string{queue("a", "", "f1=4", "")}, nil,
			pending("p", "a", 0, 5, "")), "NoFit 0  []"},
		{"usage counts", oneCase(false, plain, nil, []string{queue("a", "", "f1=4,f2=2", "")},
			[]string{admitted("w", "a", "f1", 0, 3)}, pending("p", "a", 0, 2, "")), "Fit 0 f2 []"},
		{"the cohort lends", oneCase(false, plain, nil, []string{queue("a", "c", "f1=4", ""), queue("b", "c", "f1=4", "")}, nil,
			pending("p", "a", 0, 6, "")), "Fit 1 f1 []"},
		{"a cohort above it lends", oneCase(false, plain,
			[]string{`{"metadata":{"name":"low"},"spec":{"parentName":"top"}}`},
			[]string{queue("a", "low", "f1=4", ""), queue("b", "top", "f1=4", "")}, nil,
			pending("p", "a", 0, 6, "")), "Fit 2 f1 []"},
		{"a taint that isn't tolerated rules a flavor out", oneCase(false,
			[]string{flavor("f1", `"nodeTaints":[{"key":"gpu","effect":"NoSchedule"}]`), flavor("f2", "")}, nil,
			[]string{queue("a", "", "f1=4,f2=4", "")}, nil, pending("p", "a", 0, 1, "")), "Fit 0 f2 []"},
		{"a selector chooses the flavor", oneCase(false,
			[]string{flavor("f1", `"nodeLabels":{"pool":"one"}`), flavor("f2", `"nodeLabels":{"pool":"two"}`)}, nil,
			[]string{queue("a", "", "f1=4,f2=4", "")}, nil,
			pending("p", "a", 0, 1, `,"nodeSelector":{"pool":"two","other":"x"}`)), "Fit 0 f2 []"},
		{"without a policy nothing is preempted", oneCase(false, plain, nil, []string{queue("a", "", "f1=4", "")},
			[]string{admitted("w", "a", "f1", 0, 4)}, pending("p", "a", 9, 1, "")), "Preempt 0 f1 []"},
		{"the lowest priority goes", oneCase(false, plain, nil, []string{queue("a", "", "f1=4", preempting)},
			[]string{admitted("w1", "a", "f1", 1, 2), admitted("w2", "a", "f1", 0, 2)}, pending("p", "a", 9, 1, "")),
			"Preempt 0 f1 [w2 InClusterQueue]"},
		{"borrowed quota is reclaimed", oneCase(false, plain, nil,
			[]string{queue("a", "c", "f1=4", reclaiming), queue("b", "c", "f1=4", "")},
			[]string{admitted("w1", "b", "f1", 9, 4), admitted("w2", "b", "f1", 9, 4)}, pending("p", "a", 0, 4, "")),
			"Preempt 0 f1 [w2 InCohortReclamation]"},
		{"a fair share is taken", oneCase(true, plain, nil,
			[]string{queue("a", "c", "f1=0", reclaiming), queue("b", "c", "f1=0", ""), queue("spare", "c", "f1=4", "")},
			[]string{admitted("w1", "b", "f1", 0, 2), admitted("w2", "b", "f1", 0, 2)}, pending("p", "a", 0, 2, "")),
			"Preempt 1 f1 [w2 InCohortFairSharing]"},
		{"a stopped queue is refused", oneCase(false, plain, nil, []string{queue("a", "", "f1=4", `,"stopPolicy":"Hold"`)}, nil,
			pending("p", "a", 0, 1, "")), "NoFit 0  []"},
		{"so is one whose flavor is missing", oneCase(false, nil, nil, []string{queue("a", "", "f1=4", "")}, nil,
			pending("p", "a", 0, 1, "")), "NoFit 0  []"},
		{"so is a member of a cycle of cohorts", oneCase(false, plain,
			[]string{`{"metadata":{"name":"x"},"spec":{"parentName":"y"}}`, `{"metadata":{"name":"y"},"spec":{"parentName":"x"}}`},
			[]string{queue("a", "x", "f1=4", "")}, nil, pending("p", "a", 0, 1, "")), "NoFit 0  []"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := ask(t, test.line)
			if a.Error != "" || a.ID != 7 || len(a.Results) != 1 {
				t.Fatalf("the answer is %+v", a)
			}
			r := a.Results[0]
			flavor, victims := "", []string{}
			if len(r.PodSets) > 0 {
				flavor = r.PodSets[0].Flavors["cpu"]
			}
			for _, victim := range r.Victims {
				victims = append(victims, string(victim.UID)+" "+victim.Reason)
			}
			if got := fmt.Sprint(r.Mode, " ", r.Borrowing, " ", flavor, " ", victims); got != test.want {
				t.Errorf("got %q, want %q; reasons %q", got, test.want, r.Reasons)
			}
			if (r.Mode == "Fit") != (len(r.Reasons) == 0) {
				t.Errorf("mode %s has the reasons %q", r.Mode, r.Reasons)
			}
		})
	}
}

func TestEachPendingWorkloadIsJudgedAlone(t *testing.T) {
	a := ask(t, oneCase(false, []string{flavor("f1", "")}, nil, []string{queue("a", "", "f1=4", "")}, nil,
		pending("p", "a", 0, 4, ""), pending("q", "a", 0, 4, "")))
	if len(a.Results) != 2 || a.Results[0].Mode != "Fit" || a.Results[1].Mode != "Fit" {
		t.Errorf("the answer is %+v", a)
	}
}

func TestBadCasesAreNamed(t *testing.T) {
	twice := admitted("w", "a", "f1", 0, 1)
	for _, test := range []struct{ line, want string }{
		{`{"id":7,"flavours":[]}`, `unknown field "flavours"`},
		{oneCase(false, nil, nil, []string{strings.Replace(queue("a", "", "f1=1", ""), "nominalQuota", "nominal", 1)}, nil), `unknown field "nominal"`},
		{oneCase(false, nil, nil, nil, []string{twice, twice}), "two workloads have the uid w"},
		{oneCase(false, nil, nil, nil, []string{admitted("w", "a", "f1", 0, 1)}), "there is no ClusterQueue a"},
		{oneCase(false, nil, nil, nil, []string{twice, strings.ReplaceAll(twice, `"w"`, `"v"`)}), "the same reservedAt"},
	} {
		if a := ask(t, test.line); !strings.Contains(a.Error, test.want) {
			t.Errorf("the error is %q, want %q", a.Error, test.want)
		}
	}
}

// Two cohorts with the same share: Kueue takes any.
func TestChanceIsShown(t *testing.T) {
	cohort := func(name string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"parentName":"top"}}`, name)
	}
	a := ask(t, oneCase(true, []string{flavor("f1", "")}, []string{cohort("left"), cohort("right")},
		[]string{queue("a", "top", "f1=0", `,"preemption":{"reclaimWithinCohort":"Any"}`), queue("spare", "top", "f1=8", ""),
			queue("l", "left", "f1=0", ""), queue("r", "right", "f1=0", "")},
		[]string{admitted("w1", "l", "f1", 0, 2), admitted("w2", "l", "f1", 0, 2), admitted("w3", "r", "f1", 0, 2), admitted("w4", "r", "f1", 0, 2)},
		pending("p", "a", 0, 1, "")))
	var victims []string
	for _, verdict := range append([]Verdict{a.Results[0].Verdict}, a.Results[0].Alternatives...) {
		for _, victim := range verdict.Victims {
			victims = append(victims, string(victim.UID))
		}
	}
	slices.Sort(victims)
	if !slices.Equal(victims, []string{"w2", "w4"}) {
		t.Errorf("over %d tries the victims were %v, want w2 and w4", fairRepeats, victims)
	}
}

func TestBenchAdmitsWhatFits(t *testing.T) {
	for _, fair := range []bool{false, true} {
		var waiting []string
		for i := range 20 {
			waiting = append(waiting, pending(fmt.Sprint("p", i), []string{"a", "b"}[i%2], 0, 1, ""))
		}
		queues := []string{queue("a", "c", "f1=4", ""), queue("b", "c", "f1=4", `,"queueingStrategy":"StrictFIFO"`)}
		c, err := parseCase([]byte(oneCase(fair, []string{flavor("f1", "")}, nil, queues, nil, waiting...)))
		if err != nil {
			t.Fatal(err)
		}
		outcome, err := bench(c, []int{20}, 0)
		if err != nil {
			t.Fatal(err)
		}
		if outcome.Pending != 20 || outcome.Admitted != 8 || outcome.Preempted != 0 {
			t.Errorf("fair %t: 20 workloads of 1 on 8: %+v", fair, outcome)
		}
	}
}

func TestBenchEndsAndGoesOn(t *testing.T) {
	c, err := parseCase([]byte(oneCase(false, []string{flavor("f1", "")}, nil,
		[]string{queue("a", "", "f1=4", `,"preemption":{"withinClusterQueue":"LowerPriority"}`)}, nil,
		pending("p", "a", 9, 4, ""), pending("q", "a", 0, 3, ""), pending("r", "a", 0, 1, ""), pending("s", "a", 0, 4, ""))))
	if err != nil {
		t.Fatal(err)
	}
	outcome, err := bench(c, []int{4}, 2)
	if err != nil {
		t.Fatal(err)
	}
	if outcome.Admitted != 3 || outcome.Ended != 2 || outcome.Preempted != 0 {
		t.Errorf("p, then q and r, then nobody until r ends: %+v", outcome)
	}
}

func TestBenchPreemptsForWhoeverComesLater(t *testing.T) {
	c, err := parseCase([]byte(oneCase(false, []string{flavor("f1", "")}, nil,
		[]string{queue("a", "", "f1=4", `,"preemption":{"withinClusterQueue":"LowerPriority"}`)}, nil,
		pending("p", "a", 0, 4, ""), pending("q", "a", 9, 3, ""), pending("r", "a", 0, 1, ""), pending("s", "a", 0, 1, ""))))
	if err != nil {
		t.Fatal(err)
	}
	outcome, err := bench(c, []int{1, 1}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if outcome.Admitted != 2 || outcome.Ended != 1 || outcome.Preempted != 1 {
		t.Errorf("p, then q in its place, then p again: %+v", outcome)
	}
}

// Kueue itself goes through it: each event by its own controllers.
func TestHistory(t *testing.T) {
	arrives := func(uid string, priority, cpu int) string {
		return `{"arrives":` + pending(uid, "lq", priority, cpu, "") + `}`
	}
	local := func(policy string) string {
		return fmt.Sprintf(`{"localQueue":{"metadata":{"name":"lq"},"spec":{"clusterQueue":"q","stopPolicy":%q}}}`, policy)
	}
	cluster := func(quota, rest string) string {
		return `{"clusterQueue":` + queue("q", "", quota, `,"preemption":{"withinClusterQueue":"LowerPriority"}`+rest) + `}`
	}
	admitted, evicting := "admitted q main:cpu=f1", "evicting q main:cpu=f1"
	steps := []struct {
		event string
		want  map[string]any
	}{
		{`{"flavor":` + flavor("f1", "") + `}`, map[string]any{}},
		{cluster("f1=4", ""), map[string]any{}},
		{local("None"), map[string]any{}},
		{arrives("a", 0, 4), map[string]any{"a": admitted}},
		{arrives("b", 5, 2), map[string]any{"a": evicting, "b": "pending"}},
		{`{"stopped":"a"}`, map[string]any{"a": "pending", "b": admitted}},
		{cluster("f1=6", ""), map[string]any{"a": admitted}},
		{local("HoldAndDrain"), map[string]any{"a": evicting, "b": evicting}},
		{`{"stopped":"a"}`, map[string]any{"a": "pending"}},
		{local("None"), map[string]any{"a": admitted}},
		{`{"stopped":"b"}`, map[string]any{"b": admitted}},
		{`{"deactivated":"a"}`, map[string]any{"a": "inactive"}},
		{cluster("f1=6", `,"stopPolicy":"Hold"`), map[string]any{}},
		{`{"activated":"a"}`, map[string]any{"a": "pending"}},
		{`{"ends":"b"}`, map[string]any{"b": nil}},
		{`{"priority":{"a":7}}`, map[string]any{}},
		{`{"wake":true}`, map[string]any{}},
		{cluster("f1=6", ""), map[string]any{"a": admitted}},
		{arrives("c", 7, 4), map[string]any{"c": "pending"}},
		{`{"priority":{"a":1}}`, map[string]any{"a": evicting}},
	}
	var events []string
	for _, step := range steps {
		events = append(events, step.event)
	}
	h, err := parseHistory([]byte(`{"events":[` + strings.Join(events, ",") + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	course := follow(h)
	if course.Error != "" || len(course.Changes) != len(steps) {
		t.Fatalf("after %d events: %s", len(course.Changes), course.Error)
	}
	for i, step := range steps {
		if got := course.Changes[i]; !reflect.DeepEqual(got, step.want) {
			t.Errorf("after event %d, %s:\ngot  %v\nwant %v", i, step.event, got, step.want)
		}
	}
}

// One pod set of b fits in f1, and the other doesn't fit beside a: each is tried in turn where the
// other was before.
func TestCirclingIsTold(t *testing.T) {
	zone := func(name string) string { return fmt.Sprintf(`"nodeLabels":{"zone":%q}`, name) }
	b := strings.Replace(pending("b", "lq", 0, 4, ""), `"podSets":[`,
		`"podSets":[{"name":"first","count":4,"requests":{"cpu":"1"}},`, 1)
	h, err := parseHistory([]byte(`{"events":[` + strings.Join([]string{
		`{"flavor":` + flavor("f1", zone("a")) + `}`, `{"flavor":` + flavor("f2", zone("b")) + `}`,
		`{"clusterQueue":` + queue("q", "", "f1=4,f2=4", "") + `}`,
		`{"localQueue":{"metadata":{"name":"lq"},"spec":{"clusterQueue":"q"}}}`,
		`{"arrives":` + pending("a", "lq", 0, 2, `,"nodeSelector":{"zone":"b"}`) + `}`,
		`{"arrives":` + b + `}`, `{"ends":"a"}`}, ",") + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	course := follow(h)
	if want := map[int][]string{5: {"b"}}; course.Error != "" || !reflect.DeepEqual(course.Circling, want) {
		t.Errorf("%s: circling after events are %v, want %v", course.Error, course.Circling, want)
	}
}
