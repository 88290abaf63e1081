package cluster

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
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
	delays  bool          // what still waits passes as well then
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

// letAllPass refuses the writes that wait, unless it only delays, and lets all later ones pass.
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
		return t.delays
	case <-ctx.Done():
		return false
	}
}

// lock lets so many of somebody's writes into a case pass, whatever they are, and keeps the rest waiting
// until it is opened.
type lock struct {
	allowed int
	// The rest passes as well: it only tells when that many have.
	onlyTells bool
	// Tells the writes of interest from others'; nil takes all.
	counts func(*admissionv1.AdmissionRequest) bool

	mutex  sync.Mutex
	step   string
	passed []passage
	held   []passage
	full   chan struct{} // closed once one waits, or that many have passed
	opened chan struct{}
	refuse bool // what has waited
}

// passage is one write, as what it changes.
type passage struct {
	step, name, object string
}

func (p passage) String() string { return p.name }

// What only reports: it says what is so already, and comes at any time.
var reports = []string{"events", "localqueues/status", "podgroups/status", "pods/status"}

// lock makes one for the case's namespace and its nodes.
func (c *Case) lock(allowed int, counts func(*admissionv1.AdmissionRequest) bool) *lock {
	c.Helper()
	l := &lock{allowed: allowed, counts: counts, full: make(chan struct{}), opened: make(chan struct{})}
	rules := func(scope registrationv1.ScopeType, resources ...string) []registrationv1.RuleWithOperations {
		return []registrationv1.RuleWithOperations{{
			Operations: []registrationv1.OperationType{registrationv1.OperationAll},
			Rule:       registrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: resources, Scope: &scope},
		}}
	}
	c.reviewWrites(l.admit,
		registrationv1.ValidatingWebhook{
			Name:              "lock.tests.muster.dev",
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: c.Namespace}},
			Rules:             rules(registrationv1.NamespacedScope, "*/*"),
		},
		registrationv1.ValidatingWebhook{
			Name:           "nodes.lock.tests.muster.dev",
			ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{caseLabel: c.Namespace}},
			Rules:          rules(registrationv1.ClusterScope, "nodes"),
		})
	c.Cleanup(func() { l.open(true) })
	return l
}

// begins names what the case does from now on.
func (l *lock) begins(step string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.step = step
}

func (l *lock) present() string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.step
}

// open lets all that comes from now on pass, and what waits either as well or not at all.
func (l *lock) open(refuse bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	select {
	case <-l.opened:
	default:
		l.refuse = refuse
		close(l.opened)
	}
}

// around are the last write that passed and those that were held.
func (l *lock) around() (last passage, held []passage) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if len(l.passed) > 0 {
		last = l.passed[min(l.allowed, len(l.passed))-1]
	}
	return last, slices.Clone(l.held)
}

// all are the writes that passed.
func (l *lock) all() []passage {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return slices.Clone(l.passed)
}

func (l *lock) admit(ctx context.Context, request *admissionv1.AdmissionRequest) bool {
	resource := request.Resource.Resource
	if request.SubResource != "" {
		resource += "/" + request.SubResource
	}
	if slices.Contains(reports, resource) || l.counts != nil && !l.counts(request) {
		return true
	}
	l.mutex.Lock()
	one := passage{l.step, resource + ": " + changes(request), request.Name}
	select {
	case <-l.opened:
		l.passed = append(l.passed, one)
		l.mutex.Unlock()
		return true
	default:
	}
	if l.onlyTells || len(l.passed) < l.allowed {
		l.passed = append(l.passed, one)
		if l.onlyTells && len(l.passed) == l.allowed {
			close(l.full)
		}
		l.mutex.Unlock()
		return true
	}
	l.held = append(l.held, one)
	if len(l.held) == 1 {
		close(l.full)
	}
	l.mutex.Unlock()
	select {
	case <-l.opened:
		l.mutex.Lock()
		defer l.mutex.Unlock()
		return !l.refuse
	case <-ctx.Done():
		return false
	}
}

// changes says which fields a write changes, and the conditions that it sets.
func changes(request *admissionv1.AdmissionRequest) string {
	if request.Operation != admissionv1.Update {
		return strings.ToLower(string(request.Operation))
	}
	var before, after map[string]any
	if json.Unmarshal(request.OldObject.Raw, &before) != nil || json.Unmarshal(request.Object.Raw, &after) != nil {
		return "unreadable"
	}
	var fields []string
	for _, part := range []string{"metadata", "spec", "status"} {
		was, _ := before[part].(map[string]any)
		is, _ := after[part].(map[string]any)
		names := slices.Collect(maps.Keys(was))
		for name := range is {
			if _, both := was[name]; !both {
				names = append(names, name)
			}
		}
		for _, name := range names {
			switch {
			case reflect.DeepEqual(was[name], is[name]):
			case slices.Contains([]string{"managedFields", "resourceVersion", "generation"}, name):
			case name == "conditions":
				fields = append(fields, conditionChanges(was[name], is[name])...)
			case is[name] == nil:
				fields = append(fields, "no "+name)
			default:
				if flag, ok := is[name].(bool); ok {
					name += fmt.Sprintf("=%v", flag)
				}
				fields = append(fields, name)
			}
		}
	}
	slices.Sort(fields)
	if len(fields) == 0 {
		return "nothing"
	}
	return strings.Join(fields, " ")
}

func conditionChanges(before, after any) (changed []string) {
	read := func(list any) map[string]string {
		conditions := map[string]string{}
		items, _ := list.([]any)
		for _, item := range items {
			one, _ := item.(map[string]any)
			conditions[text(one, "type")] = text(one, "status")
		}
		return conditions
	}
	was, is := read(before), read(after)
	for name, status := range is {
		if was[name] != status {
			changed = append(changed, name+"="+status)
		}
	}
	for name := range was {
		if is[name] == "" {
			changed = append(changed, "no "+name)
		}
	}
	if len(changed) == 0 {
		return []string{"messages"}
	}
	return changed
}
