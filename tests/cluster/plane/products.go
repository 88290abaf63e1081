package plane

import (
	"cmp"
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// Kueue is what a case chooses about Kueue.
type Kueue struct {
	// The kinds that it manages, by Kueue's own names (batch/job, pod,
	// jobset.x-k8s.io/jobset, trainer.kubeflow.org/trainjob,
	// kubeflow.org/pytorchjob, ...). It leaves alone what has no queue's name.
	Frameworks  []string
	FairSharing bool
	// It calls as KueueUser, a ServiceAccount as Muster is, as often as Muster may, and
	// does as much at once as its manifests say.
	Measured bool
	// It holds its Lease, as its own manifests have it.
	LeaderElection bool
}

// KueueLease is what Kueue's managers elect their leader by.
const KueueLease = "c1f6bfd2.kueue.x-k8s.io"

// StartKueue starts Kueue's manager.
func (p *Plane) StartKueue(settings Kueue) (*Peer, error) {
	if settings.Measured {
		if err := p.giveServiceAccount("kueue"); err != nil {
			return nil, err
		}
	}
	return p.startPeer(product{
		name: "kueue", overlay: "default", namespace: "kueue-system",
		service: "kueue-webhook-service", secret: "kueue-webhook-server-cert",
		launch: func(health, webhook string) ([]string, []string, error) {
			config := map[string]any{
				"apiVersion":       "config.kueue.x-k8s.io/v1beta2",
				"kind":             "Configuration",
				"health":           map[string]any{"healthProbeBindAddress": health},
				"metrics":          map[string]any{"bindAddress": "0"},
				"webhook":          map[string]any{"host": "127.0.0.1", "port": portNumber(webhook)},
				"leaderElection":   settings.leaderElection(),
				"clientConnection": map[string]any{"qps": 50, "burst": 100},
				"integrations":     map[string]any{"frameworks": settings.Frameworks},
				// It would listen on a fixed port.
				"featureGates": map[string]any{"VisibilityOnDemand": false},
			}
			if settings.Measured {
				config["clientConnection"] = map[string]any{"qps": 1000, "burst": 1000}
				config["controller"] = map[string]any{"groupKindConcurrency": map[string]any{
					"Job.batch": 5, "Pod": 5, "Workload.kueue.x-k8s.io": 10, "LocalQueue.kueue.x-k8s.io": 5,
					"Cohort.kueue.x-k8s.io": 1, "ClusterQueue.kueue.x-k8s.io": 5, "ResourceFlavor.kueue.x-k8s.io": 1,
				}}
			}
			if settings.FairSharing {
				// Kueue's defaults, which it wants spelt out.
				config["fairSharing"] = map[string]any{
					"preemptionStrategies": []any{"LessThanOrEqualToFinalShare", "LessThanInitialShare"},
				}
			}
			return p.configured("kueue", config)
		},
	})
}

func (k Kueue) leaderElection() map[string]any {
	if !k.LeaderElection {
		return map[string]any{"leaderElect": false}
	}
	return map[string]any{"leaderElect": true, "resourceName": KueueLease, "resourceNamespace": "kueue-system"}
}

// StartMinimalKueue starts Kueue's scheduler and the controllers of its own
// kinds, without webhooks or jobs: what Kueue's own benchmark measures. Its objects
// must be written in v1beta2: nobody converts them.
func (p *Plane) StartMinimalKueue() (*Peer, error) {
	return p.startPeer(product{
		name: "kueue", program: "minimalkueue", crdsOnly: true, namespace: "kueue-system",
		launch: func(_, _ string) ([]string, []string, error) { return nil, nil, nil },
	})
}

// PeerSchedulerName is the profile of scheduler-plugins' scheduler.
const PeerSchedulerName = "scheduler-plugins"

// SchedulerPlugins is what a case chooses about scheduler-plugins.
type SchedulerPlugins struct {
	// It calls as a ServiceAccount, as often as the kube-scheduler beside Muster may.
	Measured bool
	// How long members that have a node wait for the others, in seconds; 0: as its own manifest and
	// chart have it (the plugin's own value is 60).
	Patience int
}

// StartSchedulerPlugins starts the scheduler of scheduler-plugins beside the
// others, with coscheduling. Its PodGroups are of Muster's CRD, which has all
// fields of its own. The controller that writes their phases isn't started: the
// scheduler doesn't read them.
func (p *Plane) StartSchedulerPlugins(settings SchedulerPlugins) (*Peer, error) {
	const name = PeerSchedulerName
	client := map[string]any{"kubeconfig": p.kubeconfig(name)}
	if settings.Measured {
		if err := p.giveServiceAccount(name); err != nil {
			return nil, err
		}
		client["qps"], client["burst"] = measuredQPS, measuredBurst
	}
	coscheduling := []any{map[string]any{"name": "Coscheduling"}}
	return p.startPeer(product{
		name: name,
		launch: func(_, _ string) ([]string, []string, error) {
			arguments, environment, err := p.configured(name, map[string]any{
				"apiVersion":       "kubescheduler.config.k8s.io/v1",
				"kind":             "KubeSchedulerConfiguration",
				"clientConnection": client,
				"leaderElection":   map[string]any{"leaderElect": false},
				"profiles": []any{map[string]any{
					"schedulerName": PeerSchedulerName,
					"plugins": map[string]any{
						"multiPoint": map[string]any{"enabled": coscheduling},
						// Only one plugin may sort the queue.
						"queueSort": map[string]any{
							"enabled":  coscheduling,
							"disabled": []any{map[string]any{"name": "*"}},
						},
					},
					"pluginConfig": []any{map[string]any{
						"name": "Coscheduling",
						"args": map[string]any{"permitWaitingTimeSeconds": cmp.Or(settings.Patience, 10)},
					}},
				}},
			})
			return append(arguments, "--secure-port=0"), environment, err
		},
	})
}

// What the kube-scheduler beside Muster has by its manifests, for whoever is measured beside it.
const measuredQPS, measuredBurst = 1000, 2000

// Caller calls as a ServiceAccount of that name, which may do anything.
func (p *Plane) Caller(name string) (*rest.Config, error) {
	if err := p.giveServiceAccount(name); err != nil {
		return nil, err
	}
	return clientcmd.BuildConfigFromFlags("", p.kubeconfig(name))
}

// giveServiceAccount has a product call as the ServiceAccount of its name, which may do
// anything, from its next start on.
func (p *Plane) giveServiceAccount(product string) error {
	manifest := p.path(product + "-service-account.yaml")
	if err := os.WriteFile(manifest, fmt.Appendf(nil, `apiVersion: v1
kind: Namespace
metadata: {name: %[2]s}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: %[1]s, namespace: %[2]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[2]s-%[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: %[1]s, namespace: %[2]s}]
`, product, callers), 0o600); err != nil {
		return err
	}
	if _, err := p.Kubectl("apply", "--filename="+manifest); err != nil {
		return err
	}
	_, err := p.createTokenOf(product, callers, product)
	return err
}

// StartJobSet starts the JobSet controller.
func (p *Plane) StartJobSet() (*Peer, error) {
	return p.startPeer(product{
		name: "jobset", overlay: "default", namespace: "jobset-system",
		service: "jobset-webhook-service", secret: "jobset-webhook-server-cert", earlyReady: true,
		launch: func(health, webhook string) ([]string, []string, error) {
			return p.configured("jobset", map[string]any{
				"apiVersion":             "config.jobset.x-k8s.io/v1alpha1",
				"kind":                   "Configuration",
				"health":                 map[string]any{"healthProbeBindAddress": health},
				"metrics":                map[string]any{"bindAddress": "0"},
				"webhook":                map[string]any{"host": "127.0.0.1", "port": portNumber(webhook)},
				"leaderElection":         map[string]any{"leaderElect": false},
				"internalCertManagement": map[string]any{"enable": true},
			})
		},
	})
}

// StartTrainer starts the manager of Kubeflow Trainer v2. It makes JobSets, so
// the JobSet controller must run.
func (p *Plane) StartTrainer() (*Peer, error) {
	const name = "kubeflow-trainer-controller-manager"
	return p.startPeer(product{
		name: "trainer", overlay: "overlays/manager", namespace: "kubeflow-system",
		service: name, secret: "kubeflow-trainer-webhook-cert", earlyReady: true,
		launch: func(health, webhook string) ([]string, []string, error) {
			return p.configured("trainer", map[string]any{
				"apiVersion":     "config.trainer.kubeflow.org/v1alpha1",
				"kind":           "Configuration",
				"health":         map[string]any{"healthProbeBindAddress": health},
				"metrics":        map[string]any{"bindAddress": "0"},
				"webhook":        map[string]any{"host": "127.0.0.1", "port": portNumber(webhook)},
				"leaderElection": map[string]any{"leaderElect": false},
				"certManagement": map[string]any{
					"enable":             true,
					"webhookServiceName": name,
					"webhookSecretName":  "kubeflow-trainer-webhook-cert",
				},
			})
		},
	})
}

// StartTrainingOperator starts training-operator v1. With the name of a
// scheduler it makes the PodGroups of its jobs and gives their pods that
// scheduler, as with its flag --gang-scheduler-name.
func (p *Plane) StartTrainingOperator(gangScheduler string) (*Peer, error) {
	return p.startPeer(product{
		name: "training-operator", overlay: "overlays/standalone", namespace: "kubeflow",
		service: "training-operator", secret: "training-operator-webhook-cert", earlyReady: true,
		launch: func(health, webhook string) ([]string, []string, error) {
			return []string{
				"--health-probe-bind-address=" + health,
				"--metrics-bind-address=0",
				"--webhook-server-port=" + fmt.Sprint(portNumber(webhook)),
				"--gang-scheduler-name=" + gangScheduler,
			}, []string{"MY_POD_NAMESPACE=kubeflow"}, nil
		},
	})
}

// StartMPIOperator starts mpi-operator, which has no webhooks. It answers for its health on port
// 8080, which can't be chosen.
func (p *Plane) StartMPIOperator() (*Peer, error) {
	const name = "mpi-operator"
	return p.startPeer(product{
		name: name, crdsOnly: true,
		launch: func(_, _ string) ([]string, []string, error) {
			return []string{
				"--kubeConfig=" + p.kubeconfig(name),
				"--lock-namespace=default",
				"--kube-api-qps=50",
				"--kube-api-burst=100",
			}, nil, nil
		},
	})
}

// StartKubeRay starts KubeRay's operator without its webhooks, which are optional.
func (p *Plane) StartKubeRay() (*Peer, error) {
	return p.startPeer(product{
		name: "kuberay", crdsOnly: true,
		launch: func(health, _ string) ([]string, []string, error) {
			return []string{
				"--health-probe-bind-address=" + health,
				"--metrics-addr=0",
				"--enable-leader-election=false",
			}, nil, nil
		},
	})
}

// configured writes a controller's configuration and names it to it.
func (p *Plane) configured(name string, config map[string]any) (arguments, environment []string, err error) {
	content, err := yaml.Marshal(config)
	if err != nil {
		return nil, nil, err
	}
	path := p.path(name + ".yaml")
	return []string{"--config=" + path}, nil, os.WriteFile(path, content, 0o644)
}
