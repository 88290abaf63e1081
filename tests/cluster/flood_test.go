package cluster

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"muster.dev/tests/cluster/onslaught"
)

// What a child of this program is to do: a floodOrder as JSON.
const floodVariable = "MUSTER_FLOOD_ORDER"

type floodOrder struct {
	Flood *onslaught.Plan
	Probe string // an address
	Lasts time.Duration
}

// obeyFloodOrder is the child's part.
func obeyFloodOrder(said string) int {
	var order floodOrder
	if err := json.Unmarshal([]byte(said), &order); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	var answer any = onslaught.Probe(order.Probe, order.Lasts)
	if order.Flood != nil {
		report, err := onslaught.Run(*order.Flood)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		answer = report
	}
	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
		return 2
	}
	return 0
}

// apart has a process of its own do it, so that neither measures the other; `nice` before it is as far
// as another machine can be imitated.
func apart[T any](t *testing.T, order floodOrder, nice string) func() T {
	t.Helper()
	content, err := json.Marshal(order)
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command("nice", "-n", nice, program)
	command.Env = append(os.Environ(), floodVariable+"="+string(content))
	command.Stderr = os.Stderr
	output := make(chan []byte, 1)
	go func() {
		content, err := command.Output()
		if err != nil {
			t.Errorf("%v: %v", command, err)
		}
		output <- content
	}()
	return func() T {
		t.Helper()
		var answer T
		if err := json.Unmarshal(<-output, &answer); err != nil {
			t.Fatal(err)
		}
		return answer
	}
}

// Everybody who may reach Muster's ports does his worst at once. The kubelet's probes are answered,
// pods are gated, gangs start, the engine works no longer on any step, and nobody is told what the
// description doesn't know. `./run soak flood` is a whole flood on a machine of its own; else it is a
// tenth of one beside other cases.
func TestFloodLeavesTheControlPlaneAsItWas(t *testing.T) {
	whole := soak == "flood"
	plan := onslaught.Plan{Idle: 1_000, Watches: 500, Slow: 50, Bodies: 4, Requests: 1_000, Lasts: 25 * time.Second}
	before, patience, largest := 10*time.Second, time.Second, 1<<30
	if whole {
		plan = onslaught.Plan{Idle: 10_000, Watches: 5_000, Slow: 500, Bodies: 16, Requests: 10_000, Lasts: 10 * time.Minute}
		// So that the longest step is none of Muster's first ones.
		before, patience, largest = 150*time.Second, 50*time.Millisecond, 512<<20
	}
	_, plan.Seed = randomSource(t)
	t.Logf("seed %d", plan.Seed)

	c := newGangCase(t, "flood")
	c.Nodes(4, 1)
	muster := shared.Muster
	plan.REST, plan.GRPC, plan.Webhook, plan.Health = muster.Address, muster.GRPCAddress, muster.WebhookAddress, muster.HealthAddress
	// As many at the end as at the beginning: what the engine has to do stays the same.
	knocking := c.knockEvery(500*time.Millisecond, 20)
	calm := apart[onslaught.Probes](t, floodOrder{Probe: "http://" + muster.HealthAddress + "/healthz", Lasts: before}, "0")
	c.startGang("before")
	probes := calm()
	t.Logf("before: probes p50 %v, p99 %v, max %v", probes.P50, probes.P99, probes.Max)
	step := c.metric("muster_engine_longest_step_cpu_seconds")
	failures := c.failuresServed()

	flooding := apart[onslaught.Report](t, floodOrder{Flood: &plan}, "10")
	probing := apart[onslaught.Probes](t, floodOrder{Probe: "http://" + muster.HealthAddress + "/healthz", Lasts: plan.Lasts}, "0")
	longest, memory := 0.0, 0.0
	for begin, round := time.Now(), 0; time.Since(begin) < plan.Lasts-10*time.Second; round++ {
		c.startGang(fmt.Sprintf("during-%d", round))
		if now := c.metric("muster_engine_longest_step_cpu_seconds"); now > longest {
			c.Logf("a step took %.1f ms of the processor, the most until now", now*1000)
			longest = now
		}
		memory = max(memory, c.metric("process_resident_memory_bytes"))
		time.Sleep(5 * time.Second)
	}
	report, probes := flooding(), probing()
	longest = max(longest, c.metric("muster_engine_longest_step_cpu_seconds"))
	t.Logf("during: probes p50 %v, p99 %v, max %v of %d", probes.P50, probes.P99, probes.Max, probes.Count)
	t.Logf("the longest step took %.1f ms of the processor, %.1f ms before; %.0f MiB of memory", longest*1000, step*1000, memory/(1<<20))
	t.Logf("open at the end: %d idle connections, %d watches, %d slow requests; %d lines read", report.Idle, report.Watches, report.Slow, report.Events)
	t.Logf("answers: %v; %d requests were closed without one", report.Answers, report.Unanswered)

	if len(probes.Failed) > 0 || probes.P99 > patience {
		t.Errorf("probes were answered within %v at p99, and failed: %q", probes.P99, probes.Failed)
	}
	if longest > step+0.010 {
		t.Errorf("a step of the engine took %.1f ms of the processor, %.1f ms before", longest*1000, step*1000)
	}
	if memory > float64(largest) {
		t.Errorf("it took %.0f MiB of memory", memory/(1<<20))
	}
	if len(report.Undocumented) > 0 {
		t.Errorf("answers that /openapi.json doesn't know: %q", report.Undocumented)
	}
	if report.Watches < plan.Watches*9/10 {
		t.Errorf("%d watches of %d were open", report.Watches, plan.Watches)
	}
	for answer, count := range c.failuresServed() {
		if count > failures[answer] {
			t.Errorf("answers that say that Muster failed: %s %v, %v before", answer, count, failures[answer])
		}
	}
	c.startGang("after")
	if _, refused, last := knocking.counts(); refused > 0 {
		t.Errorf("%d pods were refused, the last one because %v", refused, last)
	}
	knocking.stop(t)
}

// startGang has a gang start on the four nodes, and takes it away again.
func (c *Case) startGang(name string) {
	c.Helper()
	g := c.Gang(name, 4, 1)
	begin := time.Now()
	g.AwaitBound(30 * time.Second)
	c.Logf("gang %s was bound after %v", name, time.Since(begin).Round(time.Millisecond))
	g.Delete()
}

// metricsText is what Prometheus would get, which the flood may make wait: it comes to the same port.
func (c *Case) metricsText() string {
	c.Helper()
	client := http.Client{Timeout: 30 * time.Second}
	var last error
	for range 3 {
		response, err := client.Get("http://" + shared.Muster.Address + "/metrics")
		if last = err; err != nil {
			continue
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if last = err; err == nil && response.StatusCode == http.StatusOK {
			return string(body)
		}
	}
	c.Fatalf("no metrics within 90 s: %v", last)
	return ""
}

// metric reads one without labels.
func (c *Case) metric(name string) float64 {
	c.Helper()
	for _, line := range strings.Split(c.metricsText(), "\n") {
		if rest, found := strings.CutPrefix(line, name+" "); found {
			value, err := strconv.ParseFloat(rest, 64)
			c.must(err)
			return value
		}
	}
	c.Fatalf("no metric %s", name)
	return 0
}

var servedFailures = regexp.MustCompile(`(?m)^muster_http_request_seconds_count(\{.*status="5\d\d".*\}) (\d+)$`)

// failuresServed is what Muster itself has counted as its failure since it began, whoever asked.
func (c *Case) failuresServed() map[string]int {
	c.Helper()
	found := map[string]int{}
	for _, match := range servedFailures.FindAllStringSubmatch(c.metricsText(), -1) {
		count, err := strconv.Atoi(match[2])
		c.must(err)
		found[match[1]] = count
	}
	return found
}
