package main

import (
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }

// come has a gang's members come at a moment.
func come(a *account, number, size, second int) *gang {
	g := newGang(number, size, 0)
	a.expect(g)
	a.age(g, at(second))
	for i := range size {
		a.observe(at(second), g.member(i), g.name, at(second), "")
	}
	return g
}

func bind(a *account, g *gang, second int, nodes ...string) {
	for i, node := range nodes {
		a.observe(at(second), g.member(i), g.name, at(second), node)
	}
}

func TestAGangFitsOnceAllOfItIsThereAndHasRoom(t *testing.T) {
	a := newAccount(2)
	g := newGang(1, 2, 0)
	a.expect(g)
	a.observe(at(1), g.member(0), g.name, at(1), "")
	if !g.complete.IsZero() || !g.fits.IsZero() {
		t.Errorf("half of it is there: %+v", g)
	}
	a.observe(at(3), g.member(1), g.name, at(3), "")
	if g.complete != at(3) || g.fits != at(3) {
		t.Errorf("complete at %v, fits at %v", g.complete, g.fits)
	}
	bind(a, g, 4, "a")
	if !g.last.IsZero() {
		t.Error("it isn't bound whole")
	}
	bind(a, g, 5, "a", "b")
	if g.first != at(4) || g.last != at(5) || len(a.waiting) != 0 || len(a.wrong) != 0 {
		t.Errorf("bound from %v to %v, %d wait, wrong: %q", g.first, g.last, len(a.waiting), a.wrong)
	}
}

func TestRoomIsKeptForTheOldest(t *testing.T) {
	a := newAccount(4)
	first := come(a, 1, 3, 0)
	bind(a, first, 1, "a", "b", "c")
	large, small := come(a, 2, 4, 2), come(a, 3, 1, 3)
	if !large.fits.IsZero() || !small.fits.IsZero() {
		t.Errorf("one node is free, for the older one: %v, %v", large.fits, small.fits)
	}
	for i := range 3 {
		a.end(at(5+i), first.member(i))
	}
	if large.fits != at(7) || !small.fits.IsZero() {
		t.Errorf("the older one fits on the last node that frees: %v, %v", large.fits, small.fits)
	}
	bind(a, large, 8, "a", "b", "c", "d")
	a.end(at(9), large.member(2))
	if small.fits != at(9) {
		t.Errorf("the younger one fits on the next node: %v", small.fits)
	}
}

func TestWhoIsBoundAheadOfItsTurnFitsSinceItsNodesAreFree(t *testing.T) {
	a := newAccount(3)
	first := come(a, 1, 2, 0)
	bind(a, first, 1, "a", "b")
	come(a, 2, 3, 2)
	soon, later := come(a, 3, 1, 3), come(a, 4, 1, 4)
	bind(a, soon, 5, "c")
	a.end(at(6), first.member(1))
	bind(a, later, 8, "b")
	if !soon.ahead || soon.fits != at(3) {
		t.Errorf("its node was free before it came: %+v", soon)
	}
	if !later.ahead || later.fits != at(6) {
		t.Errorf("its node has been free since 6 s: %+v", later)
	}
}

func TestWhatIsWrongIsTold(t *testing.T) {
	a := newAccount(2)
	g := come(a, 1, 2, 0)
	bind(a, g, 1, "a", "a")
	if len(a.wrong) != 1 {
		t.Errorf("two pods are on one node: %q", a.wrong)
	}
	other := come(a, 2, 2, 2)
	bind(a, other, 3, "b")
	a.end(at(4), other.member(0))
	if len(a.wrong) != 2 {
		t.Errorf("a gang ended in parts: %q", a.wrong)
	}
}

func TestUseIsThatOfAllNodesOverTime(t *testing.T) {
	a := newAccount(4)
	g := come(a, 1, 2, 0)
	a.measureUse(at(0))
	bind(a, g, 2, "a", "b")
	a.end(at(6), g.member(0))
	if use := a.measureUse(at(10)); use != (2*4+1*4)/40.0 {
		t.Errorf("use %v", use)
	}
}

func TestSizesHaveEqualSharesOfTheNodes(t *testing.T) {
	counts := map[int]int{}
	draw := newDraw(1)
	for range 200_000 {
		size := draw.size(512)
		if size < 1 || size > 512 {
			t.Fatalf("size %d", size)
		}
		for class := 1; ; class *= 2 {
			if size < 2*class {
				counts[class] += size
				break
			}
		}
	}
	for class := 1; class <= 256; class *= 2 {
		if share := float64(counts[class]) / 200_000; share < 0.5 || share > 1.1 {
			t.Errorf("gangs of %d and more ask for %.2f nodes for each gang there is", class, share)
		}
	}
}
