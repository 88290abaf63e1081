package plane

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

const (
	podGroupCRD = "podgroups.scheduling.x-k8s.io"

	// What the manifests call the things that the test takes over.
	deploymentNamespace = "muster-system"
	deploymentName      = "muster"
	serviceAccount      = "muster"
	webhookService      = "muster-webhook"
	apiService          = "v1beta1.visibility.muster.dev"
	schedulerConfigMap  = "muster-kube-scheduler"
	musterConfigMap     = "muster"

	// ServiceAccount is the user that Muster and the kube-scheduler beside it
	// are to the API server.
	ServiceAccount = "system:serviceaccount:" + deploymentNamespace + ":" + serviceAccount

	// The Lease that says which kube-scheduler leads, and so which Muster.
	LeaseNamespace = deploymentNamespace
	LeaseName      = "coscheduling"
)

// deploy applies the project's own manifests as a cluster's owner would, and
// takes over from the Deployment: its pod is admitted and then scaled away,
// and its two containers are to run as programs on loopback, with the rights of
// its ServiceAccount and the kube-scheduler configuration of its ConfigMap.
func (p *Plane) deploy(manifests string) error {
	if p.standalone {
		var err error
		if manifests, err = p.renderStandalone(manifests); err != nil {
			return err
		}
	}
	if _, err := p.Kubectl("apply", "--server-side", "--validate=strict", "--kustomize="+manifests); err != nil {
		return err
	}
	// Most cases serve no aggregated API, and while nobody answers for an APIService no namespace can be
	// deleted; access_test.go makes it anew.
	if _, err := p.Kubectl("delete", "apiservice", apiService); err != nil {
		return err
	}
	if err := p.AwaitCRDs(podGroupCRD); err != nil {
		return err
	}
	if err := p.await("the Deployment's pod to be admitted", time.Minute, func() error {
		pods, err := p.Client.CoreV1().Pods(deploymentNamespace).List(p.context, metav1.ListOptions{})
		if err == nil && len(pods.Items) == 0 {
			return fmt.Errorf("no pod in %s", deploymentNamespace)
		}
		return err
	}); err != nil {
		return err
	}
	if _, err := p.Kubectl("scale", "deployment", deploymentName, "--namespace="+deploymentNamespace, "--replicas=0"); err != nil {
		return err
	}
	if _, err := p.createToken(serviceAccount); err != nil {
		return err
	}
	var err error
	if p.musterSettings, err = p.deployedMusterSettings(); err != nil {
		return err
	}
	if p.webhooks, err = p.deployedWebhooks(); err != nil {
		return err
	}
	if p.standalone {
		// As a pod there knows by itself.
		if err := unstructured.SetNestedField(p.musterSettings, LeaseNamespace, "lease", "namespace"); err != nil {
			return err
		}
	}
	types := p.path("muster-instance-types.txt")
	p.musterSettings["instanceTypes"] = types
	return os.WriteFile(types, instanceTypesTable(), 0o644)
}

// renderStandalone writes the manifests that the chart in deploy/ has for that mode, as a kustomization.
func (p *Plane) renderStandalone(deploy string) (string, error) {
	folder := p.path("standalone")
	chart := filepath.Join(deploy, "chart")
	where, err := exec.Command(filepath.Join(deploy, "..", "tests", "chart", "build.sh"), "--where").Output()
	if err != nil {
		return "", fmt.Errorf("tests/chart/build.sh --where: %w", err)
	}
	values := "standalone-values.yaml"
	if p.ungated {
		values = "ungated-values.yaml"
	}
	rendered, err := exec.Command(strings.TrimSpace(string(where)), "template", "muster", chart, "--include-crds",
		"--namespace="+deploymentNamespace, "--values="+filepath.Join(chart, "ci", values)).Output()
	if err != nil {
		return "", fmt.Errorf("helm template: %w", err)
	}
	namespace := fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n", deploymentNamespace)
	return folder, errors.Join(os.MkdirAll(folder, 0o755),
		os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte("resources: [namespace.yaml, muster.yaml]\n"), 0o644),
		os.WriteFile(filepath.Join(folder, "namespace.yaml"), []byte(namespace), 0o644),
		os.WriteFile(filepath.Join(folder, "muster.yaml"), rendered, 0o644))
}

// createToken makes a token of Muster's ServiceAccount, as each pod has one,
// and a kubeconfig with it under the given name. It returns what the API server
// calls the token.
func (p *Plane) createToken(name string) (string, error) {
	return p.createTokenOf(serviceAccount, deploymentNamespace, name)
}

// createTokenOf is the same for any ServiceAccount.
func (p *Plane) createTokenOf(account, namespace, name string) (string, error) {
	token, err := p.Kubectl("create", "token", account, "--namespace="+namespace, "--duration=24h")
	if err != nil {
		return "", err
	}
	token = strings.TrimSpace(token)
	if err := p.identities.writeKubeconfig(p.kubeconfig(name), p.server, name, token); err != nil {
		return "", err
	}
	return credential(token)
}

// StandIn starts the kube-scheduler of the one replica that cases share, as Start
// does unless something is Measured. Standalone there is none.
func (p *Plane) StandIn() error {
	if p.standalone {
		return nil
	}
	config, err := p.deployedSchedulerConfig(serviceAccount, p.Muster.ExtenderAddress)
	if err != nil {
		return err
	}
	return p.startScheduler(SchedulerName, config)
}

// StandAside ends the replica that cases share, so that others can lead: the
// kube-scheduler gives its Lease back.
func (p *Plane) StandAside() error {
	if err := p.Muster.Stop(); err != nil || p.standalone {
		return err
	}
	return p.endScheduler(SchedulerName)
}

func (p *Plane) endScheduler(profile string) error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for i, one := range p.processes {
		if one.Name == schedulerProcess(profile) {
			p.processes = slices.Delete(p.processes, i, i+1)
			if !one.Stop(20 * time.Second) {
				return fmt.Errorf("%s didn't end within 20 s of SIGTERM", one.Name)
			}
			return nil
		}
	}
	return fmt.Errorf("there is no %s", schedulerProcess(profile))
}

// deployedMusterSettings is the manifests' configuration of Muster. The
// namespace of its Services is what a pod would know by itself. Most cases ask
// Muster as nobody; access_test.go is about who may.
func (p *Plane) deployedMusterSettings() (map[string]any, error) {
	object, err := p.Client.CoreV1().ConfigMaps(deploymentNamespace).Get(p.context, musterConfigMap, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	var config map[string]any
	if err := yaml.Unmarshal([]byte(object.Data["config.yaml"]), &config); err != nil {
		return nil, fmt.Errorf("ConfigMap %s: %w", musterConfigMap, err)
	}
	for _, part := range []string{"webhook", "query"} {
		if err := unstructured.SetNestedField(config, deploymentNamespace, part, "serviceNamespace"); err != nil {
			return nil, err
		}
	}
	return config, unstructured.SetNestedField(config, "none", "query", "authentication")
}

// What the manifests call the webhooks, by their kind.
var webhooks = map[string]string{
	"mutatingwebhookconfigurations":   "muster-admission",
	"validatingwebhookconfigurations": "muster-warnings",
}

// deployedWebhooks are as the manifests made them.
func (p *Plane) deployedWebhooks() ([]*unstructured.Unstructured, error) {
	var found []*unstructured.Unstructured
	for resource, name := range webhooks {
		object, err := p.Dynamic.Resource(webhookKind(resource)).Get(p.context, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		made := &unstructured.Unstructured{Object: map[string]any{"webhooks": object.Object["webhooks"]}}
		made.SetAPIVersion(object.GetAPIVersion())
		made.SetKind(object.GetKind())
		made.SetName(name)
		made.SetLabels(object.GetLabels())
		made.SetAnnotations(object.GetAnnotations())
		found = append(found, made)
	}
	return found, nil
}

func webhookKind(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resource}
}

// RestoreWebhooks makes Muster's webhooks again where a case has deleted them.
func (p *Plane) RestoreWebhooks() error { return p.applyWebhooks("") }

// applyWebhooks makes them again where a case has deleted them, as the chart would for this answer to
// who admits: only where Muster itself does is it asked about pods of nobody that name a queue. What
// Muster has put into their caBundle stays.
func (p *Plane) applyWebhooks(quota string) error {
	for _, made := range p.webhooks {
		object := made.DeepCopy()
		resource := strings.ToLower(object.GetKind()) + "s"
		if quota == "kueue" || quota == "off" {
			for _, webhook := range object.Object["webhooks"].([]any) {
				for _, condition := range webhook.(map[string]any)["matchConditions"].([]any) {
					if one := condition.(map[string]any); one["name"] == "concerns-muster" {
						one["expression"], _, _ = strings.Cut(one["expression"].(string), " || ")
					}
				}
			}
		}
		if _, err := p.Dynamic.Resource(webhookKind(resource)).Apply(p.context, object.GetName(), object,
			metav1.ApplyOptions{FieldManager: "kubectl", Force: true}); err != nil {
			return err
		}
	}
	return nil
}

// deployedSchedulerConfig is the manifests' own, with the addresses and files
// of this run in it.
func (p *Plane) deployedSchedulerConfig(user, extenderAddress string) ([]byte, error) {
	object, err := p.Client.CoreV1().ConfigMaps(deploymentNamespace).Get(p.context, schedulerConfigMap, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	var config map[string]any
	if err := yaml.Unmarshal([]byte(object.Data["config.yaml"]), &config); err != nil {
		return nil, fmt.Errorf("ConfigMap %s: %w", schedulerConfigMap, err)
	}
	if err := unstructured.SetNestedField(config, p.kubeconfig(user), "clientConnection", "kubeconfig"); err != nil {
		return nil, err
	}
	extenders, ok := config["extenders"].([]any)
	if !ok || len(extenders) != 1 {
		return nil, fmt.Errorf("ConfigMap %s has %d extenders, want 1", schedulerConfigMap, len(extenders))
	}
	extenders[0].(map[string]any)["urlPrefix"] = "http://" + extenderAddress
	return yaml.Marshal(config)
}

// stockSchedulerConfig is that of the cluster's own scheduler, for every pod
// that isn't Muster's.
func (p *Plane) stockSchedulerConfig() []byte {
	return fmt.Appendf(nil, `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  kubeconfig: %s
leaderElection:
  leaderElect: false
`, p.kubeconfig(StockSchedulerUser))
}

const stockProfile = "stock-" + SchedulerName

// ScheduleStock has a stock kube-scheduler without extenders take the pods that name Muster's profile.
func (p *Plane) ScheduleStock() error {
	return p.startScheduler(stockProfile, append(p.stockSchedulerConfig(),
		"profiles:\n- schedulerName: "+SchedulerName+"\n"...))
}

// ScheduleStockMeasured does so for whoever compares: it may call as often as the one beside Muster.
func (p *Plane) ScheduleStockMeasured() error {
	return p.startScheduler(stockProfile, fmt.Appendf(nil, `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: %s, qps: %d, burst: %d}
leaderElection: {leaderElect: false}
profiles: [{schedulerName: %s}]
`, p.kubeconfig(StockSchedulerUser), measuredQPS, measuredBurst, SchedulerName))
}

// EndStock ends it.
func (p *Plane) EndStock() error { return p.endScheduler(stockProfile) }

func schedulerProcess(profile string) string { return "kube-scheduler-" + profile }

func (p *Plane) startScheduler(profile string, config []byte) error {
	name := schedulerProcess(profile)
	path := filepath.Join(p.Folder, name+".yaml")
	if err := os.WriteFile(path, config, 0o644); err != nil {
		return err
	}
	gates := p.clustersGates()
	if profile == SchedulerName {
		var err error
		if gates, err = p.schedulerGates(); err != nil {
			return err
		}
	}
	return p.runAs(name, "kube-scheduler", nil, append(gates, "--config="+path, "--secure-port=0")...)
}

// NativePodGroups are Kubernetes' own.
var NativePodGroups = schema.GroupVersionResource{Group: "scheduling.k8s.io", Version: "v1beta1", Resource: "podgroups"}

// nativeGate has a program of Kubernetes know them, or not.
const nativeGate = "--feature-gates=GenericWorkload"

// clustersGates are those of the cluster's own programs.
func (p *Plane) clustersGates() []string {
	if p.nativeGangs {
		return []string{nativeGate + "=true"}
	}
	return nil
}

// schedulerGates are those of the kube-scheduler beside Muster, as the chart has them: Muster alone reads
// its PodGroups, which Kubernetes has a gate for from 1.35 on.
func (p *Plane) schedulerGates() ([]string, error) {
	version, err := p.Client.Discovery().ServerVersion()
	if err != nil {
		return nil, err
	}
	minor, err := strconv.Atoi(version.Minor)
	if err != nil {
		return nil, fmt.Errorf("the API server's version %s: %w", version, err)
	}
	if minor < 35 {
		return nil, nil
	}
	return []string{nativeGate + "=false"}, nil
}
