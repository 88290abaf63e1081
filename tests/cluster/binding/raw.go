package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"muster.dev/tests/cluster/plane"
)

// The limit is what the best of so many workers make of it.
var rawWorkers = []int{16, 32, 64, 128}

// Requests at once on one connection, as by whoever has several.
const workersPerConnection = 32

const (
	mergePatch = "application/merge-patch+json"
	// Of Muster's record of a gang that it starts.
	recordBytes = 250
)

// writer makes the writes of a contender without deciding anything, so fast as the API server
// takes them.
type writer struct {
	cluster *cluster
	server  string
	token   string
	clients []*http.Client
}

func newWriter(c *cluster, workers int) (*writer, error) {
	config, err := c.plane.Caller(plane.RawCaller)
	if err != nil {
		return nil, err
	}
	w := &writer{cluster: c, server: config.Host, token: config.BearerToken}
	for range (workers + workersPerConnection - 1) / workersPerConnection {
		tls, err := rest.TLSConfigFor(config)
		if err != nil {
			return nil, err
		}
		w.clients = append(w.clients, &http.Client{Transport: &http.Transport{TLSClientConfig: tls, ForceAttemptHTTP2: true}})
	}
	return w, nil
}

func (w *writer) send(ctx context.Context, worker int, method, path, content string, body any) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, w.server+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+w.token)
	request.Header.Set("User-Agent", plane.RawCaller+"/1")
	request.Header.Set("Accept", "application/json")
	if content != "" {
		request.Header.Set("Content-Type", content)
	}
	response, err := w.clients[worker%len(w.clients)].Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, response.Status, said)
	}
	return err
}

// bind does what Muster's executor does for a pod.
func (w *writer) bind(ctx context.Context, worker int, namespace string, pod created, node string, gated bool) error {
	path := "/api/v1/namespaces/" + namespace + "/pods/" + pod.name
	if gated {
		if err := w.send(ctx, worker, http.MethodPatch, path, "application/strategic-merge-patch+json", map[string]any{
			"metadata": map[string]any{"uid": pod.uid},
			"spec":     map[string]any{"schedulingGates": []any{map[string]any{"$patch": "delete", "name": gate}}},
		}); err != nil {
			return err
		}
	}
	return w.send(ctx, worker, http.MethodPost, path+"/binding", "application/json", map[string]any{
		"apiVersion": "v1", "kind": "Binding",
		"metadata": map[string]any{
			"name": pod.name, "namespace": namespace, "uid": pod.uid,
			"annotations": map[string]any{"karpenter.sh/do-not-disrupt": "true"},
		},
		"target": map[string]any{"apiVersion": "v1", "kind": "Node", "name": node},
	})
}

// told is what is written of a gang beside its pods: a record before its first binding, and its status
// and an event after the last one.
type told struct {
	name   string
	record func() error
	left   atomic.Int64 // pods to be bound
}

func (w *writer) newTold(ctx context.Context, worker int, namespace, name string, size int) *told {
	t := &told{name: name, record: sync.OnceValue(func() error {
		return w.send(ctx, worker, http.MethodPatch, w.groupPath(namespace, name), mergePatch, map[string]any{
			"metadata": map[string]any{"annotations": map[string]any{"muster.dev/admission": strings.Repeat("r", recordBytes)}},
		})
	})}
	t.left.Store(int64(size))
	return t
}

func (w *writer) groupPath(namespace, name string) string {
	return "/apis/" + w.cluster.groups().GroupVersion().String() + "/namespaces/" + namespace + "/podgroups/" + name
}

func (w *writer) tellBound(ctx context.Context, worker int, namespace, name string, size int) error {
	now := time.Now().UTC().Format(time.RFC3339)
	message := fmt.Sprintf("all %d members are bound", size)
	condition := map[string]any{
		"type": "Admitted", "status": "True", "reason": "AllBound", "message": message, "lastTransitionTime": now,
	}
	status := map[string]any{"conditions": []any{condition}}
	if !w.cluster.native {
		status["phase"], status["scheduled"] = "Scheduling", size
	}
	return errors.Join(
		w.send(ctx, worker, http.MethodPatch, w.groupPath(namespace, name)+"/status", mergePatch, map[string]any{"status": status}),
		w.send(ctx, worker, http.MethodPost, "/api/v1/namespaces/"+namespace+"/events", "application/json", map[string]any{
			"metadata":       map[string]any{"generateName": name + "."},
			"involvedObject": map[string]any{"kind": "PodGroup", "namespace": namespace, "name": name},
			"reason":         "AllBound", "message": message, "type": "Normal", "count": 1,
			"firstTimestamp": now, "lastTimestamp": now, "source": map[string]any{"component": plane.RawCaller},
		}))
}

// bindAll binds what comes, each pod to a node of its own, and tells of its gangs.
func (w *writer) bindAll(ctx context.Context, workers int, namespace string, l load, pods <-chan created, nodes []string, gated bool) error {
	gangs := make([]*told, len(l.sizes))
	for i := range gangs {
		gangs[i] = w.newTold(ctx, i, namespace, gangName(i), l.sizes[i])
	}
	var wait sync.WaitGroup
	var mutex sync.Mutex
	next := 0
	failures := make([]error, workers)
	for worker := range workers {
		wait.Go(func() {
			for pod := range pods {
				mutex.Lock()
				node := nodes[next]
				next++
				mutex.Unlock()
				gang := gangs[pod.gang]
				if failures[worker] == nil {
					failures[worker] = gang.record()
				}
				if failures[worker] == nil {
					failures[worker] = w.bind(ctx, worker, namespace, pod, node, gated)
				}
				if failures[worker] == nil && gang.left.Add(-1) == 0 {
					failures[worker] = w.tellBound(ctx, worker, namespace, gang.name, l.sizes[pod.gang])
				}
			}
		})
	}
	wait.Wait()
	return errors.Join(failures...)
}

// openWatches holds those open that a scheduler has, until the context ends. Nobody looks at what
// they bring.
func (w *writer) openWatches(ctx context.Context) error {
	groups := "/apis/" + w.cluster.groups().GroupVersion().String() + "/podgroups"
	for _, path := range []string{"/api/v1/pods", "/api/v1/nodes", groups} {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.server+path+"?watch=1", nil)
		if err != nil {
			return err
		}
		request.Header.Set("Authorization", "Bearer "+w.token)
		request.Header.Set("Accept", "application/json")
		response, err := w.clients[0].Do(request)
		if err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK {
			response.Body.Close()
			return fmt.Errorf("watching %s: %s", path, response.Status)
		}
		go func() {
			defer response.Body.Close()
			// It ends with the race.
			_, _ = io.Copy(io.Discard, response.Body)
		}()
	}
	return nil
}

// raceRaw binds the load without a scheduler.
func raceRaw(ctx context.Context, c *cluster, one contender, l load, mode string, workers int) (r result, err error) {
	w, err := newWriter(c, workers)
	if err != nil {
		return r, err
	}
	watching, end := context.WithCancel(ctx)
	defer end()
	if err := w.openWatches(watching); err != nil {
		return r, err
	}
	namespace, err := c.createGroups(ctx, l)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, c.clearAway(ctx, namespace)) }()
	// Nobody waits for what it brings, but schedulers race with it open.
	if _, err := c.watchBound(watching, namespace, l); err != nil {
		return r, err
	}
	pods := make(chan created, l.pods())
	r = result{row: one.name, load: l, mode: mode, workers: workers}
	before := c.plane.CPU()
	begin := time.Now()
	if mode == draining {
		if r.pods, err = c.createPods(ctx, l, namespace, "nobody", one.gated, pods); err != nil {
			return r, err
		}
		close(pods)
		before = c.plane.CPU()
		r.began = time.Now()
		err = w.bindAll(ctx, workers, namespace, l, pods, c.nodes, one.gated)
	} else {
		creating := make(chan error, 1)
		go func() {
			var failed error
			r.pods, failed = c.createPods(ctx, l, namespace, "nobody", one.gated, pods)
			close(pods)
			creating <- failed
		}()
		err = errors.Join(w.bindAll(ctx, workers, namespace, l, pods, c.nodes, one.gated), <-creating)
	}
	if err != nil {
		return r, err
	}
	return r, r.conclude(ctx, c, one, namespace, begin, before)
}
