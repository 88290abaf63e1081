// Command admission races Muster against Kueue's manager, its client limit lifted to
// 1,000 requests per second, on one real API server: the same suspended Jobs in the
// same queues, one program after the other, first with quota for all of them, then
// for a third. It fails unless Muster needs at most 0.8 of the time, and writes to
// Workloads and jobs no more often.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"slices"

	"muster.dev/tests/cluster/plane"
)

const (
	// Of Kueue's time, that Muster may take.
	bound = 0.8
	// Requests per second, for both.
	clientLimit = 1000
)

var (
	folder = flag.String("folder", ".", "where tests/cluster is")
	rounds = flag.Int("rounds", 5, "races of each program")
	tens   = flag.Int("tens", 3, "jobs in each of the 30 queues, in tens")
)

func main() { plane.Race(run) }

func run(ctx context.Context) error {
	options, err := plane.Locate(*folder)
	if err != nil {
		return err
	}
	options.Measured = true
	p, err := plane.Start(options)
	if err != nil {
		return err
	}
	return p.EndRace(compare(ctx, p, options))
}

func compare(ctx context.Context, p *plane.Plane, options plane.Options) error {
	loadBefore := plane.LoadAverage()
	all := newLoad(*tens, false)
	if err := all.createShared(ctx, p); err != nil {
		return err
	}
	contestants := []contestant{&kueue{plane: p}, newMuster(p, options)}
	failed := errors.Join(
		compareOn(ctx, p, "quota for all", all, contestants),
		compareOn(ctx, p, "quota for a third", newLoad(*tens, true), contestants))
	fmt.Printf("%d cores, load average %s before and %s after\n", runtime.NumCPU(), loadBefore, plane.LoadAverage())
	return failed
}

// compareOn races both on one load.
func compareOn(ctx context.Context, p *plane.Plane, what string, l load, contestants []contestant) error {
	fmt.Printf("== %s: %d suspended Jobs of %d pods in %d queues of %d cohorts, of which %d are admitted; queues held until all have a Workload.\n",
		what, len(l.jobs), l.pods, len(l.queues), cohorts, l.admits)
	var ratios []float64
	var failed error
	for round := range *rounds {
		results := map[string]result{}
		for _, c := range contestants {
			result, err := race(ctx, p, l, c)
			if err != nil {
				return fmt.Errorf("round %d: %w", round+1, err)
			}
			results[c.name()] = result
			report(round+1, c, l, result)
			if !withinLimit(result.requests, clientLimit) {
				failed = errors.Join(failed, fmt.Errorf("%s sent more than a client limited to %d requests per second could", c.name(), clientLimit))
			}
		}
		ours, theirs := results["muster"], results["kueue"]
		ratio := ours.took.Seconds() / theirs.took.Seconds()
		ratios = append(ratios, ratio)
		fmt.Printf("round %d: Muster took %.2f of Kueue's time\n", round+1, ratio)
		if mine, its := ofAdmission(ours.requests), ofAdmission(theirs.requests); mine > its {
			failed = errors.Join(failed, fmt.Errorf("round %d: Muster wrote %d times to Workloads and jobs, Kueue %d", round+1, mine, its))
		}
		slices.Reverse(contestants) // nobody always goes first
	}
	slices.Sort(ratios)
	median := ratios[len(ratios)/2]
	verdict := fmt.Sprintf("%s: Muster took %.2f of Kueue's time (median of %d rounds, bound %.2f)", what, median, len(ratios), bound)
	if median > bound {
		failed = errors.Join(failed, errors.New(verdict))
	}
	if failed == nil {
		fmt.Println("passed:", verdict, "and wrote no more")
	}
	return failed
}

func report(round int, c contestant, l load, r result) {
	fmt.Printf("round %d: %-6s %d jobs admitted in %.2f s (%.0f/s); created and asked for in %.0f s before\n",
		round, c.name(), l.admits, r.took.Seconds(), float64(l.admits)/r.took.Seconds(), r.asked.Seconds())
	fmt.Printf("  writes to Workloads and jobs: %d from the jobs' creation on, %d while the clock ran\n", ofAdmission(r.requests), ofAdmission(r.racing))
	fmt.Printf("  for each job: %s; %d refused; at most %d requests in a second\n",
		describeWrites(r.requests, len(l.jobs)), refused(r.requests), peak(r.requests))
	fmt.Printf("  CPU time while the clock ran: %s\n", describeCPU(r.cpu))
}
