package cluster

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"muster.dev/tests/cluster/plane"
)

// shared is the control plane that every case runs on.
var shared *plane.Plane

// full asks for every count that the acceptance list names; without it each
// case has a round or two.
var full = os.Getenv("MUSTER_FULL") == "1"

// pick chooses a count or a time by level.
func pick[T any](usual, whenFull T) T {
	if full {
		return whenFull
	}
	return usual
}

func TestMain(m *testing.M) {
	if order := os.Getenv(floodVariable); order != "" {
		os.Exit(obeyFloodOrder(order))
	}
	flag.Parse()
	os.Exit(run(m))
}

// forbidden is what no role let Muster do while the cases ran, but for the rights of
// withdrawNodes, which a case takes away.
func forbidden() []string {
	requests, err := shared.Requests(time.Time{}, time.Now())
	if err != nil {
		return []string{err.Error()}
	}
	found := map[string]int{}
	for _, request := range requests {
		if request.Forbidden && request.User == plane.ServiceAccount && request.Program == "muster" && request.Resource != "nodeclaims" {
			found[request.Verb+" "+request.Resource]++
		}
	}
	var wanted []string
	for _, right := range slices.Sorted(maps.Keys(found)) {
		wanted = append(wanted, fmt.Sprintf("%s (%d times)", right, found[right]))
	}
	return wanted
}

func run(m *testing.M) int {
	if flag.Lookup("test.list").Value.String() != "" {
		return m.Run()
	}
	begin := time.Now()
	options, err := plane.Locate(".")
	options.Standalone = os.Getenv("MUSTER_MODE") == "standalone"
	options.NativeGangs = os.Getenv(nativeGangsVariable) == "on"
	if err == nil {
		options.Audited = true
		shared, err = plane.Start(options)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "--- FAIL: the control plane didn't start:", err)
		return 1
	}
	// Ctrl-C and a runner's time limit must not leave programs behind.
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-stop
		shared.Stop()
		fmt.Fprintln(os.Stderr, "stopped; logs are in", shared.Folder)
		os.Exit(1)
	}()
	fmt.Printf("control plane ready after %.1f s in %s\n", time.Since(begin).Seconds(), shared.Folder)

	code := m.Run()
	if dead := shared.Dead(); dead != "" {
		fmt.Fprintln(os.Stderr, "--- FAIL: part of the control plane ended early:", dead)
		code = 1
	}
	for _, wanted := range forbidden() {
		fmt.Fprintln(os.Stderr, "--- FAIL: Muster asked for what the manifests don't grant:", wanted)
		code = 1
	}
	shared.Stop()
	if code != 0 || os.Getenv("MUSTER_KEEP") == "1" {
		fmt.Println("logs are in", filepath.Join(shared.Folder, "logs"))
	} else if err := os.RemoveAll(shared.Folder); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return code
}
