package cluster

import (
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"muster.dev/tests/cluster/plane"
)

// The chart on a real API server of its own, beside which no controller runs: what is rendered is
// valid there, and a release comes, changes and goes as Helm does it.

const chartFolder = "../../deploy/chart"

// anyObjects is the definition of a kind of which nothing is checked: of what
// isn't here, where only its being there matters.
func anyObjects(group, plural, kind, scope string) string {
	return fmt.Sprintf(`---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[2]s.%[1]s}
spec:
  group: %[1]s
  scope: %[4]s
  names: {plural: %[2]s, singular: %[5]s, kind: %[3]s}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`, group, plural, kind, scope, strings.ToLower(kind))
}

// chartServer is an API server, and helm as its administrator runs it.
type chartServer struct {
	*testing.T
	*plane.Plane
	program string
}

func startChartServer(t *testing.T) *chartServer {
	t.Helper()
	where, err := exec.Command("../chart/build.sh", "--where").Output()
	if err != nil {
		t.Fatal(err)
	}
	programs, err := plane.Programs(".")
	if err != nil {
		t.Fatal(err)
	}
	server, err := plane.StartServer(programs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Stop()
		if !t.Failed() {
			_ = os.RemoveAll(server.Folder)
		}
	})
	s := &chartServer{t, server, strings.TrimSpace(string(where))}
	// Which the API server makes once it runs.
	if _, err := s.Kubectl("wait", "--for=create", "--timeout=30s", "namespace/kube-system", "namespace/kube-node-lease",
		"namespace/kube-public", "namespace/default"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Kubectl("wait", "--for=create", "--timeout=30s", "--namespace=default", "service/kubernetes"); err != nil {
		t.Fatal(err)
	}
	// What the Prometheus operator brings; their fields are held to its types in tests/chart.
	s.apply(anyObjects("monitoring.coreos.com", "servicemonitors", "ServiceMonitor", "Namespaced") +
		anyObjects("monitoring.coreos.com", "prometheusrules", "PrometheusRule", "Namespaced"))
	if err := s.AwaitCRDs("servicemonitors.monitoring.coreos.com", "prometheusrules.monitoring.coreos.com"); err != nil {
		t.Fatal(err)
	}
	s.kubectl("apply", "--server-side", "--filename=../../deploy/base/namespace.yaml")
	return s
}

func (s *chartServer) kubectl(arguments ...string) string {
	s.Helper()
	output, err := s.Kubectl(arguments...)
	if err != nil {
		s.Fatal(err)
	}
	return output
}

// apply is strict, as kubectl is by default, and on the server.
func (s *chartServer) apply(manifest string, arguments ...string) {
	s.Helper()
	file := filepath.Join(s.TempDir(), "manifest.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o644); err != nil {
		s.Fatal(err)
	}
	s.kubectl(append([]string{"apply", "--server-side", "--validate=strict", "--filename=" + file}, arguments...)...)
}

func (s *chartServer) helm(arguments ...string) string {
	s.Helper()
	command := exec.Command(s.program, append(arguments, "--namespace=muster-system")...)
	home := filepath.Join(s.Folder, "helm")
	command.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	output, err := command.CombinedOutput()
	if err != nil {
		s.Fatalf("helm %s: %v\n%s", strings.Join(arguments, " "), err, output)
	}
	return string(output)
}

// objects are all that the API server keeps, by kind and name.
func (s *chartServer) objects() []string {
	s.Helper()
	output, err := s.Kubectl("api-resources", "--verbs=list", "--output=name")
	// No Muster answers for its APIService here, which kubectl counts as a failure.
	unanswered := func(line string) bool { return strings.Contains(line, "visibility.muster.dev") }
	if err != nil && !unanswered(output) {
		s.Fatal(err)
	}
	// What nobody deletes, and what is only a view of others.
	kinds := slices.DeleteFunc(strings.Split(output, "\n"), func(kind string) bool {
		return kind == "" || unanswered(kind) || kind == "events" || kind == "events.events.k8s.io" || kind == "componentstatuses" ||
			kind == "leases.coordination.k8s.io" || kind == "apiservices.apiregistration.k8s.io"
	})
	lines := strings.Split(s.kubectl("get", strings.Join(kinds, ","), "--all-namespaces", "--no-headers",
		"--output=custom-columns=KIND:.kind,NAMESPACE:.metadata.namespace,NAME:.metadata.name"), "\n")
	lines = slices.DeleteFunc(lines, unanswered)
	for i, line := range lines {
		lines[i] = strings.Join(strings.Fields(line), " ")
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

// valueFiles are those of the chart, and its defaults.
func valueFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(chartFolder + "/ci/*-values.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d value files: %v", len(files), err)
	}
	return append([]string{chartFolder + "/values.yaml"}, files...)
}

func TestChartIsValidToTheApiServerWithEachValueFile(t *testing.T) {
	t.Parallel()
	s := startChartServer(t)
	for _, file := range valueFiles(t) {
		s.apply(s.helm("template", "muster", chartFolder, "--values="+file), "--dry-run=server")
	}
}

func TestChartComesChangesAndGoes(t *testing.T) {
	t.Parallel()
	s := startChartServer(t)
	before := s.objects()

	s.helm("install", "muster", chartFolder)
	if image := s.kubectl("get", "deployment", "muster", "--namespace=muster-system",
		"--output=jsonpath={.spec.template.spec.containers[?(@.name=='kube-scheduler')].image}"); !strings.HasSuffix(image, ":v1.34.2") {
		t.Errorf("kube-scheduler is %s, the cluster is v1.34.2", image)
	}
	if err := s.AwaitCRDs("podgroups.scheduling.x-k8s.io"); err != nil {
		t.Fatal(err)
	}
	s.apply("apiVersion: scheduling.x-k8s.io/v1alpha1\nkind: PodGroup\nmetadata: {name: users, namespace: default}\nspec: {minMember: 2}\n")
	installed := s.objects()

	// As Muster adds its authority.
	authority, err := plane.NewAuthority("Muster's")
	if err != nil {
		t.Fatal(err)
	}
	bundle := base64.StdEncoding.EncodeToString(authority.PEM())
	const webhook = "mutatingwebhookconfiguration/muster-admission"
	s.kubectl("patch", webhook, "--type=json", "--field-manager=muster",
		`--patch=[{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "`+bundle+`"}]`)

	for _, file := range valueFiles(t) {
		s.helm("upgrade", "muster", chartFolder, "--reset-values", "--values="+file)
	}
	s.helm("upgrade", "muster", chartFolder, "--reset-values")
	isRelease := func(line string) bool { return strings.Contains(line, "sh.helm.release") }
	if changed := difference(slices.DeleteFunc(s.objects(), isRelease), slices.DeleteFunc(installed, isRelease)); len(changed) > 0 {
		t.Errorf("other values and back: %v", changed)
	}

	if left := s.kubectl("get", webhook, "--output=jsonpath={.webhooks[0].clientConfig.caBundle}"); left != bundle {
		t.Errorf("of Muster's authority an upgrade leaves %q", left)
	}

	s.helm("uninstall", "muster")
	want := []string{
		"+ CustomResourceDefinition <none> podgroups.scheduling.x-k8s.io",
		"+ PodGroup default users",
	}
	if output, err := s.Kubectl("get", "apiservice", "v1beta1.visibility.muster.dev"); err == nil {
		t.Errorf("it leaves an APIService that nobody answers for: %s", output)
	}
	if left := difference(s.objects(), before); !slices.Equal(left, want) {
		t.Errorf("it leaves\n%s\nwant\n%s", strings.Join(left, "\n"), strings.Join(want, "\n"))
	}
}

// difference is what is new in `now`, and what is gone.
func difference(now, before []string) []string {
	counts := map[string]int{}
	for _, line := range before {
		counts[line]--
	}
	for _, line := range now {
		counts[line]++
	}
	var lines []string
	for _, line := range slices.Sorted(maps.Keys(counts)) {
		switch {
		case counts[line] > 0:
			lines = append(lines, "+ "+line)
		case counts[line] < 0:
			lines = append(lines, "- "+line)
		}
	}
	return lines
}

// What the schema lets through is what the program reads: it takes each configuration, and ends as it
// finds no cluster.
func TestMusterReadsTheConfigurationOfEachValueFile(t *testing.T) {
	t.Parallel()
	where, err := exec.Command("../chart/build.sh", "--where").Output()
	if err != nil {
		t.Fatal(err)
	}
	options, err := plane.Locate(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range valueFiles(t) {
		output, err := exec.Command(strings.TrimSpace(string(where)), "template", "muster", chartFolder,
			"--namespace=muster-system", "--values="+file, "--show-only=templates/muster-config.yaml").Output()
		if err != nil {
			t.Fatal(err)
		}
		var object struct{ Data map[string]string }
		if err := yaml.Unmarshal(output, &object); err != nil {
			t.Fatal(err)
		}
		folder := t.TempDir()
		for name, text := range object.Data {
			text = strings.ReplaceAll(text, "/etc/muster/", folder+"/")
			if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		said, err := exec.Command(options.Muster, "serve", "--config="+filepath.Join(folder, "config.yaml"),
			"--kubeconfig="+filepath.Join(folder, "none")).CombinedOutput()
		if err == nil || !regexp.MustCompile(regexp.QuoteMeta(folder)+"/none").Match(said) || strings.Contains(string(said), "config.yaml:") {
			t.Errorf("%s: %v: %s", file, err, said)
		}
	}
}
