// Asks kube-scheduler's own filter plugins about random clusters, for verdicts.h and
// verdicts_soak.cc, whose predicates and planner must agree:
//
//	oracle verdicts SEED COUNT PODS   judges PODS pods on every node of each cluster
//	oracle gangs SEED COUNT           makes clusters with a gang that waits there
//	oracle replay                     binds the members that standard input places, one by one
//
// One line is one cluster, and cluster number i depends on SEED+i alone.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// How many clusters are worked on at once: mostly they wait for informers.
const atOnce = 24

const usage = "usage: oracle verdicts SEED COUNT PODS | oracle gangs SEED COUNT | oracle replay"

func main() {
	metrics.Register()
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	var numbers []int64
	for _, argument := range arguments[min(1, len(arguments)):] {
		number, err := strconv.ParseInt(argument, 10, 64)
		if err != nil {
			return fmt.Errorf("%s: %w", usage, err)
		}
		numbers = append(numbers, number)
	}
	output := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(output)
	write := func(line any) error { return encoder.Encode(line) }
	var err error
	switch {
	case len(numbers) == 3 && arguments[0] == "verdicts":
		err = inOrder(int(numbers[1]), func(i int) (judgedCluster, error) {
			return judge(numbers[0]+int64(i), int(numbers[2]))
		}, func(line judgedCluster) error { return write(line) })
	case len(numbers) == 2 && arguments[0] == "gangs":
		err = inOrder(int(numbers[1]), func(i int) (waitingGang, error) {
			return newWaitingGang(numbers[0] + int64(i))
		}, func(line waitingGang) error { return write(line) })
	case len(arguments) == 1 && arguments[0] == "replay":
		var placed []placedGang
		decoder := json.NewDecoder(os.Stdin)
		for decoder.More() {
			var gang placedGang
			if err := decoder.Decode(&gang); err != nil {
				return err
			}
			placed = append(placed, gang)
		}
		err = inOrder(len(placed), func(i int) (replayedGang, error) {
			return replay(placed[i])
		}, func(line replayedGang) error { return write(line) })
	default:
		return fmt.Errorf(usage)
	}
	if err != nil {
		return err
	}
	return output.Flush()
}

// inOrder hands what work makes of 0 to count-1 to emit, in this order, and works on several at
// once.
func inOrder[T any](count int, work func(i int) (T, error), emit func(T) error) error {
	type outcome struct {
		result T
		err    error
	}
	pending := make(chan chan outcome, atOnce)
	go func() {
		defer close(pending)
		for i := range count {
			done := make(chan outcome, 1)
			pending <- done
			go func() {
				result, err := work(i)
				done <- outcome{result, err}
			}()
		}
	}()
	for done := range pending {
		finished := <-done
		if finished.err != nil {
			return finished.err
		}
		if err := emit(finished.result); err != nil {
			return err
		}
	}
	return nil
}

// objectLists are a cluster as the API server would list it.
type objectLists struct {
	Seed           int64 `json:"seed"`
	Nodes          []any `json:"nodes"`
	Pods           []any `json:"pods"`
	Namespaces     []any `json:"namespaces"`
	Claims         []any `json:"claims"`
	Volumes        []any `json:"volumes"`
	StorageClasses []any `json:"storageClasses"`
	CSINodes       []any `json:"csiNodes"`
	CSIDrivers     []any `json:"csiDrivers"`
	Attachments    []any `json:"attachments"`
	Capacities     []any `json:"capacities"`
	// Of the profile; null: none.
	AddedAffinity *v1.NodeAffinity `json:"addedAffinity"`
}

type judgedPod struct {
	Pod any `json:"pod"`
	// The nodes that each plugin refuses.
	Refused map[string][]string `json:"refused"`
}

type judgedCluster struct {
	objectLists
	Asked []judgedPod `json:"asked"`
}

func judge(seed int64, pods int) (judgedCluster, error) {
	random := newDice(seed)
	made := random.cluster()
	var asked []*v1.Pod
	for i := range pods {
		asked = append(asked, random.incomingPod(made, 100+i))
	}
	result := judgedCluster{objectLists: made.lists(seed)}
	scheduler, err := newScheduler(made)
	if err != nil {
		return result, err
	}
	defer scheduler.stop()
	for _, pod := range asked {
		verdict := judgedPod{Pod: lean(pod), Refused: map[string][]string{}}
		for _, plugin := range scheduler.plugins {
			if verdict.Refused[plugin.name], err = scheduler.refusedBy(plugin, pod); err != nil {
				return result, err
			}
		}
		result.Asked = append(result.Asked, verdict)
	}
	return result, nil
}

func (made *cluster) lists(seed int64) objectLists {
	return objectLists{
		Seed:           seed,
		Nodes:          leanAll(made.nodes),
		Pods:           leanAll(slices.Concat(made.pods, made.nominated)),
		Namespaces:     leanAll(made.namespaces),
		Claims:         leanAll(made.claims),
		Volumes:        leanAll(made.volumes),
		StorageClasses: leanAll(made.classes),
		CSINodes:       leanAll(made.csiNodes),
		CSIDrivers:     leanAll(made.csiDrivers),
		Attachments:    leanAll(made.attachments),
		Capacities:     leanAll(made.capacities),
		AddedAffinity:  made.addedAffinity,
	}
}

func leanAll[T runtime.Object](objects []T) []any {
	var all []any
	for _, object := range objects {
		all = append(all, lean(object))
	}
	return all
}

// lean leaves out what is null or empty, as no reader tells it from absent; except a selector that
// is there and empty, which matches everything.
func lean(object runtime.Object) any {
	text, err := json.Marshal(object)
	if err != nil {
		panic(err) // of our own making
	}
	var value map[string]any
	if err := json.Unmarshal(text, &value); err != nil {
		panic(err)
	}
	if status, ok := value["status"].(map[string]any); ok {
		delete(status, "nodeInfo")
		delete(status, "daemonEndpoints")
	}
	return prune(value)
}

func prune(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, child := range value {
			child = prune(child)
			empty := child == nil
			if fields, ok := child.(map[string]any); ok {
				empty = len(fields) == 0 && key != "labelSelector" && key != "namespaceSelector"
			}
			if empty {
				delete(value, key)
			} else {
				value[key] = child
			}
		}
	case []any:
		for i := range value {
			value[i] = prune(value[i])
		}
	}
	return value
}
