package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Who only has kubectl reads the same story as who asks Muster.
func TestKubectlDescribePodGroupTellsTheStory(t *testing.T) {
	t.Parallel()
	c := newGangCase(t, "describe")
	c.NodePool("pool", 1, 2, 2*time.Second)
	g := c.Gang("train", 2, 1)
	answers := g.followAnswers()
	g.AwaitBound(time.Minute)
	answers.await()

	// Events are written behind the decisions.
	deadline := time.Now().Add(10 * time.Second)
	for {
		output, err := shared.Kubectl("describe", "pg", g.Name, "--namespace="+c.Namespace)
		c.must(err)
		missing := answers.missingFrom(output)
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("kubectl describe podgroup has no event %s:\n%s", missing, output)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// missingFrom names the first reason that REST gave for longer than a moment, or last, and the events of
// kubectl describe don't, or "".
func (a *answers) missingFrom(description string) string {
	_, events, found := strings.Cut(description, "Events:")
	if !found {
		return "at all"
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	for i, code := range a.codes {
		if i+1 < len(a.codes) && a.since[i+1].Sub(a.since[i]) < 1500*time.Millisecond {
			continue
		}
		if !strings.Contains(events, camelCase(code)) {
			return fmt.Sprintf("%s (REST gave %v)", camelCase(code), a.codes)
		}
	}
	return ""
}

// camelCase spells an enum's name as events and conditions do.
func camelCase(name string) string {
	var out strings.Builder
	for _, word := range strings.Split(name, "_") {
		if word != "" {
			out.WriteString(word[:1] + strings.ToLower(word[1:]))
		}
	}
	return out.String()
}
