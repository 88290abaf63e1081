package cluster

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hole is what is known to be wrong today.
type hole struct {
	why string
	// The policies don't close it either.
	despitePolicies bool
}

// knownHoles are the cases that fail today. One that doesn't fail any more fails the suite until it is
// taken out here.
var knownHoles = map[string]hole{}

// What a forged record of quota says; the pod set is that of the gang's own members.
func forgedRecord(group, clusterQueue string, podSet string, usage int64) string {
	return fmt.Sprintf(`{"uid":"{{uid podgroup/%s}}","identity":"me","epoch":1,"attempt":1,`+
		`"admittedAt":"2026-01-01T00:00:00Z","deadline":"2036-01-01T00:00:00Z","queue":"default","quota":{`+
		`"clusterQueue":%q,"reservedAt":"2026-01-01T00:00:00Z","podSets":[{"name":%q,"count":2,`+
		`"flavors":{"nvidia.com/gpu":"fast","cpu":"fast"},"usage":{"nvidia.com/gpu":%d,"cpu":%d}}],"surplus":[]}}`,
		group, clusterQueue, podSet, usage, usage*1000)
}

const (
	record      = "muster.dev/admission"
	podSetMark  = "muster.dev/pod-set"
	flavorsMark = "muster.dev/flavors"
	queueMark   = "muster.dev/queue"
	epochMark   = "muster.dev/epoch"
	wakeMark    = "muster.dev/wake"
	restartMark = "muster.dev/restart"
	triedMark   = "muster.dev/flavors-tried"
	derivedMark = "muster.dev/derived"
	keep        = "tests.muster.dev/keep" // a finalizer
)

// A gang that fills what the queue has of flavor fast, and one for which nothing is left then: flavor
// slow has half of what it asks for.
var (
	filled   = []step{gang("first", 2, 2), runs("first", 2)}
	cheating = gang("cheat", 2, 2)
)

func after(before []step, more ...step) []step { return append(append([]step{}, before...), more...) }

// cheatWaits is what must come of it in most cases.
var cheatWaits = []step{staysOut("cheat")}

// tenantCases are what a tenant tries, grouped by what he reaches for.
var tenantCases = []tenantCase{
	// ---- The suite can fail: what he has a right to he gets. ----
	{
		name: "a gang within the quota starts",
		does: []step{gang("first", 2, 2)},
		then: []step{startsAnyway("first", 2)},
	},
	{
		name:  "one that ends makes room for the next",
		does:  after(filled, cheating, sleeps(time.Second), can(remove("pod/first-0")), can(remove("pod/first-1")), can(remove("podgroup/first"))),
		then:  []step{startsAnyway("cheat", 2)},
		short: true,
	},
	{
		name: "a gang that asks for nothing starts in a cluster with queues",
		does: []step{gang("free", 2, 0, bestEffort)},
		then: []step{startsAnyway("free", 2)},
	},
	{
		name: "a restored backup brings state along and starts like any other",
		does: []step{
			can(create("podgroup/restored", `{"apiVersion":"scheduling.x-k8s.io/v1alpha1","kind":"PodGroup","metadata":{"name":"restored","annotations":{"muster.dev/admission":"{\"uid\":\"0322e86a\"}"}},"spec":{"minMember":2}}`)),
			can(members("restored", 0, 2, 2, withAnnotation(record, "{}"), withAnnotation(podSetMark, "x"), withAnnotation(epochMark, "7"), withAnnotation(queueMark, "second"), withAnnotation(flavorsMark, "nvidia.com/gpu=slow"))),
		},
		then: []step{startsAnyway("restored", 2)},
	},

	// ---- The record of a PodGroup ----
	{
		name:  "a record is forged that says the gang has quota and uses none",
		does:  after(filled, cheating, sleeps(time.Second), policed(stateRefusal, annotate("podgroup/cheat", record, forgedRecord("cheat", "{{ns}}-default", "{{annotation muster.dev/pod-set of pod/first-0}}", 0)))),
		then:  cheatWaits,
		short: true,
	},
	{
		name: "a record is forged together with pod sets that pods claimed at their creation",
		does: after(filled, gang("cheat", 2, 2, withAnnotation(podSetMark, "x")), sleeps(time.Second),
			policed(stateRefusal, annotate("podgroup/cheat", record, forgedRecord("cheat", "{{ns}}-default", "x", 0)))),
		then: cheatWaits,
	},
	{
		name: "a running gang's record says that it uses nothing",
		does: after(filled, cheating, sleeps(time.Second),
			policed(stateRefusal, annotate("podgroup/first", record, forgedRecord("first", "{{ns}}-default", "{{annotation muster.dev/pod-set of pod/first-0}}", 0)))),
		then: cheatWaits,
	},
	{
		name: "a record charges a queue of others with a thousand GPUs",
		does: after(filled,
			policed(stateRefusal, annotate("podgroup/first", record, forgedRecord("first", "{{others}}", "{{annotation muster.dev/pod-set of pod/first-0}}", 1000)))),
	},
	{
		name: "a record charges its own queue with less than nothing",
		does: after(filled, cheating, sleeps(time.Second),
			policed(stateRefusal, annotate("podgroup/first", record, forgedRecord("first", "{{ns}}-default", "{{annotation muster.dev/pod-set of pod/first-0}}", -1000)))),
		then: cheatWaits,
	},
	{
		name: "a record charges a queue of others with less than nothing, then with more than an int64",
		does: after(filled,
			policed(stateRefusal, annotate("podgroup/first", record, forgedRecord("first", "{{others}}", "{{annotation muster.dev/pod-set of pod/first-0}}", -1000))),
			policed(stateRefusal, annotate("podgroup/first", record, forgedRecord("first", "{{others}}", "{{annotation muster.dev/pod-set of pod/first-0}}", 9_000_000_000_000_000)))),
	},
	{
		name: "a running gang's record is copied to one that waits",
		does: after(filled, cheating, sleeps(time.Second),
			policed(stateRefusal, annotate("podgroup/cheat", record, "{{annotation muster.dev/admission of podgroup/first}}"))),
		then: cheatWaits,
	},
	{
		name: "a running gang's record is taken away",
		does: after(filled, cheating, sleeps(time.Second), policed(stateRefusal, annotate("podgroup/first", record, ""))),
		then: cheatWaits,
	},
	{
		name:  "a running gang's record is taken away, and Muster starts anew",
		does:  after(filled, cheating, sleeps(time.Second), policed(stateRefusal, annotate("podgroup/first", record, "")), restartMuster),
		then:  cheatWaits,
		alone: true,
	},
	{
		name:  "a running gang's record is made unreadable, and Muster starts anew",
		does:  after(filled, cheating, sleeps(time.Second), policed(stateRefusal, annotate("podgroup/first", record, "{")), restartMuster),
		then:  cheatWaits,
		alone: true,
	},
	{
		name: "a running gang's record names the second queue",
		does: after(filled, cheating, sleeps(time.Second),
			policed(stateRefusal, annotate("podgroup/first", record, forgedRecord("first", "{{ns}}-second", "{{annotation muster.dev/pod-set of pod/first-0}}", 4)))),
		then: cheatWaits,
	},
	{
		name: "a running gang's record is of another process and a later epoch",
		does: after(filled, cheating, sleeps(time.Second),
			policed(stateRefusal, annotate("podgroup/first", record, `{"uid":"{{uid podgroup/first}}","identity":"me","epoch":9000000000000000000,"attempt":1,"admittedAt":"2026-01-01T00:00:00Z","deadline":"2026-01-01T00:00:00Z"}`))),
		then: cheatWaits,
	},
	{
		name: "a record says that others must be evicted",
		does: after(filled, policed(stateRefusal, annotate("podgroup/first", record, `{"uid":"{{uid podgroup/first}}","identity":"me","epoch":1,"attempt":1,"admittedAt":"2026-01-01T00:00:00Z","deadline":"2036-01-01T00:00:00Z","eviction":{"why":"gang {{others}}/bystander must go"}}`))),
	},
	{
		name: "a PodGroup is called Muster's own",
		does: after(filled, policed(stateRefusal, merge("podgroup/first", `{"metadata":{"labels":{"muster.dev/derived":"true"}}}`)), cheating),
		then: cheatWaits,
	},

	// ---- What stands on pods ----
	{
		name: "pods claim at their creation to be one pod set, small ones first",
		does: after(filled,
			can(groupOf("cheat", 3)),
			can(members("cheat", 0, 1, 0, withAnnotation(podSetMark, "x"), withoutGPUs)),
			can(members("cheat", 1, 2, 8, withAnnotation(podSetMark, "x")))),
		then:  cheatWaits,
		short: true,
	},
	{
		name: "the pods of a Job claim to be one pod set",
		does: after(filled, can(batchJob("cheat", 2, 2, withAnnotation(podSetMark, "{{annotation muster.dev/pod-set of pod/first-0}}")))),
		then: cheatWaits,
	},
	{
		name: "pods that can't be placed claim the pod set of those of others",
		does: []step{
			gang("same", 2, 1), runs("same", 2),
			can(groupOf("evil", 2)), try(annotate("podgroup/evil", "muster.dev/assume-feasible", "true")),
			can(members("evil", 0, 2, 64, withAnnotation(podSetMark, "{{annotation muster.dev/pod-set of pod/same-0}}"))),
			sleeps(time.Second),
			policed(stateRefusal, annotate("pod/evil-0", podSetMark, "{{annotation muster.dev/pod-set of pod/same-0}}")),
			policed(stateRefusal, annotate("pod/evil-1", podSetMark, "{{annotation muster.dev/pod-set of pod/same-0}}")),
		},
	},
	{
		name: "running pods claim another pod set",
		does: after(filled, cheating, sleeps(time.Second), policed(stateRefusal, annotate("pod/first-0", podSetMark, "x")), policed(stateRefusal, annotate("pod/first-1", podSetMark, "x"))),
		then: cheatWaits,
	},
	{
		name: "running pods claim another flavor",
		does: after(filled, cheating, sleeps(time.Second), policed(stateRefusal, annotate("pod/first-0", flavorsMark, "nvidia.com/gpu=slow")), policed(stateRefusal, annotate("pod/first-1", flavorsMark, "nvidia.com/gpu=slow"))),
		then: cheatWaits,
	},
	{
		name: "running pods claim another queue",
		does: after(filled, cheating, sleeps(time.Second), policed(stateRefusal, annotate("pod/first-0", queueMark, "second")), policed(stateRefusal, annotate("pod/first-1", queueMark, "second"))),
		then: cheatWaits,
	},
	{
		name: "running pods lose all that Muster wrote on them",
		does: after(filled, cheating, sleeps(time.Second),
			policed(stateRefusal, merge("pod/first-0", `{"metadata":{"annotations":null}}`)), policed(stateRefusal, merge("pod/first-1", `{"metadata":{"annotations":null}}`))),
		then: cheatWaits,
	},
	{
		name:  "running pods lose all that Muster wrote on them, and Muster starts anew",
		does:  after(filled, cheating, sleeps(time.Second), policed(stateRefusal, merge("pod/first-0", `{"metadata":{"annotations":null}}`)), policed(stateRefusal, merge("pod/first-1", `{"metadata":{"annotations":null}}`)), restartMuster),
		then:  cheatWaits,
		alone: true,
	},
	{
		name: "waiting pods claim flavors and a queue, an epoch, and to be woken",
		does: after(filled, cheating, sleeps(time.Second),
			policed(stateRefusal, annotate("pod/cheat-0", flavorsMark, "nvidia.com/gpu=fast")), policed(stateRefusal, annotate("pod/cheat-0", queueMark, "second")),
			policed(stateRefusal, annotate("pod/cheat-0", epochMark, "9")), policed(stateRefusal, annotate("pod/cheat-1", wakeMark, "9"))),
		then: cheatWaits,
	},
	{
		name: "a lone pod forges a record of its own",
		does: after(filled, can(lonePod("cheat-0", 4)), sleeps(time.Second),
			policed(stateRefusal, annotate("pod/cheat-0", record, `{"uid":"{{uid pod/cheat-0}}","identity":"me","epoch":1,"attempt":1,"admittedAt":"2026-01-01T00:00:00Z","deadline":"2036-01-01T00:00:00Z","queue":"default","quota":{"clusterQueue":"{{ns}}-default","reservedAt":"2026-01-01T00:00:00Z","podSets":[],"surplus":[]}}`))),
		then: cheatWaits,
	},
	{
		name: "a lone running pod loses its record",
		does: []step{
			can(lonePod("first-0", 4)), runs("first", 1), cheating, sleeps(time.Second),
			try(annotate("pod/first-0", record, "")),
		},
		then: cheatWaits,
	},
	{
		name: "the gate is taken off by hand",
		does: after(filled, cheating, sleeps(time.Second), policed("spec.schedulingGates", merge("pod/cheat-0", `{"spec":{"schedulingGates":null}}`)), policed("spec.schedulingGates", merge("pod/cheat-1", `{"spec":{"schedulingGates":null}}`))),
		then: cheatWaits,
	},
	{
		name: "a gate is put on a running pod again",
		does: after(filled, cheating, sleeps(time.Second), refused("only deletion is allowed", merge("pod/first-0", `{"spec":{"schedulingGates":[{"name":"muster.dev/admission"}]}}`))),
		then: cheatWaits,
	},
	{
		name: "a gate of the tenant's own is lifted late",
		does: after(filled, gang("cheat", 2, 2, withGate("tests.muster.dev/mine")), sleeps(time.Second),
			can(strategic("pod/cheat-0", `{"spec":{"schedulingGates":[{"$patch":"delete","name":"tests.muster.dev/mine"}]}}`)),
			can(strategic("pod/cheat-1", `{"spec":{"schedulingGates":[{"$patch":"delete","name":"tests.muster.dev/mine"}]}}`))),
		then: cheatWaits,
	},

	// ---- Deletions while pods run ----
	{
		name:  "the PodGroup is deleted while its pods run",
		does:  after(filled, cheating, sleeps(time.Second), can(remove("podgroup/first"))),
		then:  cheatWaits,
		short: true,
	},
	{
		name: "the PodGroup is deleted and made anew while its pods run",
		does: after(filled, cheating, sleeps(time.Second), can(remove("podgroup/first")), can(groupOf("first", 2))),
		then: cheatWaits,
	},
	{
		name:  "the PodGroup is deleted while its pods run, and Muster starts anew",
		does:  after(filled, cheating, sleeps(time.Second), can(remove("podgroup/first")), restartMuster),
		then:  cheatWaits,
		alone: true,
	},
	{
		name: "the PodGroup has a finalizer and is being deleted while its pods run",
		does: after(filled, cheating, sleeps(time.Second), can(merge("podgroup/first", `{"metadata":{"finalizers":["`+keep+`"]}}`)), can(remove("podgroup/first")), sleeps(tenantSettles)),
		then: []step{staysOut("cheat"), can(merge("podgroup/first", `{"metadata":{"finalizers":null}}`))},
	},
	{
		name: "the PodGroup that Muster made for a Job is deleted while its pods run",
		does: []step{can(batchJob("first", 2, 2)), runs("first", 2), cheating, sleeps(time.Second), can(remove("podgroup/first"))},
		then: cheatWaits,
	},
	{
		name: "a Job is deleted and its pods run on",
		does: []step{can(batchJob("first", 2, 2)), runs("first", 2), cheating, sleeps(time.Second), can(removing("job/first", metav1.DeletePropagationOrphan))},
		then: cheatWaits,
	},
	{
		name: "a Job is deleted, and its pods end only when they like",
		does: []step{
			can(batchJob("first", 2, 2, withFinalizer(keep))), runs("first", 2), cheating, sleeps(time.Second),
			can(removing("job/first", metav1.DeletePropagationForeground)), sleeps(tenantSettles),
		},
		then: []step{staysOut("cheat"), letGo("first")},
	},
	{
		name: "pods are deleted and end only when they like",
		does: []step{
			gang("first", 2, 2, withFinalizer(keep)), runs("first", 2), cheating, sleeps(time.Second),
			can(remove("pod/first-0")), can(remove("pod/first-1")), sleeps(tenantSettles),
		},
		then: []step{staysOut("cheat"), letGo("first")},
	},
	{
		name: "pods are deleted and end only when they like, then their PodGroup",
		does: []step{
			gang("first", 2, 2, withFinalizer(keep)), runs("first", 2), cheating, sleeps(time.Second),
			can(remove("pod/first-0")), can(remove("pod/first-1")), can(remove("podgroup/first")), sleeps(tenantSettles),
		},
		then: []step{staysOut("cheat"), letGo("first")},
	},
	{
		name: "a Job's pods are deleted and end only when they like, while it makes others",
		does: []step{
			can(batchJob("first", 2, 2, withFinalizer(keep))), runs("first", 2), deletePodsOf("first"), exist("first", 4), sleeps(tenantSettles),
		},
		then: []step{letGo("first")},
	},
	{
		name: "one member of two goes, the PodGroup with it, and a gang of half the size comes",
		does: after(filled, can(remove("podgroup/first")), can(remove("pod/first-0")), gang("half", 1, 2), sleeps(time.Second), cheating),
		then: cheatWaits,
	},

	// ---- Queues ----
	{
		name: "the queue label of running pods changes",
		does: after(filled, cheating, sleeps(time.Second), can(merge("pod/first-0", `{"metadata":{"labels":{"`+queueLabel+`":"second"}}}`)), can(merge("pod/first-1", `{"metadata":{"labels":{"`+queueLabel+`":"second"}}}`))),
		then: cheatWaits,
	},
	{
		name: "the queue label of a running PodGroup changes",
		does: after(filled, cheating, sleeps(time.Second), can(merge("podgroup/first", `{"metadata":{"labels":{"`+queueLabel+`":"second"}}}`))),
		then: cheatWaits,
	},
	{
		name: "a waiting gang names the queue of another namespace",
		does: after(filled, gang("cheat", 2, 2, withLabel(queueLabel, "{{others}}"))),
		then: cheatWaits,
	},
	{
		name: "a waiting gang names one queue after the other",
		does: after(filled, cheating, sleeps(time.Second),
			can(merge("podgroup/cheat", `{"metadata":{"labels":{"`+queueLabel+`":"second"}}}`)), sleeps(time.Second),
			can(merge("podgroup/cheat", `{"metadata":{"labels":{"`+queueLabel+`":"none"}}}`)), sleeps(time.Second),
			can(merge("podgroup/cheat", `{"metadata":{"labels":{"`+queueLabel+`":null}}}`))),
		then: cheatWaits,
	},
	{
		name: "members of one gang name different queues",
		does: after(filled, can(groupOf("cheat", 2)), can(members("cheat", 0, 1, 2, withLabel(queueLabel, "second"))), can(members("cheat", 1, 1, 2))),
	},
	{
		name: "a running Job says that it is no gang",
		does: []step{can(batchJob("first", 2, 2)), runs("first", 2), cheating, sleeps(time.Second), can(annotate("job/first", "muster.dev/gang", "false"))},
		then: cheatWaits,
	},
	{
		name: "a running Job loses its queue",
		does: []step{
			can(editedJob("first", 2, 2, func(_ *tenant, job *batchv1.Job) { job.Labels = map[string]string{queueLabel: "default"} })), runs("first", 2), cheating, sleeps(time.Second),
			can(merge("job/first", `{"metadata":{"labels":{"`+queueLabel+`":"none"}}}`)),
		},
		then: cheatWaits,
	},
	{
		name:  "he helps himself to queues, flavors, nodes and what Muster stands on",
		short: true,
		does: []step{
			refused("forbidden", merge("clusterqueue/{{ns}}-default", `{"spec":{"stopPolicy":"None"}}`)),
			refused("forbidden", merge("clusterqueue/{{ns}}-default:status", `{"status":{"pendingWorkloads":0}}`)),
			refused("forbidden", remove("clusterqueue/{{others}}")),
			refused("forbidden", merge("flavor/fast", `{"spec":{"nodeLabels":null}}`)),
			refused("forbidden", create("localqueue/mine", `{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"LocalQueue","metadata":{},"spec":{"clusterQueue":"{{others}}"}}`)),
			refused("forbidden", merge("localqueue/default", `{"spec":{"clusterQueue":"{{others}}"}}`)),
			refused("forbidden", remove("localqueue/default")),
			refused("forbidden", merge("node/{{node}}", `{"metadata":{"labels":{"`+flavorLabel+`":"slow"}}}`)),
			refused("forbidden", annotate("node/{{node}}", "muster.dev/holds", "{}")),
			refused("forbidden", merge("podgroup/none:status", `{"status":{"phase":"Running"}}`)),
			refused("forbidden", remove("webhook/muster-admission")),
			refused("forbidden", remove("policybinding/muster-state")),
			refused("forbidden", merge("muster-system/configmap/muster", `{"data":null}`)),
			refused("forbidden", merge("muster-system/lease/coscheduling", `{"spec":{"holderIdentity":"me"}}`)),
			refused("forbidden", annotate("others/job/bystander", restartMark, "{}")),
		},
	},
	{
		name: "he writes Workloads and their status",
		does: []step{
			refused("forbidden", create("workload/mine", `{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Workload","metadata":{},"spec":{"queueName":"default","podSets":[]}}`)),
			refused("forbidden", merge("workload/mine", `{"spec":{"active":true}}`)),
			refused("forbidden", merge("workload/mine:status", `{"status":{"admission":{"clusterQueue":"{{ns}}-default"}}}`)),
			refused("forbidden", remove("workload/mine")),
		},
	},
	{
		name:          "queues come while a gang runs",
		withoutQueues: true,
		does: []step{gang("first", 2, 2, onFlavor("fast")), sleeps(tenantSettles), administrator(func(t *tenant) {
			t.makeHisQueues()
			t.awaitQueuesKnown(true)
		}), cheating},
		then: cheatWaits,
	},
	{
		name: "the administrator deletes the queues",
		does: after(filled, cheating, sleeps(time.Second), administrator(deleteHisQueues)),
		then: cheatWaits,
	},

	// ---- Nodes without a scheduler ----
	{
		name: "a pod of Muster's names its node",
		does: []step{refused("spec.nodeName", lonePod("sneaky-0", 8, withNode("{{node}}")))},
	},
	{
		name: "a pod of another scheduler names a queue",
		does: []step{refused(queueLabel, lonePod("sneaky-0", 2, withScheduler("default-scheduler"), withLabel(queueLabel, "default")))},
	},
	{
		name: "a pod of nobody's names its node and takes GPUs before",
		does: []step{can(lonePod("sneaky-0", 4, withScheduler("default-scheduler"), withNode("{{node}}"))), runs("sneaky", 1), cheating},
		then: cheatWaits,
	},
	{
		name: "a pod of the default scheduler takes GPUs before",
		does: []step{can(lonePod("sneaky-0", 4, withScheduler("default-scheduler"), onFlavor("fast"))), runs("sneaky", 1), cheating},
		then: cheatWaits,
	},
	{
		name: "a Job with a queue has pods of the default scheduler",
		does: []step{can(batchJob("sneaky", 1, 4, withScheduler("default-scheduler"), onFlavor("fast"), withLabel(queueLabel, "default"))), runs("sneaky", 1), cheating},
		then: cheatWaits,
	},
	{
		name: "a waiting pod is bound by hand",
		does: after(filled, cheating, sleeps(time.Second), refused("forbidden", bind("cheat-0", "{{node}}"))),
		then: cheatWaits,
	},
	{
		name: "a waiting pod gets a node, or another scheduler, by a patch",
		does: after(filled, cheating, sleeps(time.Second),
			refused("Forbidden: pod updates may not change fields other than", merge("pod/cheat-0", `{"spec":{"nodeName":"{{node}}"}}`)),
			refused("Forbidden: pod updates may not change fields other than", merge("pod/cheat-0", `{"spec":{"schedulerName":"default-scheduler"}}`))),
		then: cheatWaits,
	},
	{
		name: "a Job's pods get another scheduler while it is suspended",
		does: after(filled,
			can(editedJob("cheat", 2, 2, func(_ *tenant, job *batchv1.Job) { suspended := true; job.Spec.Suspend = &suspended })),
			refused("field is immutable", merge("job/cheat", `{"spec":{"template":{"spec":{"schedulerName":"default-scheduler"}}}}`)),
			can(merge("job/cheat", `{"spec":{"suspend":false}}`)), exist("cheat", 2)),
		then: cheatWaits,
	},

	// ---- Suspending ----
	{
		name: "a running Job claims that Muster is restarting it",
		does: []step{
			can(batchJob("first", 2, 2)), runs("first", 2), cheating, sleeps(time.Second),
			policed(stateRefusal, annotate("job/first", restartMark, `{"at":"2026-01-01T00:00:00Z","why":"me","generation":1}`)),
		},
		then: cheatWaits,
	},
	{
		name: "a Job is suspended, and its pods end only when they like",
		does: []step{
			can(batchJob("first", 2, 2, withFinalizer(keep))), runs("first", 2), cheating, sleeps(time.Second),
			can(merge("job/first", `{"spec":{"suspend":true}}`)), sleeps(tenantSettles),
		},
		then: []step{staysOut("cheat"), letGo("first")},
	},
	{
		name: "a Job is suspended and resumed while its pods end only when they like",
		does: []step{
			can(batchJob("first", 2, 2, withFinalizer(keep))), runs("first", 2),
			can(merge("job/first", `{"spec":{"suspend":true}}`)), sleeps(time.Second), can(merge("job/first", `{"spec":{"suspend":false}}`)), sleeps(tenantSettles),
		},
		then: []step{letGo("first")},
	},
	{
		name: "a Job comes suspended and claims that Muster is restarting it",
		does: after(filled, can(editedJob("cheat", 2, 2, func(_ *tenant, job *batchv1.Job) {
			suspended := true
			job.Spec.Suspend = &suspended
			job.Annotations = map[string]string{restartMark: `{"at":"2026-01-01T00:00:00Z","why":"me","generation":1}`, triedMark: `{"attempt":1,"flavors":{"fast":"2036-01-01T00:00:00Z"}}`}
		}))),
		then: cheatWaits,
	},

	// ---- Asking for more, or for less than is used ----
	{
		name: "more members come than the gang needs",
		does: after(filled, can(members("first", 2, 4, 2))),
	},
	{
		name: "a Job's parallelism is raised while it runs",
		does: []step{
			can(editedJob("first", 2, 2, func(_ *tenant, job *batchv1.Job) { many := int32(6); job.Spec.Completions = &many })), runs("first", 2),
			can(merge("job/first", `{"spec":{"parallelism":6}}`)), exist("first", 6),
		},
	},
	{
		name: "minMember is lowered while the gang waits",
		does: after(filled, cheating, sleeps(time.Second), can(merge("podgroup/cheat", `{"spec":{"minMember":1}}`))),
	},
	{
		name: "minMember is zero, negative, or more than there can be",
		does: after(filled, cheating, sleeps(time.Second),
			try(merge("podgroup/cheat", `{"spec":{"minMember":0}}`)), try(merge("podgroup/cheat", `{"spec":{"minMember":-1}}`)), try(merge("podgroup/cheat", `{"spec":{"minMember":2147483647}}`))),
	},
	{
		name: "running pods ask for more cpu than the queue has",
		does: []step{
			gang("first", 2, 1), runs("first", 2), kubeletSays("first-0", resizable),
			can(strategic("pod/first-0:resize", `{"spec":{"containers":[{"name":"worker","resources":{"requests":{"cpu":"40"},"limits":{"cpu":"40"}}}]}}`)), sleeps(time.Second),
			gang("cheat", 1, 1, onFlavor("fast")),
		},
		then: cheatWaits,
	},
	{
		name: "GPUs are asked for by containers that run before the others",
		does: after(filled, gang("cheat", 2, 2, inInitContainer(false))),
		then: cheatWaits,
	},
	{
		name: "GPUs are asked for by containers that run beside the others",
		does: after(filled, gang("cheat", 2, 2, inInitContainer(true))),
		then: cheatWaits,
	},
	{
		name: "GPUs are limits without requests",
		does: after(filled, gang("cheat", 2, 2, limitsAlone)),
		then: cheatWaits,
	},
	{
		name: "cpu is asked for by the pod and not by its containers",
		does: []step{gang("cheat", 2, 1, withPodResources("40"))},
		then: cheatWaits,
	},
	{
		name: "a priority above all is claimed",
		does: after(filled, gang("cheat", 2, 2, withPriority("system-cluster-critical"))),
		then: cheatWaits,
	},
	{
		name: "a priority is made, or one for workloads is claimed that doesn't exist",
		does: []step{
			refused("forbidden", create("priorityclass/mine", `{"apiVersion":"scheduling.k8s.io/v1","kind":"PriorityClass","metadata":{},"value":1000000}`)),
			gang("cheat", 2, 2, withLabel("kueue.x-k8s.io/priority-class", "nosuch")),
		},
		then: cheatWaits,
	},

	// ---- Whose pods they are ----
	{
		name: "running pods leave their group",
		does: after(filled, cheating, sleeps(time.Second), can(merge("pod/first-0", `{"metadata":{"labels":{"`+podGroupLabel+`":null}}}`)), can(merge("pod/first-1", `{"metadata":{"labels":{"`+podGroupLabel+`":null}}}`))),
		then: cheatWaits,
	},
	{
		name: "running pods go over to a gang that waits",
		does: after(filled, cheating, sleeps(time.Second), can(merge("pod/first-0", `{"metadata":{"labels":{"`+podGroupLabel+`":"cheat"}}}`)), can(merge("pod/first-1", `{"metadata":{"labels":{"`+podGroupLabel+`":"cheat"}}}`))),
		then: cheatWaits,
	},
	{
		name: "pods come that name another gang of the namespace",
		does: after(filled, can(members("cheat", 0, 2, 2, withLabel(podGroupLabel, "first")))),
	},
	{
		name: "pods come that name a gang of another namespace",
		does: []step{can(lonePod("cheat-0", 1, withLabel(podGroupLabel, "bystander"))), can(lonePod("cheat-1", 1, withLabel(podGroupLabel, "bystander")))},
	},
	{
		name: "a PodGroup has the name of another namespace's, and more members than there are",
		does: []step{gang("bystander", 2, 1), gang("later", 2, 1)},
	},
	{
		name: "pods claim to belong to a job of another namespace, and fail",
		does: []step{
			can(lonePod("cheat-0", 1, withOwner("Job", "batch/v1", "bystander", "{{uid others/job/bystander}}"))),
			can(lonePod("cheat-1", 1, withOwner("Job", "batch/v1", "bystander", "{{uid others/job/bystander}}"))),
			sleeps(2 * time.Second), failWhatRuns("cheat", `{"phase":"Failed","reason":"UnexpectedAdmissionError","message":"cannot allocate unhealthy devices nvidia.com/gpu"}`),
		},
	},
	{
		name: "a gang's PodGroup claims to belong to a job of another namespace, and its members fail",
		does: []step{
			gang("first", 2, 1), runs("first", 2),
			try(merge("podgroup/first", `{"metadata":{"ownerReferences":[{"apiVersion":"batch/v1","kind":"Job","name":"bystander","uid":"{{uid others/job/bystander}}","controller":true}]}}`)),
			sleeps(time.Second), failWhatRuns("first", `{"phase":"Failed","reason":"Error","message":"it ended"}`),
		},
		except: nodesUnmarked,
	},
	{
		name: "pods of an owner that nobody knows start whole or not at all",
		does: []step{unknownOwners("mpi", 4, 2)},
		then: []step{staysOut("mpi")},
	},
	{
		name: "events are forged that say what controllers say",
		does: after(filled,
			try(create("event/one", `{"apiVersion":"v1","kind":"Event","metadata":{},"involvedObject":{"apiVersion":"batch/v1","kind":"Job","name":"bystander","namespace":"{{ns}}","uid":"{{uid others/job/bystander}}"},"reason":"FailedCreate","message":"exceeded quota","type":"Warning"}`)),
			try(create("event/two", `{"apiVersion":"v1","kind":"Event","metadata":{},"involvedObject":{"apiVersion":"karpenter.sh/v1","kind":"NodeClaim","name":"any"},"reason":"InsufficientCapacityError","message":"no capacity","type":"Warning"}`)), cheating),
		then: cheatWaits,
	},

	// ---- What containers say when they end ----
	{
		name: "termination messages of two gangs call a node's GPU broken",
		does: []step{
			gang("one", 1, 1), gang("two", 1, 1), runs("one", 1), runs("two", 1),
			failWhatRuns("one", gpuFault), failWhatRuns("two", gpuFault),
		},
	},
	{
		name: "members are turned away because a pod of nobody's took their room first",
		does: []step{
			gang("one", 1, 1), gang("two", 1, 1), runs("one", 1), runs("two", 1),
			can(lonePod("sneaky-0", 8, withScheduler("default-scheduler"), withNode("{{node of pod/one-0}}"))),
			failWhatRuns("one", outOfGPUs), failWhatRuns("two", outOfGPUs),
		},
	},

	// ---- Many ----
	{
		name:  "ten thousand objects",
		does:  after(filled, flood(2000, 4)),
		alone: true,
	},
	{
		name:  "ten thousand objects, and Muster starts anew",
		does:  after(filled, flood(2000, 4), sleeps(tenantSettles), restartMuster),
		alone: true,
	},
	{
		name:  "ten thousand objects of a queue that isn't there, and Muster starts anew",
		does:  after(filled, flood(2000, 4, withLabel(queueLabel, "none")), sleeps(tenantSettles), restartMuster),
		alone: true,
	},
}

const (
	gpuFault = `{"phase":"Failed","containerStatuses":[{"name":"worker","image":"worker","imageID":"","ready":false,"restartCount":0,"state":{"terminated":{"exitCode":1,"message":"NVRM: Xid (PCI:0000:00:1e): 79, GPU has fallen off the bus. CUDA error: uncorrectable ECC error encountered"}}}]}`
	// A kubelet that can resize pods says what they have.
	resizable = `{"containerStatuses":[{"name":"worker","image":"worker","imageID":"","ready":true,"started":true,"restartCount":0,"state":{"running":{}},"resources":{"requests":{"cpu":"1"}}}]}`
	outOfGPUs = `{"phase":"Failed","reason":"OutOfnvidia.com/gpu","message":"Node didn't have enough resource: nvidia.com/gpu, requested: 1, used: 8, capacity: 8"}`
)

// failWhatRuns is the kubelet's part: all pods whose names begin so end like that.
func failWhatRuns(prefix, status string) step {
	return func(t *tenant) {
		for _, name := range t.podsOf(prefix, bound) {
			t.patchStatus(name, `{"status":`+status+`}`)
		}
	}
}

func (t *tenant) podsOf(prefix string, predicate func(*corev1.Pod) bool) (names []string) {
	pods, err := shared.Client.CoreV1().Pods(t.Namespace).List(t.Context(), metav1.ListOptions{})
	t.must(err)
	for i := range pods.Items {
		if one := &pods.Items[i]; len(one.Name) > len(prefix) && one.Name[:len(prefix)+1] == prefix+"-" && predicate(one) {
			names = append(names, one.Name)
		}
	}
	return names
}

// deletePodsOf deletes a job's pods that run.
func deletePodsOf(prefix string) step {
	return func(t *tenant) {
		for _, name := range t.podsOf(prefix, bound) {
			t.must(remove("pod/" + name)(t))
		}
	}
}

// letGo takes the tenant's finalizer off, so that the namespace can go.
func letGo(prefix string) step {
	return func(t *tenant) {
		for _, name := range t.podsOf(prefix, func(*corev1.Pod) bool { return true }) {
			_ = merge("pod/"+name, `{"metadata":{"finalizers":null}}`)(t)
		}
	}
}

// unknownOwners makes pods as an operator does of which Muster knows nothing.
func unknownOwners(job string, count, gpus int) step {
	return func(t *tenant) {
		for i := range count {
			t.must(lonePod(fmt.Sprintf("%s-worker-%d", job, i), gpus,
				withOwner("MPIJob", "kubeflow.org/v2beta1", job, "11111111-1111-1111-1111-111111111111"))(t))
		}
	}
}

func deleteHisQueues(t *tenant) {
	for name := range hisQuota {
		t.must(shared.Dynamic.Resource(tenantKinds["localqueue"]).Namespace(t.Namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
		t.must(shared.Dynamic.Resource(clusterQueueResource).Delete(context.Background(), t.Namespace+"-"+name, metav1.DeleteOptions{}))
	}
	t.limits = append(t.limits, limit{from: t.revision(), queues: map[string]amounts{}})
}
