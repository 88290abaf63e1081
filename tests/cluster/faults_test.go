package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"muster.dev/tests/cluster/faults"
)

// nodeClass makes a KWOKNodeClass, with an order if something shall go wrong,
// and waits until Karpenter has understood it. In the end each fault must have
// happened.
func (c *Case) nodeClass(name string, delay time.Duration, wrong []faults.Fault) error {
	if len(wrong) == 0 {
		return c.createNodeClass(name, delay, "")
	}
	order, err := json.Marshal(wrong)
	if err != nil {
		return err
	}
	if err := c.createNodeClass(name, delay, string(order)); err != nil {
		return err
	}
	c.Cleanup(func() { c.checkFaultsHappened(name, wrong) })
	return c.awaitFaultsAccepted(name)
}

func (c *Case) createNodeClass(name string, delay time.Duration, order string) error {
	metadata := map[string]any{"name": name, "labels": map[string]any{caseLabel: c.Namespace}}
	if order != "" {
		metadata["annotations"] = map[string]any{faults.OrderAnnotation: order}
	}
	_, err := shared.Dynamic.Resource(nodeClassResource).Create(c.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "karpenter.kwok.sh/v1alpha1",
		"kind":       "KWOKNodeClass",
		"metadata":   metadata,
		"spec":       map[string]any{"nodeRegistrationDelay": delay.String()},
	}}, metav1.CreateOptions{})
	return err
}

func (c *Case) awaitFaultsAccepted(class string) error {
	deadline := time.Now().Add(30 * time.Second)
	for time.Now().Before(deadline) {
		now, err := shared.Dynamic.Resource(nodeClassResource).Get(c.Context(), class, metav1.GetOptions{})
		if err != nil {
			return err
		}
		switch answer := now.GetAnnotations()[faults.AnswerAnnotation]; answer {
		case faults.Accepted:
			return nil
		case "":
			time.Sleep(50 * time.Millisecond)
		default:
			return fmt.Errorf("%s: %s", class, answer)
		}
	}
	return errors.New(class + ": Karpenter doesn't answer the order")
}

// checkFaultsHappened: a case whose fault never came has shown nothing.
func (c *Case) checkFaultsHappened(class string, wrong []faults.Fault) {
	// The test's own context ends before its cleanups.
	now, err := shared.Dynamic.Resource(nodeClassResource).Get(context.Background(), class, metav1.GetOptions{})
	if err != nil {
		c.Errorf("what became of the faults? %v", err)
		return
	}
	if answer := now.GetAnnotations()[faults.AnswerAnnotation]; answer != faults.Accepted {
		c.Errorf("%s: %s", class, answer)
	}
	for place, fault := range wrong {
		if now.GetAnnotations()[faults.HappenedAnnotation(place)] == "" {
			c.Errorf("%s: %s was ordered and befell no launch", class, fault.Kind)
		}
	}
}

// startupTaints are the taints that a NodePool tells Karpenter to expect.
func startupTaints(wrong []faults.Fault) []any {
	taints := []any{}
	known := map[string]bool{}
	for _, fault := range wrong {
		if fault.Kind == faults.Taint && !known[fault.Taint] {
			known[fault.Taint] = true
			taints = append(taints, map[string]any{"key": fault.Taint, "effect": "NoSchedule"})
		}
	}
	return taints
}

// An order that can't be carried out is refused; the case doesn't run without
// the faults that it is about.
func TestOrderThatCannotBeCarriedOutIsRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ order, words string }{
		"no JSON":               {`it breaks`, "not a list of faults"},
		"no list":               {`{"kind":"Drift"}`, "not a list of faults"},
		"two lists":             {`[] []`, "something follows"},
		"unknown fault":         {`[{"kind":"Drift"},{"kind":"Fire"}]`, "fault 1, Fire: no such kind"},
		"unknown field":         {`[{"kind":"Drift","after":3}]`, `unknown field "after"`},
		"negative delay":        {`[{"kind":"LaunchDelay","delaySeconds":-1}]`, "a time below 0: delaySeconds -1"},
		"half a second":         {`[{"kind":"LaunchDelay","delaySeconds":0.5}]`, "0.5"},
		"launch 0":              {`[{"kind":"Drift","launches":[0]}]`, "launches count from 1"},
		"from launch -1":        {`[{"kind":"Drift","fromLaunch":-1}]`, "launches count from 1"},
		"some and all later":    {`[{"kind":"Drift","launches":[1],"fromLaunch":2}]`, "exclude each other"},
		"no delay":              {`[{"kind":"RegistrationDelay"}]`, "delaySeconds is missing"},
		"field of another kind": {`[{"kind":"NeverRegisters","lastsSeconds":3}]`, "lastsSeconds means nothing here"},
		"no devices":            {`[{"kind":"Devices"}]`, "resources is missing"},
		"-1 GPUs":               {`[{"kind":"Devices","resources":{"nvidia.com/gpu":-1}}]`, "nvidia.com/gpu is -1, below 0"},
		"offering by name":      {`[{"kind":"InsufficientCapacity","offering":{"name":"p5"}}]`, "offering: name is none of"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newStockCase(t, "order")
			c.must(c.createNodeClass(c.Namespace, time.Second, test.order))
			err := c.awaitFaultsAccepted(c.Namespace)
			if err == nil || !strings.Contains(err.Error(), "refused: ") || !strings.Contains(err.Error(), test.words) {
				t.Errorf("%s: answered %v, want it refused with %q", test.order, err, test.words)
			}
		})
	}
}
