package main

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

// gang is one of the load, and what became of it. All times are those at which this program's own
// watch told.
type gang struct {
	name   string
	size   int
	runs   time.Duration
	judged bool

	created  time.Time // of its PodGroup, or of its only pod, in whole seconds: its age in line
	members  int       // that have come, and
	bound    int       // of these with a node
	complete time.Time // when the last member came
	fits     time.Time // when there was room for all of it, see account
	ahead    bool      // it was bound while an older one waited for room
	free     time.Time // since when the last of its nodes had been
	first    time.Time // binding
	last     time.Time // likewise, once all are bound
	whole    chan struct{}
}

func newGang(number, size int, runs time.Duration) *gang {
	return &gang{name: fmt.Sprintf("gang-%05d", number), size: size, runs: runs, whole: make(chan struct{})}
}

func (g *gang) member(i int) string { return fmt.Sprintf("%s-%03d", g.name, i) }

// account says which gangs fit, from what the API server's watch tells and nothing of what Muster
// says. Each pod takes a whole node, so room is a number of nodes. A gang fits from the moment at
// which all its members exist and, of the nodes without a pod, so many are left over for it when
// those that are older have taken theirs; where an older one doesn't fit, all that is left over is
// kept for it, so nobody behind it fits. What a scheduler without any delay would bind at that very
// moment, that is, in order of age without overtaking.
//
// Muster keeps certain nodes for the oldest and lets others use the rest, so a gang may be bound while
// it doesn't fit in that sense. It is found to have fitted since the last of the nodes that it got was
// free.
type account struct {
	mutex   sync.Mutex
	nodes   int
	gangs   map[string]*gang
	pods    map[string]*place    // by name, while they exist and haven't ended
	used    map[string]string    // the pod of each node
	freed   map[string]time.Time // since when each node has none, if it had one
	waiting []*gang              // complete and not bound whole, the oldest first
	wrong   []string

	// Nodes in use times seconds, since when, and until when.
	since, until time.Time
	nodeSeconds  float64
}

type place struct {
	gang *gang
	node string
}

func newAccount(nodes int) *account {
	return &account{nodes: nodes, gangs: map[string]*gang{}, pods: map[string]*place{}, used: map[string]string{}, freed: map[string]time.Time{}}
}

func (a *account) expect(g *gang) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.gangs[g.name] = g
}

// age is told of a gang with a PodGroup before its first member comes.
func (a *account) age(g *gang, created time.Time) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	g.created = created
}

// observe is told of a pod of a gang that exists, since when by the API server, and its node if it
// has one.
func (a *account) observe(at time.Time, pod, name string, created time.Time, node string) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	g := a.gangs[name]
	a.pass(at)
	one := a.pods[pod]
	if one == nil {
		one = &place{gang: g}
		a.pods[pod] = one
		if g.size == 1 {
			g.created = created
		}
		if g.members++; g.members == g.size {
			g.complete = at
			a.waiting = append(a.waiting, g)
			slices.SortFunc(a.waiting, func(a, b *gang) int {
				return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.name, b.name))
			})
		}
	}
	if node != "" && one.node == "" {
		one.node = node
		if other := a.used[node]; other != "" {
			a.wrong = append(a.wrong, fmt.Sprintf("%s was bound to %s, where %s is", pod, node, other))
		}
		a.used[node] = pod
		if free := a.freed[node]; free.After(g.free) {
			g.free = free
		}
		if g.bound++; g.bound == 1 {
			g.first = at
		}
		if g.bound == g.size {
			g.last = at
			if g.fits.IsZero() {
				g.ahead = true
				g.fits = g.complete
				if g.free.After(g.fits) {
					g.fits = g.free
				}
			}
			a.waiting = slices.DeleteFunc(a.waiting, func(other *gang) bool { return other == g })
			close(g.whole)
		}
	}
	a.fit(at)
}

// end is told of a pod that has ended or is gone. It may be told twice.
func (a *account) end(at time.Time, pod string) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	one := a.pods[pod]
	if one == nil {
		return
	}
	a.pass(at)
	delete(a.pods, pod)
	if one.node != "" && a.used[one.node] == pod {
		delete(a.used, one.node)
		a.freed[one.node] = at
	}
	if one.gang.last.IsZero() {
		a.wrong = append(a.wrong, fmt.Sprintf("%s ended before its gang was bound whole", pod))
	}
	a.fit(at)
}

// fit finds out who fits now.
func (a *account) fit(at time.Time) {
	left := a.nodes - len(a.used)
	for _, g := range a.waiting {
		if left -= g.size - g.bound; left < 0 {
			return
		}
		if g.fits.IsZero() {
			g.fits = at
		}
	}
}

// pass counts the nodes in use until now.
func (a *account) pass(at time.Time) {
	if !a.since.IsZero() {
		a.nodeSeconds += float64(len(a.used)) * at.Sub(a.until).Seconds()
		a.until = at
	}
}

// measureUse begins, and returns the share of the nodes that were in use until now when it is
// called again.
func (a *account) measureUse(at time.Time) float64 {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if a.since.IsZero() {
		a.since, a.until = at, at
		return 0
	}
	a.pass(at)
	share := a.nodeSeconds / a.until.Sub(a.since).Seconds() / float64(a.nodes)
	a.since = time.Time{}
	return share
}

// demand is the nodes with a pod, and those that gangs ask for beside, also if not all members have
// come.
func (a *account) demand() (inUse, awaited int) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	for _, g := range a.gangs {
		if g.last.IsZero() {
			awaited += g.size - g.bound
		}
	}
	return len(a.used), awaited
}
