package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// The bounds.
const (
	// From the moment at which a gang fits to its last binding, by the 99th percentile.
	boundWithin = time.Second
	// A gang may be bound in part for so long.
	strokeWithin = 3 * time.Second
	// What memory Muster takes in the second half of the time, of that in the first.
	memoryGrows = 1.1
	// The load that was made is no other than it was to be.
	leastUse, mostUse = 0.75, 0.95
)

// result is a run.
type result struct {
	gangs  []*gang
	memory []float64 // MiB, every 5 s
	use    float64
	cpu    map[string]time.Duration
	wrong  []string
}

// print returns whether all was well.
func (r result) print(out io.Writer) bool {
	type times struct{ fitting, waiting []time.Duration }
	var all times
	classes := map[int]*times{}
	var oldest, split *gang
	wrong, unbound, ahead := slices.Clone(r.wrong), 0, 0
	for _, g := range r.gangs {
		if g.last.IsZero() {
			unbound++
			wrong = append(wrong, fmt.Sprintf("%s: %d of %d members are bound", g.name, g.bound, g.size))
			continue
		}
		if split == nil || g.last.Sub(g.first) > split.last.Sub(split.first) {
			split = g
		}
		if !g.judged {
			continue
		}
		if oldest == nil || g.last.Sub(g.complete) > oldest.last.Sub(oldest.complete) {
			oldest = g
		}
		if g.ahead {
			ahead++
		}
		class := classOf(g.size)
		if classes[class] == nil {
			classes[class] = &times{}
		}
		for _, one := range []*times{&all, classes[class]} {
			one.fitting = append(one.fitting, g.last.Sub(g.fits))
			one.waiting = append(one.waiting, g.last.Sub(g.complete))
		}
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "pods\tgangs\tfits to bound: p50\tp99\tmost\tcomplete to bound: p50\tp99\tmost\t\n")
	for class := 1; class <= *most; class *= 2 {
		if one := classes[class]; one != nil {
			fmt.Fprintf(table, "%d to %d\t%d\t%s\t%s\t\n", class, min(2*class-1, *most), len(one.fitting), percentiles(one.fitting), percentiles(one.waiting))
		}
	}
	fmt.Fprintf(table, "all\t%d\t%s\t%s\t\n", len(all.fitting), percentiles(all.fitting), percentiles(all.waiting))
	table.Flush()
	passed := true
	verdict := func(kept bool, format string, args ...any) {
		word := "passed"
		if !kept {
			word, passed = "FAILED", false
		}
		fmt.Fprintf(out, "%s: %s\n", word, fmt.Sprintf(format, args...))
	}
	for i, one := range wrong {
		if i == 20 {
			fmt.Fprintf(out, "and %d more\n", len(wrong)-i)
			break
		}
		fmt.Fprintln(out, one)
	}
	verdict(len(wrong) == 0, "all of %d gangs were bound whole, on nodes of their own, and went (%d weren't)", len(r.gangs), unbound)
	if oldest == nil {
		verdict(false, "no gang was judged")
		return false
	}
	p99 := percentile(all.fitting, 0.99)
	verdict(p99 < boundWithin, "p99 from the moment at which a gang fits to its last binding: %v (bound %v)", ms(p99), boundWithin)
	fmt.Fprintf(out, "the oldest wait: %s of %d pods, %v after its last member came\n", oldest.name, oldest.size, ms(oldest.last.Sub(oldest.complete)))
	verdict(split.last.Sub(split.first) <= strokeWithin, "a gang was bound in part for %v at most, %s of %d pods (bound %v)",
		ms(split.last.Sub(split.first)), split.name, split.size, strokeWithin)
	fmt.Fprintf(out, "%d gangs were bound while an older one waited for room\n", ahead)
	first, second := slices.Max(r.memory[:len(r.memory)/2]), slices.Max(r.memory[len(r.memory)/2:])
	verdict(second <= memoryGrows*first, "Muster's memory: %.0f MiB at most in the first half, %.0f in the second (bound %g times)", first, second, memoryGrows)
	verdict(r.use >= leastUse && r.use <= mostUse, "%.0f %% of the nodes were in use (between %.0f and %.0f)", 100*r.use, 100*leastUse, 100*mostUse)
	fmt.Fprintf(out, "CPU time: Muster %.0f s, API server %.0f s, etcd %.0f s\n", r.cpu["muster"].Seconds(), r.cpu["kube-apiserver"].Seconds(), r.cpu["etcd"].Seconds())
	return passed
}

// classOf is the largest power of two that isn't more.
func classOf(size int) int {
	class := 1
	for 2*class <= size {
		class *= 2
	}
	return class
}

func ms(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

func percentile(times []time.Duration, part float64) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[min(len(sorted)-1, int(part*float64(len(sorted))))]
}

func percentiles(times []time.Duration) string {
	return fmt.Sprintf("%v\t%v\t%v", ms(percentile(times, 0.5)), ms(percentile(times, 0.99)), ms(percentile(times, 1)))
}
