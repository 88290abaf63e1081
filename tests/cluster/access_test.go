package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"muster.dev/tests/cluster/plane"
)

// Who may see what, on the real API server: callers with and without tokens and rights ask each
// endpoint, by REST, by gRPC and by kubectl through the aggregation layer. The case ends Muster,
// whose other cases ask as nobody, so it doesn't run beside others.

const aggregatedManifest = "../../deploy/base/aggregated-api.yaml"

// accessCase has two namespaces with a gang each, and a Muster that asks who asks.
type accessCase struct {
	*Case
	other  string // namespace
	client *http.Client
}

func newAccessCase(t *testing.T) *accessCase {
	t.Helper()
	a := &accessCase{Case: newCase(t, "access")}
	a.other = newCase(t, "access-other").Namespace
	for _, namespace := range []string{a.Namespace, a.other} {
		mustApply(t, fmt.Sprintf(`
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: {name: train, namespace: %[1]s}
spec: {minMember: 2}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: lead, namespace: %[1]s}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: nobody, namespace: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: lead, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: ServiceAccount, name: lead, namespace: %[1]s}]
`, namespace))
	}
	mustApply(t, fmt.Sprintf(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: operator, namespace: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s-operator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: ServiceAccount, name: operator, namespace: %[1]s}]
`, a.Namespace))
	a.Cleanup(func() {
		_, _ = shared.Kubectl("delete", "--ignore-not-found", "--wait=false", "clusterrolebinding/"+a.Namespace+"-operator")
	})

	shared.Muster.Kill()
	a.Cleanup(shared.Muster.Kill) // the next case starts it as usual
	stop, err := shared.ServeAggregated(aggregatedManifest)
	a.must(err)
	a.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	a.must(shared.Muster.Start(plane.Launch{Query: map[string]any{"authentication": "token"}}))
	a.must(shared.AwaitAggregated())
	a.client = a.trusting(a.bundle())
	for _, namespace := range []string{a.Namespace, a.other} {
		mustApply(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: train-0, namespace: %s, labels: {scheduling.x-k8s.io/pod-group: train}}
spec: {schedulerName: %s, containers: [{name: main, image: train}]}
`, namespace, plane.SchedulerName))
	}
	operator := a.token("operator", "--audience=muster.dev")
	for _, namespace := range []string{a.Namespace, a.other} {
		a.eventually(func() error {
			if status, body := a.rest("/v1/gangs/"+namespace+"/train", operator); status != http.StatusOK {
				return fmt.Errorf("gang %s/train: %d: %s", namespace, status, body)
			}
			return nil
		})
	}
	return a
}

func (a *accessCase) eventually(attempt func() error) {
	a.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		err := attempt()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			a.Fatal(err)
		}
	}
}

// token is one of a ServiceAccount of the case's own namespace.
func (a *accessCase) token(account string, flags ...string) string {
	a.Helper()
	output, err := shared.Kubectl(append([]string{"create", "token", account, "--namespace=" + a.Namespace}, flags...)...)
	a.must(err)
	return strings.TrimSpace(output)
}

// bundle is what the APIService says that Muster is known by.
func (a *accessCase) bundle() []byte {
	a.Helper()
	object, err := shared.Dynamic.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}).
		Get(a.Context(), "v1beta1.visibility.muster.dev", metav1.GetOptions{})
	a.must(err)
	text, _, _ := unstructured.NestedString(object.Object, "spec", "caBundle")
	bundle, err := base64.StdEncoding.DecodeString(text)
	a.must(err)
	return bundle
}

func (a *accessCase) trusting(bundle []byte) *http.Client {
	a.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		a.Fatalf("no certificate in the bundle: %q", bundle)
	}
	// As whoever in the cluster calls the Service.
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "muster.muster-system.svc"}, ForceAttemptHTTP2: true}
	a.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 10 * time.Second}
}

// rest answers with a status and a body, of a watch with where it begins.
func (a *accessCase) rest(path, token string) (int, string) {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.Context(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+shared.Muster.Address+path, nil)
	a.must(err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := a.client.Do(request)
	a.must(err)
	defer response.Body.Close()
	body := make([]byte, 1<<20)
	if strings.Contains(path, "watch=true") && response.StatusCode == http.StatusOK {
		// It has no end.
		body = body[:1]
	}
	size, _ := io.ReadFull(response.Body, body)
	if refused := response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden; refused &&
		response.Header.Get("Content-Type") != "application/problem+json" {
		a.Errorf("GET %s: %d is %s", path, response.StatusCode, response.Header.Get("Content-Type"))
	}
	return response.StatusCode, string(body[:size])
}

// field is one of a message, a text.
func field(number int, text string) []byte {
	return append(binary.AppendUvarint([]byte{byte(number<<3 | 2)}, uint64(len(text))), text...)
}

// grpc calls a method of the Admission service and answers with the call's code.
func (a *accessCase) grpc(method string, message []byte, token string) int {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.Context(), 10*time.Second)
	defer cancel()
	frame := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+shared.Muster.GRPCAddress+"/muster.v1.Admission/"+method, bytes.NewReader(frame))
	a.must(err)
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("Te", "trailers")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := a.client.Do(request)
	a.must(err)
	defer response.Body.Close()
	status := response.Header.Get("Grpc-Status")
	if method == "WatchGangs" && status == "" {
		head := make([]byte, 5)
		if _, err := io.ReadFull(response.Body, head); err == nil {
			return 0
		}
	}
	_, _ = io.Copy(io.Discard, response.Body)
	if status == "" {
		status = response.Trailer.Get("Grpc-Status")
	}
	code, err := strconv.Atoi(status)
	if err != nil {
		a.Errorf("gRPC %s: no status: %v", method, response)
	}
	return code
}

const (
	grpcOK               = 0
	grpcPermissionDenied = 7
	grpcUnauthenticated  = 16
)

// asked is one endpoint, of each interface that has it.
type asked struct {
	rest    string
	method  string
	message []byte
	raw     string // below the group's path
}

// of is what tells of one namespace alone.
func of(namespace string) []asked {
	one := append(field(1, namespace), field(2, "train")...)
	return []asked{
		{"/v1/gangs?namespace=" + namespace, "ListGangs", field(1, namespace), "/namespaces/" + namespace + "/gangs"},
		{"/v1/gangs/" + namespace + "/train", "GetGang", one, "/namespaces/" + namespace + "/gangs/train"},
		{"/v1/gangs?watch=true&namespace=" + namespace, "WatchGangs", field(1, namespace), "/namespaces/" + namespace + "/gangs?watch=true&timeoutSeconds=1"},
		{"/v1/gangs/" + namespace + "/train?watch=true", "WatchGangs", one, ""},
	}
}

// ofAll is what tells of all namespaces.
var ofAll = []asked{
	{"/v1/gangs", "ListGangs", nil, "/gangs"},
	{"/v1/gangs?watch=true", "WatchGangs", nil, "/gangs?watch=true&timeoutSeconds=1"},
	{"/v1/nodes", "ListNodes", nil, "/nodes"},
	{"/v1/nodes?watch=true", "", nil, ""},
	{"/v1/queues", "ListQueues", nil, "/clusterqueues"},
	{"/v1/queues?watch=true", "", nil, "/localqueues"},
	{"/v1/flavors", "ListFlavors", nil, "/flavors"},
}

func TestEachCallerSeesWhatHeMay(t *testing.T) {
	a := newAccessCase(t)
	const group = "/apis/visibility.muster.dev/v1beta1"
	as := func(account string) string { return "--as=system:serviceaccount:" + a.Namespace + ":" + account }
	for _, caller := range []struct {
		name     string
		token    string
		kubectl  []string // flags by which he is the same there; nil: he can't be
		own, all int      // what he is answered about his namespace, and about all
	}{
		{"anonymous", "", []string{"--as=system:anonymous", "--as-group=system:unauthenticated"}, 401, 401},
		{"with an invented token", "abc.def.ghi", nil, 401, 401},
		{"with a token for the API server", a.token("operator"), nil, 401, 401},
		{"with a token for another audience", a.token("operator", "--audience=vault"), nil, 401, 401},
		{"who may nothing", a.token("nobody", "--audience=muster.dev"), []string{as("nobody")}, 403, 403},
		{"who may see a namespace", a.token("lead", "--audience=muster.dev"), []string{as("lead")}, 200, 403},
		{"who may see all", a.token("operator", "--audience=muster.dev"), []string{as("operator")}, 200, 200},
	} {
		t.Run(caller.name, func(t *testing.T) {
			expect := func(want int, endpoints []asked) {
				for _, each := range endpoints {
					if status, body := a.rest(each.rest, caller.token); status != want {
						t.Errorf("GET %s: %d, want %d: %.200s", each.rest, status, want, body)
					}
					code := map[int]int{200: grpcOK, 401: grpcUnauthenticated, 403: grpcPermissionDenied}[want]
					if each.method != "" {
						if got := a.grpc(each.method, each.message, caller.token); got != code {
							t.Errorf("gRPC %s %q: %d, want %d", each.method, each.message, got, code)
						}
					}
					if each.raw == "" || caller.kubectl == nil {
						continue
					}
					output, err := shared.Kubectl(append(caller.kubectl, "get", "--raw", group+each.raw)...)
					if allowed := err == nil; allowed != (want == 200) {
						t.Errorf("kubectl get --raw %s: %v, want %d", each.raw, err, want)
					}
					if err != nil && !strings.Contains(output, "forbidden") && !strings.Contains(output, "Forbidden") {
						t.Errorf("kubectl get --raw %s isn't forbidden: %s", each.raw, output)
					}
				}
			}
			expect(caller.own, of(a.Namespace))
			expect(caller.all, of(a.other))
			expect(caller.all, ofAll)
		})
	}

	lead := a.token("lead", "--audience=muster.dev")
	a.part("only his own is in what he sees", func(c *Case) {
		_, body := a.rest("/v1/gangs?namespace="+a.Namespace, lead)
		raw, err := shared.Kubectl(as("lead"), "get", "--raw", group+"/namespaces/"+a.Namespace+"/gangs")
		c.must(err)
		for _, said := range []string{body, raw} {
			if !strings.Contains(said, a.Namespace) || strings.Contains(said, a.other) {
				c.Errorf("want gangs of %s alone: %s", a.Namespace, said)
			}
		}
		var list struct {
			Kind  string
			Items []struct {
				Metadata struct{ Name string }
				Status   struct{ State string }
			}
		}
		c.must(json.Unmarshal([]byte(raw), &list))
		if list.Kind != "GangList" || len(list.Items) != 1 || list.Items[0].Metadata.Name != "train" || list.Items[0].Status.State != "WAITING_FOR_MEMBERS" {
			c.Errorf("the list is %+v", list)
		}
	})
	a.part("kubectl knows the resources, and everything else as before", func(c *Case) {
		table, err := shared.Kubectl(as("lead"), "get", "gangs", "--namespace="+a.Namespace)
		c.must(err)
		if !strings.Contains(table, "STATE") || !strings.Contains(table, "WAITING_FOR_MEMBERS") {
			c.Errorf("kubectl get gangs: %s", table)
		}
		for _, command := range [][]string{
			{"api-resources"},
			{"explain", "gangs.visibility.muster.dev"},
			{"get", "gangs.visibility.muster.dev", "--all-namespaces", "--output=yaml"},
			{"get", "clusterqueues.visibility.muster.dev,localqueues.visibility.muster.dev,flavors,nodes.visibility.muster.dev", "--all-namespaces"},
			{"describe", "gang", "train", "--namespace=" + a.Namespace},
		} {
			output, err := shared.Kubectl(command...)
			if err != nil {
				c.Error(err)
			}
			if command[0] == "api-resources" && !slices.ContainsFunc(strings.Split(output, "\n"), func(line string) bool {
				return strings.HasPrefix(line, "gangs ")
			}) {
				c.Errorf("kubectl api-resources has no gangs: %s", output)
			}
		}
		nodes, err := shared.Kubectl("get", "nodes", "--output=jsonpath={.apiVersion}")
		if c.must(err); nodes != "v1" {
			c.Errorf("kubectl get nodes is of %s", nodes)
		}
		_, err = shared.Kubectl("get", "gangs", "--namespace="+a.Namespace, "--selector=a=b")
		if err == nil || !strings.Contains(err.Error(), "labelSelector isn't supported") {
			c.Errorf("a selector: %v", err)
		}
	})
	a.part("client-go follows gangs as it does any object", func(c *Case) {
		gangs := schema.GroupVersionResource{Group: "visibility.muster.dev", Version: "v1beta1", Resource: "gangs"}
		informer := dynamicinformer.NewFilteredDynamicSharedInformerFactory(shared.Dynamic, 0, a.Namespace, nil).ForResource(gangs).Informer()
		told := make(chan string, 100)
		tell := func(what string) func(any) {
			return func(object any) { told <- what + " " + object.(*unstructured.Unstructured).GetName() }
		}
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    tell("added"),
			UpdateFunc: func(_, object any) { tell("changed")(object) },
			DeleteFunc: tell("deleted"),
		})
		c.must(err)
		ctx, stop := context.WithCancel(c.Context())
		defer stop()
		go informer.RunWithContext(ctx)
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			c.Fatal("its cache has nothing")
		}
		await := func(want string) {
			for {
				select {
				case got := <-told:
					if got == want {
						return
					}
				case <-time.After(20 * time.Second):
					c.Fatalf("it isn't told %q", want)
				}
			}
		}
		await("added train")
		for _, action := range []string{"create", "delete"} {
			_, err = shared.Kubectl(action, "--filename="+c.write("second.yaml", fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: second, namespace: %s}
spec: {schedulerName: %s, containers: [{name: main, image: train}]}
`, a.Namespace, plane.SchedulerName)))
			c.must(err)
			await(map[string]string{"create": "added second", "delete": "deleted second"}[action])
		}
		// kubectl ends at its timeout, with what it was told.
		watched, _ := shared.Kubectl(as("lead"), "get", "gangs", "train", "--namespace="+a.Namespace, "--watch", "--request-timeout=3s")
		if !strings.Contains(watched, "WAITING_FOR_MEMBERS") {
			c.Errorf("kubectl get gangs --watch: %s", watched)
		}
	})
	a.part("Muster changes of its APIService what makes it known, and nothing else", func(c *Case) {
		twice := base64.StdEncoding.EncodeToString(append(a.bundle(), a.bundle()...))
		for patch, refused := range map[string]string{
			`{"spec":{"service":{"name":"mine"}}}`:                    "spec: Muster's account",
			`{"spec":{"insecureSkipTLSVerify":true,"caBundle":null}}`: "spec: Muster's account",
			`{"spec":{"groupPriorityMinimum":20000}}`:                 "spec: Muster's account",
			`{"metadata":{"annotations":{"a":"b"}}}`:                  "metadata: Muster's account",
			`{"spec":{"caBundle":"` + twice + `"}}`:                   "",
		} {
			attempt{"patch apiservice/v1beta1.visibility.muster.dev --type=merge --patch '" + patch + "'", refused}.run(c.T, shared.KubectlAsMuster)
		}
	})
	a.part("nobody is whom he says he is", func(c *Case) {
		for _, header := range []string{"X-Remote-User", "X-Remote-Group"} {
			request, err := http.NewRequestWithContext(c.Context(), http.MethodGet, "https://"+shared.Muster.AggregatedAddress+group+"/gangs", nil)
			c.must(err)
			request.Header.Set(header, "system:masters")
			response, err := a.client.Do(request)
			c.must(err)
			response.Body.Close()
			if response.StatusCode != http.StatusUnauthorized {
				c.Errorf("%s without the API server's certificate: %s", header, response.Status)
			}
		}
	})
	a.part("what is everyone's stays so", func(c *Case) {
		for _, path := range []string{"/metrics", "/healthz", "/readyz", "/openapi.json", "/"} {
			if status, body := a.rest(path, ""); status != http.StatusOK {
				c.Errorf("GET %s: %d: %.100s", path, status, body)
			}
			response, err := http.Get("http://" + shared.Muster.Address + path)
			c.must(err)
			response.Body.Close()
			if response.StatusCode != http.StatusOK {
				c.Errorf("GET %s in the clear: %s", path, response.Status)
			}
		}
		metrics, err := shared.Muster.Metrics()
		c.must(err)
		for _, name := range []string{`muster_access_cache_hits_total{review="token"}`, `muster_access_refusals_total{reason="forbidden"}`} {
			if !strings.Contains(metrics, name) {
				c.Errorf("/metrics has no %s", name)
			}
		}
	})
	a.part("no token is in the log", func(c *Case) {
		log, err := shared.Muster.Log()
		c.must(err)
		for _, token := range []string{lead, "abc.def.ghi"} {
			if strings.Contains(log, token) {
				c.Error("Muster's log has a token")
			}
		}
	})
}
