package plane

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// What the races that are programs of their own have in common: a load that is made, and a control plane
// that holds nobody back.

// Creators is how many create at once: the API server is to be busy, not its queues full.
const Creators = 16

// Race is the whole of such a program, which fails if `run` does.
func Race(run func(context.Context) error) {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Println("FAILED:", err)
		os.Exit(1)
	}
}

// EndRace stops the control plane of a race that ended with this error, which it returns, or one that
// tells that a part ended early. Logs stay where there is one, or MUSTER_KEEP is 1.
func (p *Plane) EndRace(err error) error {
	if dead := p.Dead(); err == nil && dead != "" {
		err = fmt.Errorf("part of the control plane ended early: %s", dead)
	}
	p.Stop()
	if err != nil || os.Getenv("MUSTER_KEEP") == "1" {
		fmt.Println("logs are in", filepath.Join(p.Folder, "logs"))
		return err
	}
	return os.RemoveAll(p.Folder)
}

// LoadAverage is the machine's over the last minute.
func LoadAverage() string {
	content, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(content), " ")
	return first
}

// EachOf calls a function for all items in their order, so many at once.
func EachOf[T any](items []T, atOnce int, call func(T) error) error {
	var wait sync.WaitGroup
	next := make(chan T)
	failures := make([]error, atOnce)
	for i := range atOnce {
		wait.Go(func() {
			for item := range next {
				if failures[i] == nil {
					failures[i] = call(item)
				}
			}
		})
	}
	for _, item := range items {
		next <- item
	}
	close(next)
	wait.Wait()
	return errors.Join(failures...)
}

// Await asks again until nothing is missing, for some minutes.
func Await(ctx context.Context, what string, missing func() (string, error)) error {
	for deadline := time.Now().Add(3 * time.Minute); ; {
		text, err := missing()
		if err != nil || text == "" {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waited in vain for %s: %s", what, text)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// Exempt has the API server queue and refuse nothing of these users.
func Exempt(ctx context.Context, client kubernetes.Interface, users ...string) error {
	var callers []flowcontrolv1.Subject
	for _, user := range users {
		callers = append(callers, flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: user}})
	}
	all := []string{flowcontrolv1.ResourceAll}
	_, err := client.FlowcontrolV1().FlowSchemas().Create(ctx, &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: "race"},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: flowcontrolv1.PriorityLevelConfigurationNameExempt},
			MatchingPrecedence:         2,
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: callers,
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
					Verbs: all, APIGroups: all, Resources: all, ClusterScope: true, Namespaces: []string{flowcontrolv1.NamespaceEvery},
				}},
			}},
		},
	}, metav1.CreateOptions{})
	return err
}

// CreateReadyNodes makes nodes of these names with these labels, beside those that every node has, and
// returns when the controllers have found them Ready.
func CreateReadyNodes(ctx context.Context, client kubernetes.Interface, names []string, labels map[string]string, resources corev1.ResourceList) error {
	if err := EachOf(names, Creators, func(name string) error {
		its := map[string]string{
			corev1.LabelHostname:     name,
			corev1.LabelTopologyZone: "us-west-2a",
			corev1.LabelArchStable:   "amd64",
			corev1.LabelOSStable:     "linux",
		}
		for key, value := range labels {
			its[key] = value
		}
		_, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: its},
			Status: corev1.NodeStatus{
				Capacity: resources, Allocatable: resources,
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}},
			},
		}, metav1.CreateOptions{})
		return err
	}); err != nil {
		return err
	}
	return Await(ctx, "nodes without taints", func() (string, error) {
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", err
		}
		for _, node := range nodes.Items {
			if len(node.Spec.Taints) > 0 {
				return fmt.Sprintf("node %s has taint %s", node.Name, node.Spec.Taints[0].Key), nil
			}
		}
		return "", nil
	})
}
