package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"text/tabwriter"
)

// Gangs of which not all have room, and come in parts: how many are whole in the end.

// No drawn gang needs more than this part of the cluster.
const largestPart = 4

// contentions are a load of ten gangs that need twice so many nodes, a member of each after the other,
// and so many drawn ones.
func contentions(nodes, seeds int, mixed bool) []load {
	size := nodes * gpusOfNode / 5
	twice := load{name: fmt.Sprintf("10 x %d for room of 5", size), sizes: slices.Repeat([]int{size}, 10), gpus: 1}
	for range size {
		for gang := range twice.sizes {
			twice.order = append(twice.order, gang)
		}
	}
	all := []load{twice}
	for seed := range seeds {
		all = append(all, drawn(uint64(seed+1), nodes, mixed))
	}
	return all
}

// drawn is a load of gangs that need at least twice so many nodes, their pods in any order. They are of
// one size, so that it doesn't depend on who goes first how many have room; or, mixed, of any.
func drawn(seed uint64, nodes int, mixed bool) load {
	random := rand.New(rand.NewPCG(seed, 0))
	l := load{gpus: 1 << random.IntN(4)}
	room := nodes * gpusOfNode / int(l.gpus)
	draw := func() int { return 2 + random.IntN(max(1, room/largestPart-1)) }
	for size := draw(); len(l.order) < 2*room; {
		l.order = append(l.order, slices.Repeat([]int{len(l.sizes)}, size)...)
		l.sizes = append(l.sizes, size)
		if mixed {
			size = draw()
		}
	}
	random.Shuffle(len(l.order), func(i, j int) { l.order[i], l.order[j] = l.order[j], l.order[i] })
	l.name = fmt.Sprintf("seed %d: %d x %d", seed, len(l.sizes), l.sizes[0])
	if mixed {
		l.name = fmt.Sprintf("seed %d: %d mixed", seed, len(l.sizes))
	}
	return l
}

// printContentions shows how many gangs of each load are whole, and with how many pods, and, if any, in
// parts.
func printContentions(out io.Writer, all []figures, rows []string, loads []load) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(out, "\n== contention: whole gangs + gangs in parts (pods bound)\n")
	for _, row := range rows {
		fmt.Fprintf(table, "\t%s", row)
	}
	fmt.Fprintln(table, "\t")
	for _, l := range loads {
		fmt.Fprint(table, l)
		for _, row := range rows {
			fmt.Fprint(table, "\t")
			if f, raced := contended(all, row, l); raced {
				fmt.Fprintf(table, "%d + %d (%d)", f.Whole, f.Partial, f.Bound)
			}
		}
		fmt.Fprintln(table, "\t")
	}
	return table.Flush()
}

func contended(all []figures, row string, l load) (figures, bool) {
	i := slices.IndexFunc(all, func(f figures) bool {
		return f.Row == row && f.Load == l.String() && f.Mode == contending
	})
	if i < 0 {
		return figures{}, false
	}
	return all[i], true
}

// contentionBounds are for each of Muster's rows: of the first load half of the gangs are whole, and of
// the others not fewer than any peer has. Of gangs of mixed sizes there is none: Muster keeps room for the
// first in line.
func contentionBounds(all []figures, loads []load, mixed bool) []bound {
	var bounds []bound
	for i, l := range loads {
		if i > 0 && mixed {
			break
		}
		least := 0
		if i == 0 {
			least = len(l.sizes) / 2
		}
		for _, peer := range []string{schedulerPlugins, stock, native} {
			f, _ := contended(all, peer, l)
			least = max(least, f.Whole)
		}
		for _, row := range []string{standalone, extender} {
			if f, raced := contended(all, row, l); raced {
				bounds = append(bounds, bound{
					what: fmt.Sprintf("%v: %s, whole gangs", l, row), value: float64(f.Whole), limit: float64(least), least: true,
				})
			}
		}
	}
	return bounds
}
