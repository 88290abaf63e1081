package cluster

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// What a round of preemption begins with, drawn from its seed: queues alone or
// in one cohort, with the policies and limits that Kueue's webhooks would let
// through, and gangs that run in them. The quota is drawn around what runs, so
// that some borrow, little is free and now and then more runs than there is
// quota for, as after somebody has lowered it.

// preemptionSetup names queues and flavors by their place in it.
type preemptionSetup struct {
	flavors int
	queues  []queueSetup
	running []gangSetup
	urgent  gangSetup
	// The newcomer's PodGroup is older than all that run: of equal priority it
	// may displace those that came after it.
	urgentIsOlder bool
}

type queueSetup struct {
	inCohort    bool
	preemption  map[string]any
	fungibility map[string]any
	quotas      []quotaSetup // by flavor
}

type quotaSetup struct {
	nominal            int64
	borrowing, lending *int64
}

type gangSetup struct {
	name       string
	queue      int
	flavor     int // anyFlavor: whichever its queue gives it
	size, gpus int
	priority   int32
}

const (
	anyFlavor      = -1
	urgentPriority = 1000
)

// runningPriorities are those of the gangs that run.
var runningPriorities = []int32{10, 20, 30}

func (g gangSetup) total() int64 { return int64(g.size * g.gpus) }

func drawPreemption(random *rand.Rand) preemptionSetup {
	s := preemptionSetup{flavors: 1 + random.IntN(2)}
	count := pickOne(random, []int{1, 2, 2, 3, 3})
	for range count {
		s.queues = append(s.queues, drawQueue(random, chance(random, 90)))
	}
	for i := range 4 + random.IntN(4) {
		g := drawGang(random, fmt.Sprintf("run-%c", 'a'+i), count)
		g.flavor = random.IntN(s.flavors)
		g.priority = pickOne(random, runningPriorities)
		s.running = append(s.running, g)
	}
	s.urgent = drawGang(random, "urgent", count)
	s.urgent.flavor = anyFlavor
	if chance(random, 15) {
		s.urgent.flavor = random.IntN(s.flavors)
	}
	s.urgent.priority = urgentPriority
	if chance(random, 20) {
		s.urgentIsOlder = true
		s.urgent.priority = runningPriorities[1+random.IntN(2)]
	}
	s.drawQuota(random)
	return s
}

func drawGang(random *rand.Rand, name string, queues int) gangSetup {
	return gangSetup{name: name, queue: random.IntN(queues), size: 2 + random.IntN(3), gpus: 1 + random.IntN(2)}
}

func drawQueue(random *rand.Rand, inCohort bool) queueSetup {
	q := queueSetup{inCohort: inCohort, preemption: map[string]any{
		"withinClusterQueue": pickOne(random, []string{"Never", "LowerPriority", "LowerPriority", "LowerOrNewerEqualPriority"}),
	}}
	if reclaim := pickOne(random, []string{"Never", "LowerPriority", "Any", "Any"}); inCohort {
		q.preemption["reclaimWithinCohort"] = reclaim
		if reclaim != "Never" && chance(random, 75) {
			borrow := map[string]any{"policy": "LowerPriority"}
			if chance(random, 50) {
				borrow["maxPriorityThreshold"] = int64(pickOne(random, runningPriorities))
			}
			q.preemption["borrowWithinCohort"] = borrow
		}
	}
	// No preference: quota/README.md says where it differs from Kueue's.
	if chance(random, 50) {
		q.fungibility = map[string]any{
			"whenCanBorrow":  pickOne(random, []string{"MayStopSearch", "TryNextFlavor"}),
			"whenCanPreempt": pickOne(random, []string{"MayStopSearch", "TryNextFlavor"}),
		}
	}
	return q
}

// drawQuota draws the quota of each queue around what runs in it.
func (s *preemptionSetup) drawQuota(random *rand.Rand) {
	used := make([][]int64, len(s.queues))
	for i := range used {
		used[i] = make([]int64, s.flavors)
	}
	for _, g := range s.running {
		used[g.queue][g.flavor] += g.total()
	}
	for i := range s.queues {
		q := &s.queues[i]
		for flavor := range s.flavors {
			nominal := max(0, used[i][flavor]+int64(random.IntN(8))-4)
			if !q.inCohort && chance(random, 80) {
				nominal = max(nominal, used[i][flavor])
			}
			q.quotas = append(q.quotas, quotaSetup{nominal: nominal})
		}
	}
	for flavor := range s.flavors {
		switch {
		case s.borrowable(flavor, used) >= s.urgent.total() && chance(random, 60):
			s.lendFromUrgent(random, flavor, used)
		case chance(random, 80):
			s.coverCohort(random, flavor, used)
		}
		for i := range s.queues {
			if q := &s.queues[i]; q.inCohort {
				q.quotas[flavor].drawLimits(random, used[i][flavor])
			}
		}
	}
}

// coverCohort adds quota until all that runs in the cohort has its part.
func (s *preemptionSetup) coverCohort(random *rand.Rand, flavor int, used [][]int64) {
	missing := int64(0)
	var members []int
	for i, q := range s.queues {
		if q.inCohort {
			missing += used[i][flavor] - q.quotas[flavor].nominal
			members = append(members, i)
		}
	}
	if missing > 0 {
		s.queues[pickOne(random, members)].quotas[flavor].nominal += missing
	}
}

// borrowable is what others run in the cohort of the newcomer's queue.
func (s *preemptionSetup) borrowable(flavor int, used [][]int64) (sum int64) {
	for i, q := range s.queues {
		if q.inCohort && s.queues[s.urgent.queue].inCohort && i != s.urgent.queue {
			sum += used[i][flavor]
		}
	}
	return sum
}

// lendFromUrgent gives the newcomer's queue quota for it, most of which others of
// the cohort use.
func (s *preemptionSetup) lendFromUrgent(random *rand.Rand, flavor int, used [][]int64) {
	lender := &s.queues[s.urgent.queue].quotas[flavor]
	lender.nominal = used[s.urgent.queue][flavor] + s.urgent.total() + random.Int64N(3)
	unused := -random.Int64N(3)
	for i, q := range s.queues {
		if q.inCohort {
			unused += q.quotas[flavor].nominal - used[i][flavor]
		}
	}
	for i, q := range s.queues {
		if q.inCohort && i != s.urgent.queue && unused > 0 {
			cut := min(unused, q.quotas[flavor].nominal)
			s.queues[i].quotas[flavor].nominal -= cut
			unused -= cut
		}
	}
}

func (q *quotaSetup) drawLimits(random *rand.Rand, used int64) {
	if chance(random, 30) {
		limit := max(0, used-q.nominal) + int64(random.IntN(5))
		q.borrowing = &limit
	}
	if chance(random, 30) {
		limit := random.Int64N(q.nominal + 1)
		q.lending = &limit
	}
}

// spec is that of the ClusterQueue. An open one has room for all and displaces
// nobody.
func (q queueSetup) spec(namespace string, open bool) map[string]any {
	var flavors []any
	for flavor, quota := range q.quotas {
		one := map[string]any{"name": string(gpu), "nominalQuota": quota.nominal}
		switch {
		case open:
			one["nominalQuota"] = int64(openQuota)
		default:
			if quota.borrowing != nil {
				one["borrowingLimit"] = *quota.borrowing
			}
			if quota.lending != nil {
				one["lendingLimit"] = *quota.lending
			}
		}
		flavors = append(flavors, map[string]any{"name": flavorName(namespace, flavor), "resources": []any{one}})
	}
	spec := map[string]any{
		"namespaceSelector": map[string]any{},
		"resourceGroups":    []any{map[string]any{"coveredResources": []any{string(gpu)}, "flavors": flavors}},
	}
	if q.inCohort {
		spec["cohortName"] = namespace
	}
	if !open {
		spec["preemption"] = q.preemption
		if q.fungibility != nil {
			spec["flavorFungibility"] = q.fungibility
		}
	}
	return spec
}

const openQuota = 1000

func queueName(namespace string, queue int) string   { return fmt.Sprintf("%s-q%d", namespace, queue) }
func flavorName(namespace string, flavor int) string { return fmt.Sprintf("%s-f%d", namespace, flavor) }

// String is the set-up in a line.
func (s preemptionSetup) String() string {
	var parts []string
	for i, q := range s.queues {
		text := fmt.Sprintf("q%d", i)
		if q.inCohort {
			text += " in the cohort"
		}
		for flavor, quota := range q.quotas {
			text += fmt.Sprintf(", f%d %d", flavor, quota.nominal)
			if quota.borrowing != nil {
				text += fmt.Sprintf(" borrowing %d", *quota.borrowing)
			}
			if quota.lending != nil {
				text += fmt.Sprintf(" lending %d", *quota.lending)
			}
		}
		parts = append(parts, fmt.Sprintf("%s, %v %v", text, q.preemption, q.fungibility))
	}
	for _, g := range append(s.running, s.urgent) {
		parts = append(parts, fmt.Sprintf("%s: %d of f%d in q%d at %d", g.name, g.total(), g.flavor, g.queue, g.priority))
	}
	return strings.Join(parts, "; ")
}

func chance(random *rand.Rand, percent int) bool { return random.IntN(100) < percent }

func pickOne[T any](random *rand.Rand, choices []T) T { return choices[random.IntN(len(choices))] }
