package plane

import (
	"fmt"
	"os"
)

// startScheduler runs a stock kube-scheduler with one profile. With an
// extender address it asks Muster there.
func (p *Plane) startScheduler(profile, extender string) error {
	name := "kube-scheduler-" + profile
	config := schedulerConfig(p.kubeconfig("system:kube-scheduler"), profile, extender)
	path := p.path(name + ".yaml")
	if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
		return err
	}
	return p.runAs(name, "kube-scheduler", nil, "--config="+path, "--secure-port=0")
}

func schedulerConfig(kubeconfig, profile, extender string) string {
	config := fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  kubeconfig: %s
  qps: 5000
  burst: 5000
leaderElection:
  leaderElect: false
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 2
`, kubeconfig)
	if extender == "" {
		return config + fmt.Sprintf("profiles:\n- schedulerName: %s\n", profile)
	}
	return config + fmt.Sprintf(`percentageOfNodesToScore: 100
profiles:
- schedulerName: %s
  plugins:
    postFilter:
      disabled:
      - name: DefaultPreemption
extenders:
- urlPrefix: http://%s
  filterVerb: filter
  prioritizeVerb: prioritize
  weight: 1
  bindVerb: bind
  preemptVerb: preempt
  nodeCacheCapable: true
  httpTimeout: 30s
  ignorable: false
`, profile, extender)
}
