package cluster

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"muster.dev/tests/cluster/kubelet"
	"muster.dev/tests/cluster/plane"
	"muster.dev/tests/cluster/timeline"
)

// kueuectl, unchanged, beside Kueue and beside Muster: one table of commands, of what
// each prints, and of what becomes of queues, Workloads and jobs, to which both are held.

func TestPeerKueuectlDoesWithKueueWhatTheTableSays(t *testing.T) {
	c := newCase(t, "kueuectl")
	c.must(shared.Muster.Stop())
	c.must(shared.Muster.Start(plane.Launch{Quota: "kueue"}))
	// The next case has the usual one again.
	t.Cleanup(func() { c.must(shared.Muster.Stop()) })
	c.started(shared.StartKueue(plane.Kueue{Frameworks: []string{"batch/job"}}))
	c.checkKueuectl()
}

func TestPeerKueuectlDoesWithMusterWhatItDoesWithKueue(t *testing.T) {
	newQuotaCase(t, "kueuectl").checkKueuectl()
}

// kueuectlStep is a command, or something else that happens, and what there is to see afterwards.
// Muster tells what a Workload waits for at most every half minute.
type kueuectlStep struct {
	run  string
	does func(c *Case)
	says string            // what the command prints: times, hashes and Muster's warnings left out
	then map[string]string // what changes of what look returns
}

func (c *Case) checkKueuectl() {
	c.Helper()
	c.flavorNodes(usage{"ctl": 2})
	want := map[string]string{}
	for number, step := range kueuectlSteps {
		if step.does != nil {
			step.does(c)
		} else {
			said, err := shared.Kueuectl(append(c.named(strings.Fields(step.run)), "--namespace="+c.Namespace)...)
			if said = c.plainly(said); said != step.says {
				c.Errorf("step %d, kueuectl %s: it says (%v)\n%s\nwant\n%s", number, step.run, err, said, step.says)
			}
		}
		maps.Copy(want, step.then)
		got := c.look()
		for deadline := time.Now().Add(45 * time.Second); !maps.Equal(got, want) && time.Now().Before(deadline); got = c.look() {
			time.Sleep(50 * time.Millisecond)
		}
		if maps.Equal(got, want) {
			time.Sleep(time.Second)
			got = c.look()
		}
		for _, what := range slices.Sorted(maps.Keys(got)) {
			if got[what] != want[what] {
				c.Errorf("step %d, kueuectl %s: %s is\n%s\nwant\n%s", number, step.run, what, got[what], want[what])
			}
		}
		if len(got) != len(want) {
			c.Fatalf("step %d: there is %v, want %v", number, got, want)
		}
		want = got
	}
}

// named puts the names of Workloads for those of their jobs in capitals.
func (c *Case) named(arguments []string) []string {
	c.Helper()
	list, err := shared.Dynamic.Resource(workloadResource).Namespace(c.Namespace).List(c.Context(), metav1.ListOptions{})
	c.must(err)
	for _, workload := range list.Items {
		if owner := metav1.GetControllerOf(&workload); owner != nil {
			for i := range arguments {
				if arguments[i] == strings.ToUpper(owner.Name) {
					arguments[i] = workload.GetName()
				}
			}
		}
	}
	return arguments
}

var (
	hashes     = regexp.MustCompile(`\bjob-(first|second)-[0-9a-f]{5}\b`)
	unreserved = regexp.MustCompile(`QuotaReserved=False\([A-Za-z]+\)`)
	times      = regexp.MustCompile(`\b([0-9]+m)?[0-9]+s\b|\b[0-9]+m\b`)
)

// plainly is what a command printed, with one space between columns.
func (c *Case) plainly(said string) string {
	var lines []string
	for _, line := range strings.Split(strings.TrimSpace(said), "\n") {
		if strings.Contains(line, "warnings.go") {
			continue // Muster's webhook has something to say about what is created
		}
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	said = strings.ReplaceAll(strings.Join(lines, "\n"), c.Namespace, "NAMESPACE")
	said = times.ReplaceAllString(hashes.ReplaceAllString(said, "job-$1-#"), "#s")
	// With its reservation goes the time that it ran for.
	return strings.ReplaceAll(said, "FINISHED #s #s", "FINISHED #s")
}

// look is the state of the queues, and of both jobs with their Workloads and pods, by their names.
func (c *Case) look() map[string]string {
	c.Helper()
	seen := map[string]string{}
	group := clusterQueueResource.GroupVersion()
	for _, queue := range []struct{ name, resource, namespace string }{
		{"ctl", "clusterqueues", ""}, {"ctl", "localqueues", c.Namespace}, {"lost", "localqueues", c.Namespace},
	} {
		found, err := shared.Dynamic.Resource(group.WithResource(queue.resource)).Namespace(queue.namespace).Get(c.Context(), queue.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		c.must(err)
		policy, _, _ := unstructured.NestedString(found.Object, "spec", "stopPolicy")
		seen[strings.TrimSuffix(queue.resource, "s")+" "+queue.name] =
			fmt.Sprintf("%s; %s", policy, conditionsOf(found.Object))
	}
	workloads, err := shared.Dynamic.Resource(workloadResource).Namespace(c.Namespace).List(c.Context(), metav1.ListOptions{})
	c.must(err)
	jobs, err := shared.Client.BatchV1().Jobs(c.Namespace).List(c.Context(), metav1.ListOptions{})
	c.must(err)
	for _, job := range jobs.Items {
		state := "runs"
		if *job.Spec.Suspend {
			state = "suspended"
		}
		standing := 0
		shared.Timeline.Look(func(state *timeline.State) {
			standing = countPods((&Gang{Case: c, Name: job.Name}).pods(state), bound)
		})
		seen[job.Name] = fmt.Sprintf("%s, %d pods bound", state, standing)
		for _, workload := range workloads.Items {
			if owner := metav1.GetControllerOf(&workload); owner != nil && owner.UID == job.UID {
				active, _, _ := unstructured.NestedBool(workload.Object, "spec", "active")
				told := conditionsOf(workload.Object)
				if !active {
					// Kueue says of those too that their queue is stopped, or doesn't: as it happens.
					told = unreserved.ReplaceAllString(told, "QuotaReserved=False")
				}
				seen[job.Name] += fmt.Sprintf("; active %v; %s", active, told)
			}
		}
	}
	return seen
}

// conditionsOf are an object's, with their reasons. Kueue says of Workloads as well whether their
// pods are ready, and Muster who leads.
func conditionsOf(object map[string]any) string {
	var told []string
	conditions, _, _ := unstructured.NestedSlice(object, "status", "conditions")
	for _, raw := range conditions {
		condition, _ := raw.(map[string]any)
		if kind := text(condition, "type"); kind != "PodsReady" && kind != "muster.dev/Leader" {
			told = append(told, fmt.Sprintf("%s=%s(%s)", kind, text(condition, "status"), text(condition, "reason")))
		}
	}
	slices.Sort(told)
	// Kueue leaves what has finished its reservation, and Muster takes it back.
	if i := slices.IndexFunc(told, func(one string) bool { return strings.HasPrefix(one, "Finished=True") }); i >= 0 {
		return told[i]
	}
	return strings.Join(told, " ")
}

// twoPods applies a suspended job of two pods that run on until somebody ends them.
func twoPods(name string) func(*Case) {
	return func(c *Case) {
		c.Apply("job.yaml", renamed(name), queuedIn("ctl"), suspended, inParallel(2), scheduledBy(plane.SchedulerName), withoutNodeSelector,
			eachPodSpec(func(spec map[string]any) { spec["terminationGracePeriodSeconds"] = int64(0) }),
			func(job *unstructured.Unstructured) {
				_ = unstructured.SetNestedField(job.Object, kubelet.RunsProcesses, "spec", "template", "metadata", "annotations", kubelet.Annotation)
			})
	}
}

var kueuectlSteps = []kueuectlStep{
	{
		run:  "create clusterqueue ctl --cohort team --queuing-strategy BestEffortFIFO --reclaim-within-cohort Any --preemption-within-cluster-queue LowerPriority --nominal-quota ctl:nvidia.com/gpu=2 --borrowing-limit ctl:nvidia.com/gpu=1 --lending-limit ctl:nvidia.com/gpu=1",
		says: "clusterqueue.kueue.x-k8s.io/ctl created",
		then: map[string]string{
			"clusterqueue ctl": "None; Active=False(FlavorNotFound)",
		},
	},
	{
		run:  "create localqueue lost --clusterqueue none",
		says: `Error: clusterqueues.kueue.x-k8s.io "none" not found`,
	},
	{
		run:  "create localqueue lost --clusterqueue none --ignore-unknown-cq",
		says: "localqueue.kueue.x-k8s.io/lost created",
		then: map[string]string{
			"localqueue lost": "None; Active=False(ClusterQueueDoesNotExist)",
		},
	},
	{
		run:  "create localqueue ctl --clusterqueue ctl",
		says: "localqueue.kueue.x-k8s.io/ctl created",
		then: map[string]string{
			"localqueue ctl": "None; Active=False(ClusterQueueIsInactive)",
		},
	},
	{
		run:  "create resourceflavor ctl --node-labels " + flavorLabel + "=ctl",
		says: "resourceflavor.kueue.x-k8s.io/ctl created",
		then: map[string]string{
			"clusterqueue ctl": "None; Active=True(Ready)",
			"localqueue ctl":   "None; Active=True(Ready)",
		},
	},
	{
		run:  "create resourceflavor other --node-taints key=value:NoSchedule --tolerations key=value:NoSchedule,other",
		says: "resourceflavor.kueue.x-k8s.io/other created",
	},
	{
		run: "list resourceflavor",
		says: strings.Join([]string{
			"NAME NODE LABELS AGE",
			"ctl tests.muster.dev/flavor=ctl #s",
			"other #s",
		}, "\n"),
	},
	{
		run: "list clusterqueue",
		says: strings.Join([]string{
			"NAME COHORT PENDING WORKLOADS ADMITTED WORKLOADS ACTIVE AGE",
			"ctl team 0 0 true #s",
		}, "\n"),
	},
	{
		run: "list localqueue",
		says: strings.Join([]string{
			"NAME CLUSTERQUEUE PENDING WORKLOADS ADMITTED WORKLOADS AGE",
			"ctl ctl 0 0 #s",
			"lost none 0 0 #s",
		}, "\n"),
	},
	{
		run:  "list workload",
		says: "No resources found in NAMESPACE namespace.",
	},
	{
		does: twoPods("first"),
		then: map[string]string{
			"first": "runs, 2 pods bound; active true; Admitted=True(Admitted) QuotaReserved=True(QuotaReserved)",
		},
	},
	{
		does: twoPods("second"),
		then: map[string]string{
			"second": "suspended, 0 pods bound; active true; QuotaReserved=False(Pending)",
		},
	},
	{
		run: "list clusterqueue --active true",
		says: strings.Join([]string{
			"NAME COHORT PENDING WORKLOADS ADMITTED WORKLOADS ACTIVE AGE",
			"ctl team 1 1 true #s",
		}, "\n"),
	},
	{
		run: "list localqueue",
		says: strings.Join([]string{
			"NAME CLUSTERQUEUE PENDING WORKLOADS ADMITTED WORKLOADS AGE",
			"ctl ctl 1 1 #s",
			"lost none 0 0 #s",
		}, "\n"),
	},
	{
		run: "list workload",
		says: strings.Join([]string{
			"NAME JOB TYPE JOB NAME LOCALQUEUE CLUSTERQUEUE STATUS POSITION IN QUEUE EXEC TIME AGE",
			"job-first-# job first ctl ctl ADMITTED #s #s",
			"job-second-# job second ctl ctl PENDING #s",
		}, "\n"),
	},
	{
		run: "list workload --status pending",
		says: strings.Join([]string{
			"NAME JOB TYPE JOB NAME LOCALQUEUE CLUSTERQUEUE STATUS POSITION IN QUEUE EXEC TIME AGE",
			"job-second-# job second ctl ctl PENDING #s",
		}, "\n"),
	},
	{
		run: "list workload --for job/first",
		says: strings.Join([]string{
			"NAME JOB TYPE JOB NAME LOCALQUEUE CLUSTERQUEUE STATUS POSITION IN QUEUE EXEC TIME AGE",
			"job-first-# job first ctl ctl ADMITTED #s #s",
		}, "\n"),
	},
	{
		run:  "stop workload SECOND",
		says: "workload.kueue.x-k8s.io/job-second-# stopped",
		then: map[string]string{
			"second": "suspended, 0 pods bound; active false; Evicted=True(Deactivated) QuotaReserved=False",
		},
	},
	{
		run:  "resume workload SECOND",
		says: "workload.kueue.x-k8s.io/job-second-# resumed",
		then: map[string]string{
			"second": "suspended, 0 pods bound; active true; Evicted=True(Deactivated) QuotaReserved=False(Pending)",
		},
	},
	{
		run:  "stop workload FIRST",
		says: "workload.kueue.x-k8s.io/job-first-# stopped",
		then: map[string]string{
			"first":  "suspended, 0 pods bound; active false; Admitted=False(NoReservation) Evicted=True(Deactivated) QuotaReserved=False Requeued=False(Deactivated)",
			"second": "runs, 2 pods bound; active true; Admitted=True(Admitted) Evicted=False(QuotaReserved) QuotaReserved=True(QuotaReserved)",
		},
	},
	{
		run:  "resume workload FIRST",
		says: "workload.kueue.x-k8s.io/job-first-# resumed",
		then: map[string]string{
			"first": "suspended, 0 pods bound; active true; Admitted=False(NoReservation) Evicted=True(Deactivated) QuotaReserved=False(Pending) Requeued=True(Reactivated)",
		},
	},
	{
		run:  "stop workload SECOND",
		says: "workload.kueue.x-k8s.io/job-second-# stopped",
		then: map[string]string{
			"first":  "runs, 2 pods bound; active true; Admitted=True(Admitted) Evicted=False(QuotaReserved) QuotaReserved=True(QuotaReserved) Requeued=True(Reactivated)",
			"second": "suspended, 0 pods bound; active false; Admitted=False(NoReservation) Evicted=True(Deactivated) QuotaReserved=False Requeued=False(Deactivated)",
		},
	},
	{
		run:  "stop clusterqueue ctl --keep-already-running",
		says: "clusterqueue.kueue.x-k8s.io/ctl",
		then: map[string]string{
			"clusterqueue ctl": "Hold; Active=False(Stopped)",
			"localqueue ctl":   "None; Active=False(ClusterQueueIsInactive)",
		},
	},
	{
		run: "list clusterqueue --active false",
		says: strings.Join([]string{
			"NAME COHORT PENDING WORKLOADS ADMITTED WORKLOADS ACTIVE AGE",
			"ctl team 0 1 false #s",
		}, "\n"),
	},
	{
		run:  "resume workload SECOND",
		says: "workload.kueue.x-k8s.io/job-second-# resumed",
		then: map[string]string{
			"second": "suspended, 0 pods bound; active true; Admitted=False(NoReservation) Evicted=True(Deactivated) QuotaReserved=False(Inadmissible) Requeued=True(Reactivated)",
		},
	},
	{
		run:  "stop clusterqueue ctl",
		says: "clusterqueue.kueue.x-k8s.io/ctl",
		then: map[string]string{
			"clusterqueue ctl": "HoldAndDrain; Active=False(Stopped)",
			"first":            "suspended, 0 pods bound; active true; Admitted=False(NoReservation) Evicted=True(ClusterQueueStopped) QuotaReserved=False(Inadmissible) Requeued=False(ClusterQueueStopped)",
		},
	},
	{
		run:  "list workload --clusterqueue ctl",
		says: "No resources found in NAMESPACE namespace.",
	},
	// Only one is left that may have the quota: which is looked at first isn't said.
	{
		run:  "stop workload SECOND",
		says: "workload.kueue.x-k8s.io/job-second-# stopped",
		then: map[string]string{
			"second": "suspended, 0 pods bound; active false; Admitted=False(NoReservation) Evicted=True(Deactivated) QuotaReserved=False Requeued=True(Reactivated)",
		},
	},
	{
		run:  "resume clusterqueue ctl",
		says: "clusterqueue.kueue.x-k8s.io/ctl",
		then: map[string]string{
			"clusterqueue ctl": "None; Active=True(Ready)",
			"localqueue ctl":   "None; Active=True(Ready)",
			"first":            "runs, 2 pods bound; active true; Admitted=True(Admitted) Evicted=False(QuotaReserved) QuotaReserved=True(QuotaReserved) Requeued=True(ClusterQueueRestarted)",
		},
	},
	{
		run:  "resume workload SECOND",
		says: "workload.kueue.x-k8s.io/job-second-# resumed",
		then: map[string]string{
			"second": "suspended, 0 pods bound; active true; Admitted=False(NoReservation) Evicted=True(Deactivated) QuotaReserved=False(Pending) Requeued=True(Reactivated)",
		},
	},
	{
		run:  "stop localqueue ctl --keep-already-running",
		says: "localqueue.kueue.x-k8s.io/ctl",
		then: map[string]string{
			"localqueue ctl": "Hold; Active=False(Stopped)",
			"second":         "suspended, 0 pods bound; active true; Admitted=False(NoReservation) Evicted=True(Deactivated) QuotaReserved=False(Inadmissible) Requeued=True(Reactivated)",
		},
	},
	{
		run:  "stop localqueue ctl",
		says: "localqueue.kueue.x-k8s.io/ctl",
		then: map[string]string{
			"localqueue ctl": "HoldAndDrain; Active=False(Stopped)",
			"first":          "suspended, 0 pods bound; active true; Admitted=False(NoReservation) Evicted=True(LocalQueueStopped) QuotaReserved=False(Inadmissible) Requeued=False(LocalQueueStopped)",
		},
	},
	// Only one is left that may have the quota: which is looked at first isn't said.
	{
		run:  "stop workload SECOND",
		says: "workload.kueue.x-k8s.io/job-second-# stopped",
		then: map[string]string{
			"second": "suspended, 0 pods bound; active false; Admitted=False(NoReservation) Evicted=True(Deactivated) QuotaReserved=False Requeued=True(Reactivated)",
		},
	},
	{
		run:  "resume localqueue ctl",
		says: "localqueue.kueue.x-k8s.io/ctl",
		then: map[string]string{
			"localqueue ctl": "None; Active=True(Ready)",
			"first":          "runs, 2 pods bound; active true; Admitted=True(Admitted) Evicted=False(QuotaReserved) QuotaReserved=True(QuotaReserved) Requeued=True(LocalQueueRestarted)",
		},
	},
	{
		does: func(c *Case) { c.AwaitPods("first", 2, time.Second).succeed() },
		then: map[string]string{
			"first": "runs, 2 pods bound; active true; Finished=True(Succeeded)",
		},
	},
	{
		run:  "resume workload SECOND",
		says: "workload.kueue.x-k8s.io/job-second-# resumed",
		then: map[string]string{
			"second": "runs, 2 pods bound; active true; Admitted=True(Admitted) Evicted=False(QuotaReserved) QuotaReserved=True(QuotaReserved) Requeued=True(Reactivated)",
		},
	},
	{
		run: "list workload --status finished",
		says: strings.Join([]string{
			"NAME JOB TYPE JOB NAME LOCALQUEUE CLUSTERQUEUE STATUS POSITION IN QUEUE EXEC TIME AGE",
			"job-first-# job first ctl ctl FINISHED #s",
		}, "\n"),
	},
	{
		run: "list workload --localqueue ctl",
		says: strings.Join([]string{
			"NAME JOB TYPE JOB NAME LOCALQUEUE CLUSTERQUEUE STATUS POSITION IN QUEUE EXEC TIME AGE",
			"job-first-# job first ctl ctl FINISHED #s",
			"job-second-# job second ctl ctl ADMITTED #s #s",
		}, "\n"),
	},
	{
		run: "list clusterqueue",
		says: strings.Join([]string{
			"NAME COHORT PENDING WORKLOADS ADMITTED WORKLOADS ACTIVE AGE",
			"ctl team 0 1 true #s",
		}, "\n"),
	},
}
