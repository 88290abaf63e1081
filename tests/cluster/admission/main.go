// Command admission races Muster against minimalkueue, Kueue's own core for
// benchmarks with its client limit lifted to 1,000 requests per second, on one
// real API server: the same gangs in the same queues, one program after the other.
// It fails unless Muster needs at most half the time.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"muster.dev/tests/cluster/plane"
)

const (
	// Of minimalkueue's time, that Muster may take.
	bound = 0.5
	// Requests per second, for both.
	clientLimit = 1000
)

var (
	folder = flag.String("folder", ".", "where tests/cluster is")
	rounds = flag.Int("rounds", 5, "races of each program")
	tens   = flag.Int("tens", 3, "gangs in each of the 30 queues, in tens")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Println("FAILED:", err)
		os.Exit(1)
	}
}

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
	err = compare(ctx, p, options)
	if dead := p.Dead(); err == nil && dead != "" {
		err = fmt.Errorf("part of the control plane ended early: %s", dead)
	}
	p.Stop()
	if err != nil || os.Getenv("MUSTER_KEEP") == "1" {
		fmt.Println("logs are in", filepath.Join(p.Folder, "logs"))
		return err
	}
	return os.RemoveAll(p.Folder)
}

func compare(ctx context.Context, p *plane.Plane, options plane.Options) error {
	l := newLoad(*tens)
	fmt.Printf("%d gangs of %d pods in %d queues of %d cohorts, quota for all; queues held until all is created.\n"+
		"Both run on one API server in turn. Muster also gives members their flavor, places and binds them; minimalkueue only admits.\n",
		len(l.gangs), l.members, len(l.queues), cohorts)
	loadBefore := loadAverage()
	if err := l.createShared(ctx, p); err != nil {
		return err
	}
	contestants := []contestant{
		&minimalKueue{plane: p, load: l},
		&muster{plane: p, load: l, definitions: definitionsOf(options)},
	}
	var ratios []float64
	for round := range *rounds {
		took := map[string]time.Duration{}
		for _, c := range contestants {
			result, err := race(ctx, p, l, c)
			if err != nil {
				return fmt.Errorf("round %d: %w", round+1, err)
			}
			took[c.name()] = result.took
			report(round+1, c, l, result)
			if !withinLimit(result.requests, clientLimit) {
				return fmt.Errorf("%s sent more than a client limited to %d requests per second could", c.name(), clientLimit)
			}
		}
		ratio := took["muster"].Seconds() / took["minimalkueue"].Seconds()
		ratios = append(ratios, ratio)
		fmt.Printf("round %d: Muster took %.2f of minimalkueue's time\n", round+1, ratio)
		slices.Reverse(contestants) // nobody always goes first
	}
	slices.Sort(ratios)
	median := ratios[len(ratios)/2]
	fmt.Printf("%d cores, load average %s before and %s after\n", runtime.NumCPU(), loadBefore, loadAverage())
	verdict := fmt.Sprintf("Admission: Muster took %.2f of minimalkueue's time (median of %d rounds, bound %.2f)", median, len(ratios), bound)
	if median > bound {
		return fmt.Errorf("%s", verdict)
	}
	fmt.Println("passed:", verdict)
	return nil
}

func report(round int, c contestant, l load, r result) {
	gangs := len(l.gangs)
	all := writes(r.requests)
	fmt.Printf("round %d: %-12s %d gangs admitted in %.2f s (%.0f/s)", round, c.name(), gangs, r.took.Seconds(), float64(gangs)/r.took.Seconds())
	if r.bound > 0 {
		fmt.Printf(", all bound after %.2f s", r.bound.Seconds())
	}
	fmt.Printf("\n  writes per admission: %.2f until the last one, %.2f in all (%s; %d refused); at most %d requests in a second\n",
		float64(writes(r.requests[:r.asOf]))/float64(gangs), float64(all)/float64(gangs),
		describeWrites(r.requests, gangs), refused(r.requests), peak(r.requests))
	fmt.Printf("  CPU time until the last one: %s\n", describeCPU(r.cpu))
}

func loadAverage() string {
	content, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(content), " ")
	return first
}
