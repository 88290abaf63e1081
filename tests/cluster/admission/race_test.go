package main

import (
	"testing"
	"time"

	"muster.dev/tests/cluster/plane"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// at makes so many requests at a moment after noon.
func at(after time.Duration, count int) []plane.Request {
	requests := make([]plane.Request, count)
	for i := range requests {
		requests[i] = plane.Request{Received: noon.Add(after), Verb: "patch", Resource: "pods", Code: 200}
	}
	return requests
}

func TestAClientsLimit(t *testing.T) {
	for name, test := range map[string]struct {
		requests [][]plane.Request
		within   bool
		peak     int
	}{
		"nothing":                          {nil, true, 0},
		"a whole burst":                    {[][]plane.Request{at(0, 10)}, true, 10},
		"one beyond it":                    {[][]plane.Request{at(0, 11)}, false, 11},
		"a burst and what is earned since": {[][]plane.Request{at(0, 10), at(500*time.Millisecond, 5)}, true, 15},
		"more than is earned":              {[][]plane.Request{at(0, 10), at(500*time.Millisecond, 6)}, false, 16},
		"no more is saved up than a burst": {[][]plane.Request{at(0, 1), at(time.Minute, 11)}, false, 11},
		"a second later":                   {[][]plane.Request{at(0, 10), at(time.Second, 10)}, true, 10},
	} {
		var all []plane.Request
		for _, some := range test.requests {
			all = append(all, some...)
		}
		if got := withinLimit(all, 10); got != test.within {
			t.Errorf("%s: within the limit: %v, want %v", name, got, test.within)
		}
		if got := peak(all); got != test.peak {
			t.Errorf("%s: at most %d in a second, want %d", name, got, test.peak)
		}
	}
}

func TestOnlyWritesAreCounted(t *testing.T) {
	requests := []plane.Request{
		{Verb: "get", Resource: "pods"}, {Verb: "list", Resource: "pods"}, {Verb: "watch", Resource: "pods"},
		{Verb: "create", Resource: "pods/binding", Code: 201}, {Verb: "create", Resource: "pods/binding", Code: 409},
		{Verb: "patch", Resource: "podgroups", Code: 200}, {Verb: "update", Resource: "podgroups/status", Code: 200},
	}
	if got := writes(requests); got != 4 {
		t.Errorf("%d writes, want 4", got)
	}
	if got := refused(requests); got != 1 {
		t.Errorf("%d refused, want 1", got)
	}
	if got, want := describeWrites(requests, 2), "pods/binding 1.00, podgroups 0.50, podgroups/status 0.50"; got != want {
		t.Errorf("described as %q, want %q", got, want)
	}
}

func TestTheLoadHasTheShapeOfKueuesOwn(t *testing.T) {
	l := newLoad(3, false)
	if len(l.queues) != 30 || len(l.jobs) != 900 || l.pods != 3330 || l.quota != 111 || l.admits != 900 {
		t.Errorf("%d queues, %d jobs, %d pods, quota of %d, %d admitted; want 30, 900, 3330, 111, 900",
			len(l.queues), len(l.jobs), l.pods, l.quota, l.admits)
	}
	seen := map[string]bool{}
	for _, j := range l.jobs {
		if seen[j.key()] {
			t.Fatalf("job %s is there twice", j.key())
		}
		seen[j.key()] = true
	}
	// Of each queue 3 of 20 pods, 6 of 5 and 1 of 1.
	if l := newLoad(3, true); len(l.jobs) != 900 || l.quota != 91 || l.admits != 300 || l.borrow != 0 {
		t.Errorf("for a third: %d jobs, quota of %d, %d borrowed, %d admitted; want 900, 91, 0, 300",
			len(l.jobs), l.quota, l.borrow, l.admits)
	}
}

func TestOnlyWorkloadsAndJobsAreOfAdmission(t *testing.T) {
	requests := []plane.Request{
		{Verb: "create", Resource: "workloads"}, {Verb: "patch", Resource: "workloads/status"}, {Verb: "update", Resource: "jobs"},
		{Verb: "get", Resource: "jobs"}, {Verb: "patch", Resource: "localqueues/status"}, {Verb: "create", Resource: "events"},
	}
	if got := ofAdmission(requests); got != 3 {
		t.Errorf("%d writes of admission, want 3", got)
	}
}
