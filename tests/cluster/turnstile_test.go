package cluster

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/tests/cluster/plane"
)

// A write that a turnstile counts: what Muster asks the API server for, seen
// from the API server.
type write struct {
	name      string
	resource  string // with subresource
	operation registrationv1.OperationType
	// Tells this write from others of the same resource; nil takes all.
	matches func(before, after *corev1.Pod) bool
	// Tells pods to which it was done.
	done func(*corev1.Pod) bool
}

var (
	signalWrite = write{
		name: "signal", resource: "pods/status", operation: registrationv1.Update,
		matches: func(before, after *corev1.Pod) bool { return !signalled(before) && signalled(after) },
		done:    signalled,
	}
	gateLift = write{
		name: "gate lift", resource: "pods", operation: registrationv1.Update,
		matches: func(before, after *corev1.Pod) bool { return gated(before) && !gated(after) },
		done:    func(pod *corev1.Pod) bool { return !gated(pod) },
	}
	binding = write{
		name: "binding", resource: "pods/binding", operation: registrationv1.Create,
		done: bound,
	}
)

// turnstile is an admission webhook of the test's own that lets the first few
// of Muster's writes into a namespace pass and keeps the rest waiting. However
// Muster sends them, it can then be killed exactly between two of them.
type turnstile struct {
	write   write
	allowed int

	mutex   sync.Mutex
	passed  map[string]bool // by pod: a write may be sent again
	waiting int
	closed  chan struct{} // Muster is dead: refuse what still waits
	open    bool          // let everything pass
}

func (c *Case) turnstile(counted write, allowed int) *turnstile {
	c.Helper()
	t := &turnstile{write: counted, allowed: allowed, passed: map[string]bool{}, closed: make(chan struct{})}
	c.reviewWrites(t.admit, registrationv1.ValidatingWebhook{
		Name:              "turnstile.tests.muster.dev",
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: c.Namespace}},
		Rules: []registrationv1.RuleWithOperations{{
			Operations: []registrationv1.OperationType{counted.operation},
			Rule:       registrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{counted.resource}},
		}},
	})
	c.Cleanup(t.letAllPass)
	return t
}

// reviewWrites makes the API server ask before it stores what Muster and its
// kube-scheduler write and the webhooks' rules name.
func (c *Case) reviewWrites(admit func(context.Context, *admissionv1.AdmissionRequest) bool, webhooks ...registrationv1.ValidatingWebhook) {
	c.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(request.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(response, "no AdmissionReview", http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: admit(request.Context(), review.Request)}
		review.Request = nil
		response.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(response).Encode(review)
	}))
	fail, none, timeout := registrationv1.Fail, registrationv1.SideEffectClassNone, int32(30)
	for i := range webhooks {
		webhooks[i].ClientConfig = registrationv1.WebhookClientConfig{
			URL:      &server.URL,
			CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		}
		webhooks[i].MatchConditions = []registrationv1.MatchCondition{{
			Name: "muster", Expression: fmt.Sprintf("request.userInfo.username == %q", plane.ServiceAccount),
		}}
		webhooks[i].FailurePolicy = &fail
		webhooks[i].SideEffects = &none
		webhooks[i].TimeoutSeconds = &timeout
		webhooks[i].AdmissionReviewVersions = []string{"v1"}
	}
	configurations := shared.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	created, err := configurations.Create(c.Context(), &registrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{GenerateName: c.Namespace + "-"},
		Webhooks:   webhooks,
	}, metav1.CreateOptions{})
	c.must(err)
	c.Cleanup(func() {
		_ = configurations.Delete(context.Background(), created.Name, metav1.DeleteOptions{})
		server.Close()
	})
	// The API server follows its registrations by watch.
	time.Sleep(time.Second)
}

// awaitFull waits until the allowed writes to a gang are stored and another
// one waits.
func (t *turnstile) awaitFull(g *Gang, patience time.Duration) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		t.mutex.Lock()
		passed, waiting := len(t.passed), t.waiting
		t.mutex.Unlock()
		if g.Count(t.write.done) == t.allowed && waiting > 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after %v %d members have passed (%s) and %d writes wait", patience, passed, t.write.name, waiting)
		}
	}
}

// letAllPass refuses the writes that wait and lets all later ones pass.
func (t *turnstile) letAllPass() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if !t.open {
		t.open = true
		close(t.closed)
	}
}

func (t *turnstile) admit(ctx context.Context, request *admissionv1.AdmissionRequest) bool {
	if t.write.matches != nil {
		var before, after corev1.Pod
		if json.Unmarshal(request.OldObject.Raw, &before) != nil || json.Unmarshal(request.Object.Raw, &after) != nil {
			return false
		}
		if !t.write.matches(&before, &after) {
			return true
		}
	}
	t.mutex.Lock()
	if t.open || t.passed[request.Name] || len(t.passed) < t.allowed {
		t.passed[request.Name] = true
		t.mutex.Unlock()
		return true
	}
	t.waiting++
	t.mutex.Unlock()
	select {
	case <-t.closed:
	case <-ctx.Done():
	}
	return false
}
