// Command binding races schedulers on a real API server: each binds the same gangs on the same fake
// nodes of a fresh control plane, and beside them the same writes are made without any scheduler; and
// each is given gangs that need more nodes than there are. It prints a line of JSON for each race,
// tables, and which bounds Muster keeps, and fails if Muster left a gang in parts, one that has room or
// a node with more than it has, or made fewer gangs whole than another.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"muster.dev/tests/cluster/plane"
)

var (
	folder    = flag.String("folder", ".", "where tests/cluster is")
	peers     = flag.String("peers", "", "the folder with scheduler-plugins' scheduler; bench.sh gives it")
	programs  = flag.String("native", "", "the folder with the programs of Kubernetes 1.37; bench.sh gives it")
	nodes     = flag.Int("nodes", 5000, "nodes, each of which has room for one pod; 0: only contention")
	big       = flag.Int("big", 2000, "pods of the one big gang")
	small     = flag.Int("small", 667, "gangs of 3")
	contested = flag.Int("contested", 100, "nodes of contention, each of which has room for 8 pods; 0: none of it")
	seeds     = flag.Int("seeds", 10, "random loads of contention")
	mixed     = flag.Bool("mixed", false, "of gangs of different sizes")
	rows      = flag.String("rows", "", "only these contenders, comma-separated")
	picture   = flag.String("plot", "", "an SVG file for the plot")
)

// stage is what a contender meets on a control plane of its own.
type stage struct {
	nodes int
	loads []load
	modes []string
	// coscheduling's (cluster.patience).
	patience int
}

func main() { plane.Race(run) }

func run(ctx context.Context) error {
	// A gang of thousands takes coscheduling minutes.
	speed := stage{nodes: *nodes, modes: []string{draining, creating}, patience: 120}
	if *nodes > 0 {
		speed.loads = []load{eachWithNodes(1, *big), eachWithNodes(*small, 3)}
	}
	for _, l := range speed.loads {
		if l.pods() > *nodes {
			return fmt.Errorf("%v pods have no room on %d nodes", l, *nodes)
		}
	}
	contention := stage{nodes: *contested, modes: []string{contending}}
	if *contested > 0 {
		contention.loads = contentions(*contested, *seeds, *mixed)
	}
	options, err := plane.Locate(*folder)
	if err != nil {
		return err
	}
	options.Measured = true
	options.Peers = *peers
	chosen, err := named(*rows)
	if err != nil {
		return err
	}
	fmt.Printf("%d cores, load average %s before; %d nodes, %d for contention\n", runtime.NumCPU(), plane.LoadAverage(), *nodes, *contested)
	var all []figures
	var names []string
	var failed error
	for _, one := range chosen {
		names = append(names, one.name)
		for _, on := range []stage{speed, contention} {
			if len(on.loads) == 0 || ctx.Err() != nil || (on.modes[0] == contending && !one.contends) {
				continue
			}
			figures, err := raceAll(ctx, options, one, on)
			all = append(all, figures...)
			if err != nil {
				// The others can still be compared.
				failed = errors.Join(failed, fmt.Errorf("%s: %w", one.name, err))
				fmt.Println("FAILED:", one.name+":", err)
			}
		}
	}
	bounds := contentionBounds(all, contention.loads, *mixed)
	for _, b := range bounds {
		if !b.met() {
			failed = errors.Join(failed, fmt.Errorf("%s: %.0f, at least %.0f", b.what, b.value, b.limit))
		}
	}
	bounds = append(boundsOf(all, speed.loads), bounds...)
	return errors.Join(report(all, names, speed.loads, contention.loads, bounds), failed)
}

// report prints what came of it.
func report(all []figures, names []string, speed, contention []load, bounds []bound) error {
	if err := printTable(os.Stdout, all, names, speed); err != nil {
		return err
	}
	fmt.Println()
	for _, f := range all {
		if f.Mode == draining && f.Workers == 0 {
			fmt.Printf("%s, %s, writes for each gang:%s; %d refused\n", f.Row, f.Load, describeWrites(f), f.Refused)
		}
	}
	if len(contention) > 0 {
		contenders := slices.DeleteFunc(slices.Clone(names), func(row string) bool {
			return !slices.ContainsFunc(all, func(f figures) bool { return f.Row == row && f.Mode == contending })
		})
		if err := printContentions(os.Stdout, all, contenders, contention); err != nil {
			return err
		}
	}
	printBounds(os.Stdout, bounds)
	if *picture != "" && len(speed) > 0 {
		if err := os.WriteFile(*picture, plot(all, names, speed), 0o644); err != nil {
			return err
		}
		fmt.Println("plot:", *picture)
	}
	fmt.Printf("load average %s after\n", plane.LoadAverage())
	return nil
}

// raceAll lets a contender bind all loads of a stage.
func raceAll(ctx context.Context, options plane.Options, one contender, on stage) (all []figures, err error) {
	options.Standalone, options.Ungated = one.standalone, one.standalone && !one.gated
	if one.native {
		if *programs == "" {
			return nil, errors.New("needs -native")
		}
		options.Programs, options.NativeGangs = *programs, true
	}
	p, err := plane.Start(options)
	if err != nil {
		return nil, err
	}
	defer func() { err = p.EndRace(err) }()
	c, err := newCluster(ctx, p, on, one.native)
	if err != nil {
		return nil, err
	}
	if one.prepare != nil {
		if err := one.prepare(ctx, c); err != nil {
			return nil, err
		}
	}
	note := func(r result) error {
		f := figuresOf(r, one.programs)
		all = append(all, f)
		if err := printLine(os.Stdout, f); err != nil {
			return err
		}
		if one.isMuster() && (f.Partial > 0 || f.Over > 0 || f.Fitting > 0 && !*mixed) {
			return fmt.Errorf("%v: %d gangs stand in parts, %d have room and don't start, %d nodes have more than they have room for", r.load, f.Partial, f.Fitting, f.Over)
		}
		return nil
	}
	for _, l := range on.loads {
		if one.start == nil {
			if err := c.limit(ctx, one, l, note); err != nil {
				return all, err
			}
			continue
		}
		for _, mode := range on.modes {
			r, err := race(ctx, c, one, l, mode)
			if err != nil {
				return all, err
			}
			if err := note(r); err != nil {
				return all, err
			}
		}
	}
	return all, nil
}

// limit finds out how many workers are the fastest, and what they do while pods are created.
func (c *cluster) limit(ctx context.Context, one contender, l load, note func(result) error) error {
	workers, fastest := 0, time.Duration(0)
	for _, some := range rawWorkers {
		r, err := raceRaw(ctx, c, one, l, draining, some)
		if err == nil {
			err = note(r)
		}
		if err != nil {
			return err
		}
		if took := r.took(); workers == 0 || took < fastest {
			workers, fastest = some, took
		}
	}
	r, err := raceRaw(ctx, c, one, l, creating, workers)
	if err == nil {
		err = note(r)
	}
	return err
}

// took is the time from the start to the last binding, while draining.
func (r result) took() time.Duration {
	var last time.Time
	for _, at := range r.bindings {
		if at.After(last) {
			last = at
		}
	}
	return last.Sub(r.began)
}
