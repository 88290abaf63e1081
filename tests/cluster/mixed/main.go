// Command mixed has gangs of 1 to 512 pods come, run and go on a real API server with 2,000 nodes, of
// which 85 % are in use, and Muster standalone bind them. It tells how long each gang took from the
// moment at which it fits until it was bound whole, how long the oldest waited, and what memory Muster
// took; and fails if that isn't within the bounds, or a gang was ever left in parts.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"

	"muster.dev/tests/cluster/plane"
)

var (
	folder   = flag.String("folder", ".", "where tests/cluster is")
	nodes    = flag.Int("nodes", 2000, "nodes, each of which has room for one pod")
	most     = flag.Int("most", 512, "pods of the largest gang")
	use      = flag.Float64("use", 0.85, "share of the nodes that the gangs ask for")
	lasts    = flag.Duration("lasts", 10*time.Minute, "how long gangs come")
	meanRuns = flag.Duration("runs", time.Minute, "how long gangs run in the mean")
	seed     = flag.Uint64("seed", 1, "of the load")
)

// Nobody may wait longer once no more gangs come, and those that run end soon.
const endsWithin = 90 * time.Second

func main() { plane.Race(run) }

func run(ctx context.Context) (err error) {
	options, err := plane.Locate(*folder)
	if err != nil {
		return err
	}
	options.Measured, options.Standalone = true, true
	fmt.Printf("%d cores, load average %s before; %d nodes, gangs of 1 to %d pods, seed %d\n", runtime.NumCPU(), plane.LoadAverage(), *nodes, *most, *seed)
	p, err := plane.Start(options)
	if err != nil {
		return err
	}
	defer func() { err = p.EndRace(err) }()
	l, err := newLoad(ctx, p, *nodes)
	if err != nil {
		return err
	}
	if err := p.Muster.Start(plane.Launch{}); err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	broken := make(chan error, 1)
	go func() { broken <- l.watch(watching) }()
	r, err := l.come(ctx, newDraw(*seed), broken)
	if err != nil {
		return err
	}
	kept := r.print(os.Stdout)
	fmt.Printf("load average %s after\n", plane.LoadAverage())
	if !kept {
		return errors.New("it isn't within the bounds")
	}
	return nil
}

// come has gangs come until the time is over, and all of them go.
func (l *load) come(ctx context.Context, d draw, broken <-chan error) (r result, err error) {
	// Until the load is as it is to be.
	filling := 0
	for filling < int(*use*float64(*nodes)) {
		g := newGang(len(r.gangs), d.size(*most), d.runs(*meanRuns))
		filling += g.size
		r.gangs = append(r.gangs, g)
		l.begin(ctx, g)
		time.Sleep(time.Duration(g.size) * 4 * time.Millisecond)
	}
	pace := time.Duration(float64(meanOfRuns(*meanRuns)) * meanSize(*most) / (*use * float64(*nodes)))
	began := time.Now()
	l.account.measureUse(began)
	sample := time.NewTicker(5 * time.Second)
	defer sample.Stop()
	told := began
	for next := began; next.Sub(began) < *lasts; {
		select {
		case err := <-broken:
			return r, fmt.Errorf("the watch ended: %w", err)
		case <-ctx.Done():
			return r, ctx.Err()
		case <-sample.C:
			memory, err := l.residentMiB()
			if err != nil {
				return r, err
			}
			r.memory = append(r.memory, memory)
			if time.Since(told) > 30*time.Second {
				told = time.Now()
				inUse, awaited := l.account.demand()
				fmt.Printf("%4.0f s: %d gangs came, %d nodes in use, %d waited for; %.0f MiB\n", time.Since(began).Seconds(), len(r.gangs), inUse, awaited, memory)
			}
		case <-time.After(time.Until(next)):
			next = next.Add(d.exponential(pace))
			// Chance would make more of them than can run, and their waits would tell of that alone.
			if inUse, awaited := l.account.demand(); inUse+awaited >= *nodes {
				continue
			}
			g := newGang(len(r.gangs), d.size(*most), d.runs(*meanRuns))
			g.judged = true
			r.gangs = append(r.gangs, g)
			l.begin(ctx, g)
		}
	}
	r.use = l.account.measureUse(time.Now())
	r.cpu = l.plane.CPU()
	close(l.ending)
	ended := make(chan struct{})
	go func() {
		l.living.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(endsWithin):
		r.wrong = append(r.wrong, fmt.Sprintf("not all gangs have ended %v after the last one came", endsWithin))
	case <-ctx.Done():
		return r, ctx.Err()
	}
	l.account.mutex.Lock()
	defer l.account.mutex.Unlock()
	l.mutex.Lock()
	defer l.mutex.Unlock()
	r.wrong = append(append(r.wrong, l.account.wrong...), l.failures...)
	return r, nil
}
