package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"muster.dev/tests/cluster/plane"
)

// A real Prometheus that scrapes both replicas as the chart's ServiceMonitor says, with the chart's own
// rules and at the chart's own intervals, but for the time: an hour is a minute here. What isn't
// Prometheus' own keeps its time, so that a takeover of some seconds counts as one of some minutes.
const hourIsAMinute = 60

// How long an alert may take to fire once its fault is there: `for`, and what Muster takes to notice.
const firesWithin = 75 * time.Second

// alertFault makes what an alert is about, and it lasts until the case that it is handed ends.
type alertFault struct {
	alert string
	make  func(w *watched, c *Case)
	// What else is true of that fault.
	implies []string
}

var alertFaults = []alertFault{
	{alert: "MusterNobodyLeads", make: (*watched).crashSchedulers},
	// Whose gate nobody asks isn't ready.
	{alert: "MusterGateNotInPlace", make: (*watched).deleteWebhook, implies: []string{"MusterNotReady"}},
	{alert: "MusterCertificateExpires", make: (*watched).letCertificateExpire},
	// Whose watch doesn't come back at once isn't ready either, soon.
	{alert: "MusterWatchBroken", make: (*watched).forbidClaims, implies: []string{"MusterNotReady"}},
	// For longer.
	{alert: "MusterNotReady", make: (*watched).forbidClaims, implies: []string{"MusterWatchBroken"}},
	{alert: "MusterAnotherKueue", make: (*watched).holdKueuesLease},
	{alert: "MusterQueueInactive", make: (*watched).makeQueueWithoutFlavor},
	{alert: "MusterObjectsUnreadable", make: (*watched).makeUnreadable},
	{alert: "MusterWriteRefused", make: (*watched).refuseWrites},
	{alert: "MusterEventsLost", make: (*watched).refuseEvents},
	{alert: "MusterApiServerFailing", make: (*watched).failWrites},
	{alert: "MusterConnectionsRefused", make: (*watched).holdConnections},
	{alert: "MusterGangsRestart", make: (*watched).loseNodes},
	{alert: "MusterLeadChangesOften", make: (*watched).changeLeaders, implies: []string{"MusterNobodyLeads"}},
	{alert: "MusterEngineBusy", make: (*watched).throttleEngine},
	{alert: "MusterFilterSlow", make: (*watched).throttleFilter},
}

// Each of the chart's alerts fires when its fault is made, and no other does; none fires while gangs
// come and go without a fault; and each query of the dashboard has an answer.
func TestPeerPrometheusSeesEachFault(t *testing.T) {
	w := startWatched(t)
	w.calm(t)
	known := map[string]bool{}
	for _, fault := range alertFaults {
		known[fault.alert] = true
		t.Run(fault.alert, func(t *testing.T) { w.judge(t, fault) })
		w.settle(t)
	}
	for _, alert := range w.rules {
		if !known[alert] {
			t.Errorf("%s is never seen firing", alert)
		}
	}
	w.checkDashboard()
}

// watched is two replicas and who watches them.
type watched struct {
	*testing.T
	*replicas
	prometheus *plane.Prometheus
	leads      atomic.Pointer[plane.Replica]
	begin      time.Time
	rules      []string            // the names of the alerts
	queries    map[string][]string // of the dashboard, by panel
	serving    string              // where the webhook's certificate is
	authority  *plane.Authority

	mutex  sync.Mutex
	states map[string]string    // of the alerts, that aren't inactive
	fired  map[string]time.Time // when each began to fire last
}

func startWatched(t *testing.T) *watched {
	t.Helper()
	installQueues(t)
	w := &watched{T: t, begin: time.Now(), fired: map[string]time.Time{}, queries: map[string][]string{}}
	// The cluster owner's own certificate, as with webhook.certificateSecret.
	var err error
	w.authority, err = plane.NewAuthority("the cluster owner's")
	w.must(err)
	w.serving = filepath.Join(t.TempDir(), "serving")
	w.must(w.authority.WriteServing(w.serving, "muster", 24*time.Hour))
	w.must(os.WriteFile(w.serving+".ca", w.authority.PEM(), 0o600))
	w.replicas = startReplicasWith(t, plane.Launch{
		Webhook: map[string]string{"certFile": w.serving + ".crt", "keyFile": w.serving + ".key", "caFile": w.serving + ".ca"},
		Engine:  map[string]any{"nodeGrace": "1s", "repairDeadline": "5s"},
	}, "north", "south")
	w.follow(t)

	rules, config := w.readChart()
	w.prometheus, err = shared.StartPrometheus(config, map[string]string{"rules.yaml": rules})
	w.must(err)
	t.Cleanup(w.prometheus.Stop)
	// Until then nobody leads as far as it knows.
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		scraped, err := w.prometheus.Value("sum(up)")
		w.must(err)
		states, err := w.prometheus.Alerts()
		w.must(err)
		if scraped == float64(len(w.all)) && len(states) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("prometheus has scraped %v of %d replicas; alerts: %v", scraped, len(w.all), states)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ; ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
			w.look()
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return w
}

func (w *watched) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// mended is for the end of a fault.
func (w *watched) mended(err error) {
	w.Helper()
	if err != nil {
		w.Error(err)
	}
}

// follow waits until one leads and both are ready.
func (w *watched) follow(t *testing.T) (leader, follower *plane.Replica) {
	t.Helper()
	leader, follower = w.awaitLeader(t)
	w.leads.Store(leader)
	return leader, follower
}

func (w *watched) muster() *plane.Muster { return w.leads.Load().Muster }

// readChart renders the rules, the dashboard's queries and what is scraped.
func (w *watched) readChart() (rules, config string) {
	w.Helper()
	helm, err := exec.Command("../chart/build.sh", "--where").Output()
	w.must(err)
	rendered, err := exec.Command(strings.TrimSpace(string(helm)), "template", "muster", chartFolder, "--namespace=muster-system",
		"--kube-version=v1.34.2", "--set=serviceMonitor.enabled=true,prometheusRule.enabled=true,dashboard.enabled=true").Output()
	w.must(err)
	for _, document := range strings.Split("\n"+string(rendered), "\n---\n") {
		var object struct {
			Kind string
			Spec struct {
				Endpoints []struct{ Path, Interval string }
				Groups    []struct{ Rules []struct{ Alert string } }
			}
			Data map[string]string
		}
		w.must(yaml.Unmarshal([]byte(document), &object))
		switch {
		case object.Kind == "ServiceMonitor":
			config = w.scrapes(object.Spec.Endpoints[0].Path, shorter(object.Spec.Endpoints[0].Interval))
		case object.Kind == "PrometheusRule":
			for _, rule := range object.Spec.Groups[0].Rules {
				w.rules = append(w.rules, rule.Alert)
			}
			var whole struct{ Spec any }
			w.must(yaml.Unmarshal([]byte(document), &whole))
			text, err := yaml.Marshal(whole.Spec)
			w.must(err)
			rules = regexp.MustCompile(`\bfor: \w+`).ReplaceAllStringFunc(string(text), func(found string) string {
				return "for: " + shorter(strings.TrimPrefix(found, "for: "))
			})
			rules = shorterWindows(rules)
		case object.Data["muster.json"] != "":
			w.readDashboard(object.Data["muster.json"])
		}
	}
	if len(w.rules) == 0 || config == "" || len(w.queries) == 0 {
		w.Fatalf("the chart has %d alerts and %d panels", len(w.rules), len(w.queries))
	}
	return rules, config
}

// scrapes is what Prometheus' operator makes of the ServiceMonitor.
func (w *watched) scrapes(path, interval string) string {
	config := fmt.Sprintf(`global: {scrape_interval: %[1]s, scrape_timeout: %[1]s, evaluation_interval: %[1]s}
rule_files: [rules.yaml]
scrape_configs:
- job_name: muster-metrics
  metrics_path: %[2]s
  static_configs:
`, interval, path)
	for _, replica := range w.all {
		config += fmt.Sprintf("  - {targets: [%q], labels: {pod: muster-%s, namespace: muster-system, service: muster-metrics, endpoint: http}}\n",
			replica.Muster.Address, replica.Host)
	}
	return config
}

func (w *watched) readDashboard(text string) {
	w.Helper()
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
	}
	w.must(json.Unmarshal([]byte(text), &dashboard))
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			// Grafana's least, four times the interval, with some room.
			name := fmt.Sprintf("%s (%d)", panel.Title, panel.ID)
			w.queries[name] = append(w.queries[name], strings.ReplaceAll(target.Expr, "$__rate_interval", "5s"))
		}
	}
}

// shorter is a duration of Prometheus', of seconds, minutes or hours, in the test's time.
func shorter(text string) string {
	length, err := time.ParseDuration(text)
	if err != nil {
		panic(fmt.Sprintf("the chart has a duration %q", text))
	}
	return strconv.FormatInt((length/hourIsAMinute).Milliseconds(), 10) + "ms"
}

func shorterWindows(expression string) string {
	return regexp.MustCompile(`\[\w+\]`).ReplaceAllStringFunc(expression, func(window string) string {
		return "[" + shorter(strings.Trim(window, "[]")) + "]"
	})
}

// look notes how the alerts stand.
func (w *watched) look() {
	states, err := w.prometheus.Alerts()
	if err != nil {
		return // it may have ended; who waits for an alert says so
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for alert, state := range states {
		if state == "firing" && w.states[alert] != "firing" {
			w.fired[alert] = time.Now()
		}
	}
	w.states = states
}

// since names the alerts that began to fire since then.
func (w *watched) since(then time.Time) []string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	var names []string
	for _, alert := range slices.Sorted(maps.Keys(w.fired)) {
		if w.fired[alert].After(then) {
			names = append(names, alert)
		}
	}
	return names
}

// settle waits until all is as it was before a fault: whatever would fire later because of it either
// has or won't.
func (w *watched) settle(t *testing.T) {
	w.Helper()
	// The Lease's last holder may be none any more.
	for deadline := time.Now().Add(time.Minute); !slices.ContainsFunc(w.all, leads); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a minute after a fault nobody leads")
		}
	}
	w.follow(t)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		w.mutex.Lock()
		states := maps.Clone(w.states)
		w.mutex.Unlock()
		if !slices.Contains(slices.Collect(maps.Values(states)), "pending") {
			return
		}
		if time.Now().After(deadline) {
			w.Errorf("a minute after a fault the alerts are %v", states)
			return
		}
	}
}

func leads(replica *plane.Replica) bool { return awaitLeads(replica, 0) == nil }

// newCase is one of the leader's that lasts as long as a fault.
func (w *watched) newCase(t *testing.T) *Case {
	c := newCase(t, "fault")
	c.leader, c.persistent = w.muster, true
	return c
}

// judge makes a fault and says what fires because of it.
func (w *watched) judge(t *testing.T, fault alertFault) {
	began := time.Now()
	var took time.Duration
	t.Run("is made", func(t *testing.T) {
		fault.make(w, w.newCase(t))
		for deadline := began.Add(firesWithin); !slices.Contains(w.since(began), fault.alert); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Errorf("%s doesn't fire within %v; what fires is %v", fault.alert, firesWithin, w.since(began))
				break
			}
		}
		took = time.Since(began)
	})
	w.settle(t)
	var others []string
	for _, alert := range w.since(began) {
		if alert != fault.alert && !slices.Contains(fault.implies, alert) {
			others = append(others, alert)
		}
	}
	if len(others) > 0 {
		t.Errorf("%v fire because of %s's fault", others, fault.alert)
	}
	t.Logf("fired %v after its fault was made; what fires: %v", took.Round(100*time.Millisecond), w.since(began))
}

// calm is a day in which all goes well: gangs come and go, with quota and on nodes that Karpenter makes;
// one displaces another, one gets no node and backs off; somebody applies what lint warns of.
func (w *watched) calm(t *testing.T) {
	w.Helper()
	w.Run("calm", func(t *testing.T) {
		l := newLoad(t, w.muster, preempting)
		l.start()
		time.Sleep(20 * time.Second)
		l.stop()
		c := l.standing
		low := c.prioritizedGang("low", standingNodes, 1, c.PriorityClass(10))
		low.AwaitBound(30 * time.Second)
		high := c.prioritizedGang("high", 4, 1, c.PriorityClass(20))
		dry := w.newCase(t)
		dry.NodePool("pool", 4, 4, time.Second, soldOut)
		thirsty := dry.PodGroup("thirsty", 2, 4)
		thirsty.setScheduleTimeout(8)
		thirsty.AddMembers(2)
		high.AwaitBound(time.Minute)
		_, err := shared.Kubectl("apply", "--filename="+c.write("hasty.yaml", fmt.Sprintf(`
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: {name: hasty, namespace: %s}
spec: {minMember: 2, scheduleTimeoutSeconds: 20}
`, c.Namespace)))
		c.must(err)
		thirsty.awaitState(time.Minute, "BACKING_OFF")
		time.Sleep(2 * time.Second)
		if fired := w.since(w.begin); len(fired) > 0 {
			t.Errorf("without a fault %v fired", fired)
		}
	})
	w.settle(t)
}

// crashSchedulers has both kube-schedulers end as soon as they begin.
func (w *watched) crashSchedulers(c *Case) {
	during(c, 200*time.Millisecond, func() {
		for _, replica := range w.all {
			replica.CrashScheduler()
		}
	})
}

func (w *watched) deleteWebhook(c *Case) {
	_, err := shared.Kubectl("delete", "mutatingwebhookconfiguration", "muster-admission")
	c.must(err)
	c.Cleanup(func() { w.mended(shared.RestoreWebhooks()) })
}

func (w *watched) letCertificateExpire(c *Case) {
	c.must(w.authority.WriteServing(w.serving, "muster", 5*time.Hour))
	c.Cleanup(func() { w.mended(w.authority.WriteServing(w.serving, "muster", 24*time.Hour)) })
}

// forbidClaims takes away the right to read NodeClaims, which the follower notices when it starts.
func (w *watched) forbidClaims(c *Case) {
	const role = "clusterrole/muster"
	before, err := shared.Kubectl("get", role, "--output=json")
	c.must(err)
	path := c.write("role.json", strings.ReplaceAll(before, `"nodeclaims",`, ""))
	_, err = shared.Kubectl("replace", "--filename="+path)
	c.must(err)
	c.Cleanup(func() {
		var object map[string]any
		w.mended(json.Unmarshal([]byte(before), &object))
		delete(object["metadata"].(map[string]any), "resourceVersion")
		content, err := json.Marshal(object)
		w.mended(err)
		_, err = shared.Kubectl("replace", "--filename="+c.write("role.json", string(content)))
		w.mended(err)
	})
	_, follower := w.follow(c.T)
	time.Sleep(time.Second) // the API server follows its roles by watch
	follower.CrashMuster()
}

// holdKueuesLease does what Kueue's manager does to lead.
func (w *watched) holdKueuesLease(c *Case) {
	namespace := strings.TrimSpace(`{apiVersion: v1, kind: Namespace, metadata: {name: kueue-system}}`)
	_, err := shared.Kubectl("apply", "--filename="+c.write("namespace.yaml", namespace))
	c.must(err)
	renew := func() error {
		_, err := shared.Kubectl("apply", "--filename="+c.write("lease.yaml", fmt.Sprintf(`apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: %s, namespace: kueue-system}
spec: {holderIdentity: kueue-controller-manager, leaseDurationSeconds: 15, renewTime: %q}
`, plane.KueueLease, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"))))
		return err
	}
	c.must(renew())
	during(c, time.Second, func() { _ = renew() })
	c.Cleanup(func() {
		_, err := shared.Kubectl("delete", "namespace", "kueue-system")
		w.mended(err)
	})
}

// during does something again and again until the case ends.
func during(c *Case, every time.Duration, do func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ; ctx.Err() == nil; time.Sleep(every) {
			do()
		}
	}()
	c.Cleanup(func() {
		cancel()
		<-done
	})
}

func (w *watched) makeQueueWithoutFlavor(c *Case) {
	_, err := shared.Kubectl("create", "--filename="+c.write("queue.yaml", `apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: lame}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors:
    - name: nowhere
      resources: [{name: nvidia.com/gpu, nominalQuota: 8}]
`))
	c.must(err)
	c.Cleanup(func() {
		_, err := shared.Kubectl("delete", "clusterqueue", "lame", "--timeout=30s")
		w.mended(err)
	})
}

// makeUnreadable makes an object of a version that Muster doesn't know.
func (w *watched) makeUnreadable(c *Case) {
	c.define("karpenter.k8s.aws", "v1", "ec2nodeclasses", "EC2NodeClass")
	_, err := shared.Kubectl("create", "--filename="+c.write("class.yaml", fmt.Sprintf(`apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: from-the-future, namespace: %s}
`, c.Namespace)))
	c.must(err)
	_, err = shared.Kubectl("patch", "ec2nodeclass", "from-the-future", "--namespace="+c.Namespace, "--subresource=status", "--type=merge",
		`--patch={"status":{"subnets":{"us-west-2a":"subnet-1"}}}`)
	c.must(err)
}

// webhookOf makes somebody's webhook for what Muster writes.
func (w *watched) webhookOf(c *Case, resources, config string) {
	_, err := shared.Kubectl("create", "--filename="+c.write("webhook.yaml", fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: %[1]s}
webhooks:
- name: somebodys.tests.muster.dev
  rules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: [%[2]s]}]
  matchConditions: [{name: muster, expression: 'request.userInfo.username == "%[3]s"'}]
  clientConfig: {%[4]s}
  failurePolicy: Fail
  sideEffects: None
  timeoutSeconds: 1
  admissionReviewVersions: [v1]
`, c.Namespace, resources, plane.ServiceAccount, config)))
	c.must(err)
	c.Cleanup(func() {
		_, err := shared.Kubectl("delete", "validatingwebhookconfiguration", c.Namespace)
		w.mended(err)
	})
	time.Sleep(time.Second) // the API server follows its registrations by watch
}

// policyAgainst makes a policy that refuses what Muster writes.
func (w *watched) policyAgainst(c *Case, group, resource string) {
	_, err := shared.Kubectl("create", "--filename="+c.write("policy.yaml", fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: ["%[2]s"], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: [%[3]s]}]
  validations: [{expression: 'request.userInfo.username != "%[4]s"', reason: Forbidden}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [Deny]}
`, c.Namespace, group, resource, plane.ServiceAccount)))
	c.must(err)
	c.Cleanup(func() {
		_, err := shared.Kubectl("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", c.Namespace)
		w.mended(err)
	})
	time.Sleep(2 * time.Second) // likewise
}

func (w *watched) refuseWrites(c *Case) {
	c.Nodes(2, 1)
	w.policyAgainst(c, "", "pods")
	c.Gang("refused", 2, 1)
}

func (w *watched) refuseEvents(c *Case) {
	c.Nodes(2, 1)
	w.policyAgainst(c, "events.k8s.io", "events")
	c.Gang("silent", 2, 1)
}

// failWrites has a webhook that nobody answers for any more, and gangs for which there is something
// to write.
func (w *watched) failWrites(c *Case) {
	c.Nodes(16, 1)
	w.webhookOf(c, `pods, pods/*, nodes, podgroups, podgroups/*`, `url: "https://127.0.0.1:1/"`)
	for i := range 8 {
		c.Gang(fmt.Sprintf("late%d", i), 2, 1)
	}
}

// holdConnections keeps more connections to the kubelet's port than one caller may.
func (w *watched) holdConnections(c *Case) {
	for range 40 {
		connection, err := net.Dial("tcp", w.muster().HealthAddress)
		c.must(err)
		c.Cleanup(func() { connection.Close() })
	}
}

// loseNodes takes the node of a member of each of six gangs away.
func (w *watched) loseNodes(c *Case) {
	const gangs = 6
	c.Nodes(4*gangs, 1)
	var lost []string
	for i := range gangs {
		g := c.replicated(fmt.Sprintf("train%d", i), 2)
		g.AwaitBound(30 * time.Second)
		lost = append(lost, g.nodes()[0].Name)
	}
	for _, node := range lost {
		c.setReady(node, false)
	}
}

// changeLeaders ends one leader after the other, as drains do.
func (w *watched) changeLeaders(c *Case) {
	for range 7 {
		leader, _ := w.follow(c.T)
		before := w.holder()
		c.must(leader.Stop())
		w.leads.Store(w.awaitNext(c.T, drained, leader, before))
		c.must(leader.Start())
	}
}

// throttleEngine leaves the engine a step or two in each second, while gangs wait and nodes change as they
// do by their kubelets' heartbeats.
func (w *watched) throttleEngine(c *Case) {
	nodes := c.Nodes(20, 1)
	for i := range 20 {
		c.Gang(fmt.Sprintf("wait%d", i), 2, 8)
	}
	i := 0
	during(c, 10*time.Millisecond, func() {
		i++
		_, _ = shared.Client.CoreV1().Nodes().Patch(context.Background(), nodes[i%len(nodes)], types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{"tests.muster.dev/beat":"%d"}}}`, i), metav1.PatchOptions{})
	})
	w.throttle(c, 200*time.Microsecond, time.Second, func(name string, _ int) bool { return name == "engine" })
}

// throttleFilter leaves little to the threads that answer kube-scheduler, but not to those that answer
// queries, while kube-scheduler asks about a cluster of many nodes: a few dozen calls in two seconds;
// those that are under way then wait for the next two.
func (w *watched) throttleFilter(c *Case) {
	names := make([]string, 10_000)
	for i := range names {
		names[i] = fmt.Sprintf("ip-10-%d-%d-%d.us-west-2.compute.internal", i>>16, i>>8&255, i&255)
	}
	g := c.Gang("wait", 1, 8)
	pod, err := shared.Client.CoreV1().Pods(c.Namespace).Get(c.Context(), g.Members[0], metav1.GetOptions{})
	c.must(err)
	body, err := json.Marshal(map[string]any{"Pod": pod, "NodeNames": names})
	c.must(err)
	for range 4 {
		during(c, time.Millisecond, func() { ask(w.muster(), body) })
	}
	w.throttle(c, 5*time.Millisecond, 2*time.Second, func(name string, niceness int) bool { return name == "http" && niceness == 0 })
}

func (w *watched) throttle(c *Case, quota, period time.Duration, threads func(name string, niceness int) bool) {
	release, err := w.muster().Throttle(quota, period, threads)
	c.Cleanup(func() { w.mended(release()) })
	c.must(err)
}

// checkDashboard asks what each panel asks, over all that happened.
func (w *watched) checkDashboard() {
	w.Helper()
	asked := 0
	for _, panel := range slices.Sorted(maps.Keys(w.queries)) {
		for _, query := range w.queries[panel] {
			asked++
			count, err := w.prometheus.Samples(query, w.begin, time.Now())
			if err != nil || count == 0 {
				w.Errorf("panel %s shows nothing (%v): %s", panel, err, query)
			}
		}
	}
	w.Logf("%d queries of %d panels", asked, len(w.queries))
}

// ask is a filter call.
func ask(muster *plane.Muster, body []byte) {
	client := http.Client{Timeout: 10 * time.Second}
	response, err := client.Post("http://"+muster.ExtenderAddress+"/filter", "application/json", bytes.NewReader(body))
	if err == nil {
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
}
