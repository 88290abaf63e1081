package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/tests/cluster/plane"
)

// These cases break what every pod of our schedulerName goes through, so they
// don't run beside others.

// While Muster is down, its pods are refused and nobody else's are touched.
// When it is back, nobody has to do anything.
func TestWhileMusterIsDownNoPodGetsInUngated(t *testing.T) {
	c := newGangCase(t, "down")
	c.Nodes(2, 1)
	knocking := c.knock()

	c.must(knocking.awaitAdmitted(10 * time.Second))
	shared.Muster.Kill()
	killed := time.Now()
	c.must(knocking.awaitRefused(10 * time.Second))

	other := &Gang{Case: c, Name: "other", Members: []string{"other-0"}}
	if pod := c.Create(c.Pod(other.Members[0], "default-scheduler", 1)); gated(pod) {
		t.Errorf("a pod of another scheduler was gated: %v", pod.Spec.SchedulingGates)
	}
	other.AwaitAll("running", 10*time.Second, func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })

	c.must(shared.Muster.Start(plane.Launch{}))
	ready := time.Now()
	c.must(knocking.awaitAdmitted(5 * time.Second))
	t.Logf("down for %v, pods were admitted again %v after Muster was ready",
		ready.Sub(killed).Round(time.Millisecond), time.Since(ready).Round(time.Millisecond))
	knocking.stop(t)
}

// While the API server doesn't trust Muster's certificate, pods are refused;
// Muster puts the bundle right, at once when it runs and else when it starts.
func TestWhileTheCertificateIsNotTrustedNoPodGetsInUngated(t *testing.T) {
	c := newGangCase(t, "untrusted")
	knocking := c.knock()
	c.must(knocking.awaitAdmitted(10 * time.Second))

	foreign, err := plane.NewAuthority("somebody else")
	c.must(err)
	bundle := foreign.PEM()
	c.setBundle(bundle)
	c.awaitBundleRestored(bundle, 15*time.Second)
	c.must(knocking.awaitAdmitted(10 * time.Second))

	// While nobody can put it right.
	shared.Muster.Kill()
	c.setBundle(bundle)
	c.must(knocking.awaitRefused(10 * time.Second))
	c.must(shared.Muster.Start(plane.Launch{}))
	c.must(knocking.awaitAdmitted(5 * time.Second))
	knocking.stop(t)
}

// A certificate of the cluster owner's own that nobody renewed in time: pods
// are refused, others aren't touched, and new files are all it takes.
func TestWhileTheCertificateHasExpiredNoPodGetsInUngated(t *testing.T) {
	c := newCase(t, "expired")
	c.Nodes(1, 1)
	shared.Muster.Kill()
	t.Cleanup(shared.Muster.Kill) // the next case starts it as usual

	const validity = 5 * time.Second
	folder := t.TempDir()
	authority, err := plane.NewAuthority("the cluster owner's")
	c.must(err)
	serving := filepath.Join(folder, "serving")
	c.must(authority.WriteServing(serving, "muster", validity))
	expiry := time.Now().Add(validity)
	c.must(os.WriteFile(serving+".ca", authority.PEM(), 0o600))
	c.must(shared.Muster.Start(plane.Launch{
		Webhook: map[string]string{"certFile": serving + ".crt", "keyFile": serving + ".key", "caFile": serving + ".ca"},
	}))

	// A connection that was made before would outlive the certificate.
	time.Sleep(time.Until(expiry.Add(time.Second)))
	knocking := c.knock()
	c.must(knocking.awaitRefused(10 * time.Second))
	if _, _, last := knocking.counts(); !strings.Contains(last.Error(), "expired") {
		t.Errorf("the refusal doesn't say that a certificate has expired: %v", last)
	}
	other := &Gang{Case: c, Name: "other", Members: []string{"other-0"}}
	c.Create(c.Pod(other.Members[0], "default-scheduler", 1))
	other.AwaitAll("running", 10*time.Second, func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })

	c.must(authority.WriteServing(serving, "muster", time.Hour))
	renewed := time.Now()
	c.must(knocking.awaitAdmitted(20 * time.Second))
	t.Logf("pods were admitted again %v after the files were renewed", time.Since(renewed).Round(time.Millisecond))
	knocking.stop(t)
}

// webhook finds Muster's registration by what it is for.
func (c *Case) webhook() *admissionv1.MutatingWebhookConfiguration {
	c.Helper()
	all, err := shared.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().List(context.Background(), metav1.ListOptions{})
	c.must(err)
	for i := range all.Items {
		for _, hook := range all.Items[i].Webhooks {
			for _, condition := range hook.MatchConditions {
				if strings.Contains(condition.Expression, "schedulerName") {
					return &all.Items[i]
				}
			}
		}
	}
	c.Fatalf("no webhook with a matchCondition on schedulerName among %d", len(all.Items))
	return nil
}

// removeMuster ends Muster and its gate for good, as extender/admission/README.md says.
func (c *Case) removeMuster() {
	c.Helper()
	c.must(shared.Muster.Stop())
	err := shared.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(
		context.Background(), "muster-admission", metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		c.must(err)
	}
}

func (c *Case) setBundle(bundle []byte) {
	c.Helper()
	registration := c.webhook()
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value []byte `json:"value"`
	}
	var patch []operation
	for i := range registration.Webhooks {
		patch = append(patch, operation{Op: "replace", Path: fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", i), Value: bundle})
	}
	content, err := json.Marshal(patch)
	c.must(err)
	_, err = shared.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(
		c.Context(), registration.Name, types.JSONPatchType, content, metav1.PatchOptions{})
	c.must(err)
}

func (c *Case) awaitBundleRestored(foreign []byte, patience time.Duration) {
	c.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if !bytes.Equal(c.webhook().Webhooks[0].ClientConfig.CABundle, foreign) {
			return
		}
	}
	c.Fatalf("Muster didn't put its caBundle back within %v", patience)
}

// knocking creates pods of our schedulerName one after another, and looks at
// what the API server lets in.
type knocking struct {
	*Case
	cancel context.CancelFunc
	done   chan struct{}

	mutex    sync.Mutex
	admitted int
	refused  int
	last     error
	ungated  []string
}

func (c *Case) knock() *knocking { return c.knockEvery(50*time.Millisecond, math.MaxInt) }

// knockEvery keeps so many of the pods, the newest.
func (c *Case) knockEvery(pause time.Duration, keep int) *knocking {
	ctx, cancel := context.WithCancel(c.Context())
	k := &knocking{Case: c, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(k.done)
		for i := 0; ctx.Err() == nil; i++ {
			// Never runs: no node has so many GPUs.
			pod := c.Pod(fmt.Sprintf("knock-%d", i), plane.SchedulerName, 1000)
			created, err := shared.Client.CoreV1().Pods(c.Namespace).Create(ctx, pod, metav1.CreateOptions{})
			k.saw(created, err)
			if i >= keep {
				name := fmt.Sprintf("knock-%d", i-keep)
				_ = shared.Client.CoreV1().Pods(c.Namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
			}
			time.Sleep(pause)
		}
	}()
	return k
}

func (k *knocking) saw(pod *corev1.Pod, err error) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if err != nil {
		k.refused++
		k.last = err
		return
	}
	k.admitted++
	for _, one := range pod.Spec.SchedulingGates {
		if one.Name == gate {
			return
		}
	}
	k.ungated = append(k.ungated, pod.Name)
}

func (k *knocking) counts() (admitted, refused int, last error) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return k.admitted, k.refused, k.last
}

// awaitAdmitted waits until one more pod is let in than before.
func (k *knocking) awaitAdmitted(patience time.Duration) error {
	before, _, _ := k.counts()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if admitted, _, _ := k.counts(); admitted > before {
			return nil
		}
	}
	_, _, last := k.counts()
	return fmt.Errorf("no pod was admitted within %v: %w", patience, last)
}

// awaitRefused waits until three pods in a row are refused.
func (k *knocking) awaitRefused(patience time.Duration) error {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		admitted, before, _ := k.counts()
		for range 100 {
			time.Sleep(10 * time.Millisecond)
			now, refused, _ := k.counts()
			if now > admitted {
				break
			}
			if refused >= before+3 {
				return nil
			}
		}
	}
	return fmt.Errorf("pods of our schedulerName are still admitted after %v", patience)
}

// stop ends the knocking and judges it.
func (k *knocking) stop(t *testing.T) {
	t.Helper()
	k.cancel()
	<-k.done
	admitted, refused, last := k.counts()
	if len(k.ungated) > 0 {
		t.Errorf("%d pods got in ungated: %v", len(k.ungated), k.ungated)
	}
	if refused > 0 && !strings.Contains(last.Error(), "webhook") && !strings.Contains(last.Error(), "context canceled") {
		t.Errorf("the refusal doesn't name the webhook: %v", last)
	}
	t.Logf("%d pods admitted, all gated; %d refused", admitted, refused)
}
