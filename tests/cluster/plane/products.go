package plane

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

// Kueue is what a case chooses about Kueue.
type Kueue struct {
	// The kinds that it manages, by Kueue's own names (batch/job, pod,
	// jobset.x-k8s.io/jobset, trainer.kubeflow.org/trainjob,
	// kubeflow.org/pytorchjob, ...). It leaves alone what has no queue's name.
	Frameworks  []string
	FairSharing bool
}

// StartKueue starts Kueue's manager.
func (p *Plane) StartKueue(settings Kueue) (*Peer, error) {
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
				"leaderElection":   map[string]any{"leaderElect": false},
				"clientConnection": map[string]any{"qps": 50, "burst": 100},
				"integrations":     map[string]any{"frameworks": settings.Frameworks},
				// It would listen on a fixed port.
				"featureGates": map[string]any{"VisibilityOnDemand": false},
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

// StartMinimalKueue starts Kueue's scheduler and the controllers of its own
// kinds, without webhooks or jobs: what Kueue's own benchmark measures. Its
// client sends 50 requests per second, or with unlimited as many as Muster's:
// 1,000. Its objects must be written in v1beta2: nobody converts them.
func (p *Plane) StartMinimalKueue(unlimited bool) (*Peer, error) {
	program := "minimalkueue"
	if unlimited {
		program += "-1000"
	}
	return p.startPeer(product{
		name: "kueue", program: program, crdsOnly: true, namespace: "kueue-system",
		launch: func(_, _ string) ([]string, []string, error) { return nil, nil, nil },
	})
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

// configured writes a controller's configuration and names it to it.
func (p *Plane) configured(name string, config map[string]any) (arguments, environment []string, err error) {
	content, err := yaml.Marshal(config)
	if err != nil {
		return nil, nil, err
	}
	path := p.path(name + ".yaml")
	return []string{"--config=" + path}, nil, os.WriteFile(path, content, 0o644)
}
