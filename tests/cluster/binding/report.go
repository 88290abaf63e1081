package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"text/tabwriter"
	"time"
)

// figures are what is said of a race, as one line of JSON.
type figures struct {
	Row     string `json:"row"`
	Load    string `json:"load"`
	Mode    string `json:"mode"`
	Workers int    `json:"workers,omitempty"`
	Pods    int    `json:"pods"`
	Bound   int    `json:"bound"`
	// From the first pod created, or the scheduler's start, to the last binding.
	Seconds float64 `json:"seconds"`
	// Until the last binding, from the first pod created or, while draining, from the first binding:
	// how long a scheduler takes to start is told by First.
	Rate float64 `json:"pods_per_second"`
	// All pods, from the first to the last one.
	Creating float64 `json:"creating_seconds"`
	// To the first binding from the scheduler's start, or from the last member of the gang that is
	// whole first.
	First float64 `json:"first_bind_seconds"`
	// From the first to the last binding, of all pods, and the longest one of a gang, which stands
	// in parts so long.
	Spread float64 `json:"spread_seconds"`
	Parts  float64 `json:"gang_spread_seconds"`
	// From a gang's last member, or the scheduler's start, to its last binding.
	GangP50 float64 `json:"gang_p50_seconds"`
	GangP99 float64 `json:"gang_p99_seconds"`
	Whole   int     `json:"whole_gangs"`
	Partial int     `json:"partial_gangs"`
	Fitting int     `json:"gangs_left_though_they_fit"`
	Over    int     `json:"overcommitted_nodes"`
	// Of the scheduler's programs together, and of the API server.
	CPU       float64 `json:"cpu_seconds"`
	ServerCPU float64 `json:"apiserver_cpu_seconds"`
	Memory    float64 `json:"memory_mib"`
	// By kind; events by what they are about and why; writes that had no effect.
	Writes  map[string]float64 `json:"writes_per_gang"`
	Events  map[string]int     `json:"events,omitempty"`
	Refused int                `json:"refused_writes"`
	Gets    float64            `json:"gets_per_gang"`
	// The seconds after which each binding was made, in order.
	course []float64
}

// figuresOf computes them.
func figuresOf(r result, programs []string) figures {
	f := figures{
		Row: r.row, Load: r.load.String(), Mode: r.mode, Workers: r.workers, Pods: r.load.pods(), Bound: len(r.bindings),
		Fitting: r.fitting, Over: r.over, Writes: map[string]float64{}, ServerCPU: round(r.cpu["kube-apiserver"]),
		Events: r.events, Gets: hundredths(float64(r.gets) / float64(len(r.load.sizes))),
	}
	for _, program := range programs {
		f.CPU = hundredths(f.CPU + r.cpu[program].Seconds())
		f.Memory += float64(r.memory[program] >> 20)
	}
	for gang, count := range r.bound {
		if count < r.load.sizes[gang] {
			f.Partial++
		} else {
			f.Whole++
		}
	}
	for _, request := range r.requests {
		f.Writes[request.Resource]++
		if request.Code >= 400 {
			f.Refused++
		}
	}
	for kind, count := range f.Writes {
		f.Writes[kind] = hundredths(count / float64(len(r.load.sizes)))
	}

	type span struct{ complete, first, last time.Time }
	gangs := make([]span, len(r.load.sizes))
	var all span
	var begin time.Time // of all pods' creation
	for _, pod := range r.pods {
		gang := &gangs[pod.gang]
		if pod.at.After(gang.complete) {
			gang.complete = pod.at
		}
		if begin.IsZero() || pod.at.Before(begin) {
			begin = pod.at
		}
		if pod.at.After(all.complete) {
			all.complete = pod.at
		}
		at, bound := r.bindings[pod.name]
		if !bound {
			continue
		}
		for _, of := range []*span{gang, &all} {
			if of.first.IsZero() || at.Before(of.first) {
				of.first = at
			}
			if at.After(of.last) {
				of.last = at
			}
		}
	}
	f.Creating = round(all.complete.Sub(begin))
	if len(r.bindings) == 0 {
		return f
	}
	ready := all.complete // when the first gang was whole
	var waits []time.Duration
	for _, gang := range gangs {
		if gang.complete.Before(ready) {
			ready = gang.complete
		}
		if gang.last.IsZero() {
			continue
		}
		f.Parts = max(f.Parts, round(gang.last.Sub(gang.first)))
		from := gang.complete
		if r.mode == draining {
			from = r.began
		}
		waits = append(waits, gang.last.Sub(from))
	}
	if r.mode == draining {
		begin, ready = r.began, r.began
	}
	for _, at := range r.bindings {
		f.course = append(f.course, at.Sub(begin).Seconds())
	}
	slices.Sort(f.course)
	f.Seconds = round(all.last.Sub(begin))
	f.Rate = hundredths(float64(len(r.bindings)) / all.last.Sub(begin).Seconds())
	if r.mode == draining && len(r.bindings) > 1 {
		f.Rate = hundredths(float64(len(r.bindings)-1) / all.last.Sub(all.first).Seconds())
	}
	f.First = round(all.first.Sub(ready))
	f.Spread = round(all.last.Sub(all.first))
	slices.Sort(waits)
	f.GangP50, f.GangP99 = round(waits[len(waits)/2]), round(waits[len(waits)*99/100])
	return f
}

// round is in seconds.
func round(d time.Duration) float64 { return hundredths(d.Seconds()) }

func hundredths(x float64) float64 { return math.Round(x*100) / 100 }

func printLine(out io.Writer, f figures) error {
	line, err := json.Marshal(f)
	if err == nil {
		_, err = fmt.Fprintln(out, string(line))
	}
	return err
}

// best is the fastest of the races of one row, load and mode; none: without pods.
func best(all []figures, row string, l load, mode string) figures {
	var found figures
	for _, f := range all {
		if f.Row == row && f.Load == l.String() && f.Mode == mode && f.Rate > found.Rate {
			found = f
		}
	}
	return found
}

// rawOf is the limit that a row is compared with.
func rawOf(row string) string {
	if row == standaloneGated || row == extender {
		return rawGated
	}
	if row == native || row == rawNative {
		return rawNative
	}
	return raw
}

func ratio(a, b float64) string {
	if b == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", a/b)
}

// titles say where the clock starts.
var titles = map[string]string{
	draining: "while draining: from the scheduler's start", creating: "from the first pod created",
}

// printTable shows the best of each row.
func printTable(out io.Writer, all []figures, rows []string, loads []load) error {
	for _, l := range loads {
		for _, mode := range []string{draining, creating} {
			fmt.Fprintf(out, "\n== %v, %s\n", l, titles[mode])
			table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
			fmt.Fprintln(table, "\tpods/s\tseconds\tof raw\tof scheduler-plugins\tcreating s\tfirst bind s\tspread s\tgang p50 s\tp99 s\tpartial\tover\tCPU s\tserver CPU s\tMiB\twrites/gang\t")
			peer := best(all, schedulerPlugins, l, mode)
			for _, row := range rows {
				f := best(all, row, l, mode)
				if f.Pods == 0 {
					continue
				}
				writes := 0.0
				for _, count := range f.Writes {
					writes += count
				}
				fmt.Fprintf(table, "%s\t%.0f\t%.2f\t%s\t%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%d\t%d\t%.1f\t%.1f\t%.0f\t%.1f\t\n",
					row, f.Rate, f.Seconds, ratio(f.Rate, best(all, rawOf(row), l, mode).Rate), ratio(f.Rate, peer.Rate),
					f.Creating, f.First, f.Spread, f.GangP50, f.GangP99, f.Partial, f.Over, f.CPU, f.ServerCPU, f.Memory, writes)
			}
			if err := table.Flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// bound is one that Muster is to keep.
type bound struct {
	what  string
	value float64
	limit float64
	least bool // the limit is the least, not the most
}

func (b bound) met() bool {
	if b.least {
		return b.value >= b.limit
	}
	return b.value <= b.limit
}

// boundsOf are those about which the races say something.
func boundsOf(all []figures, loads []load) []bound {
	var bounds []bound
	for i, l := range loads {
		drained := func(row string) figures { return best(all, row, l, draining) }
		come := func(row string) figures { return best(all, row, l, creating) }
		compare := func(what string, value, with, limit float64, least bool) {
			if value > 0 && with > 0 {
				bounds = append(bounds, bound{fmt.Sprintf("%v: %s", l, what), value / with, limit, least})
			}
		}
		for _, row := range []string{standalone, standaloneGated} {
			compare(row+", of its raw limit, draining", drained(row).Rate, drained(rawOf(row)).Rate, 0.85, true)
			compare(row+", of its raw limit, from the first pod created", come(row).Rate, come(rawOf(row)).Rate, 0.85, true)
			compare(row+", memory, of scheduler-plugins'", drained(row).Memory, drained(schedulerPlugins).Memory, 0.5, false)
			compare(row+", first bind in seconds, caches warm", come(row).First, 1, 1, false)
			if i == 0 {
				compare(row+", spread, of the raw one", drained(row).Spread, drained(rawOf(row)).Spread, 1.3, false)
			}
		}
		compare("standalone, times scheduler-plugins, draining", drained(standalone).Rate, drained(schedulerPlugins).Rate, 5, true)
		compare("extender, time from the first pod created, of scheduler-plugins'", come(extender).Seconds, come(schedulerPlugins).Seconds, 1, false)
		compare("extender, of a kube-scheduler alone, draining", drained(extender).Rate, drained(stock).Rate, 0.6, true)
	}
	return bounds
}

func printBounds(out io.Writer, bounds []bound) {
	fmt.Fprintln(out)
	for _, b := range bounds {
		verdict, sense := "met    ", "at most"
		if !b.met() {
			verdict = "NOT met"
		}
		if b.least {
			sense = "at least"
		}
		fmt.Fprintf(out, "%s  %s: %.2f, %s %.2f\n", verdict, b.what, b.value, sense, b.limit)
	}
}

// describeWrites names what was written for each gang, the most frequent first.
func describeWrites(f figures) string {
	kinds := slices.SortedFunc(maps.Keys(f.Writes), func(a, b string) int {
		if f.Writes[a] != f.Writes[b] {
			return int((f.Writes[b] - f.Writes[a]) * 100)
		}
		if a < b {
			return -1
		}
		return 1
	})
	text := ""
	for _, kind := range kinds {
		text += fmt.Sprintf(" %s %.2f", kind, f.Writes[kind])
	}
	return text
}
