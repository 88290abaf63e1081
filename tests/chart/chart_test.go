// What the chart of deploy/ renders: the manifests that stand beside it, and what each setting
// changes. Needs helm, which build.sh makes, and no cluster; tests/cluster applies what is rendered.
package chart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const (
	deployFolder = "../../deploy"
	chartFolder  = deployFolder + "/chart"
)

// The Kubernetes releases that the chart is rendered for, as their vendors write them.
var releases = []string{"v1.30.0", "v1.34.2-eks-113cf36", "v1.35.0", "v1.37.1-gke.1000"}

type object = map[string]any

// at is what stands at a path of keys, nil if something on the way isn't there.
func at(value any, keys ...string) any {
	for _, key := range keys {
		table, ok := value.(object)
		if !ok {
			return nil
		}
		value = table[key]
	}
	return value
}

func helmProgram(t *testing.T) string {
	t.Helper()
	output, err := exec.Command("./build.sh", "--where").Output()
	if err != nil {
		t.Fatal(err)
	}
	program := strings.TrimSpace(string(output))
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%v: tests/chart/build.sh makes it", err)
	}
	return program
}

func helm(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	command := exec.Command(helmProgram(t), arguments...)
	var said, complaint bytes.Buffer
	command.Stdout, command.Stderr = &said, &complaint
	err := command.Run()
	if err != nil {
		err = fmt.Errorf("helm %s: %w\n%s%s", strings.Join(arguments, " "), err, said.String(), complaint.String())
	}
	return said.String(), err
}

// rendered is what the chart makes of these settings (arguments of helm template).
func rendered(t *testing.T, release string, settings ...string) []object {
	t.Helper()
	output, err := helm(t, append([]string{"template", "muster", chartFolder, "--namespace=muster-system", "--kube-version=" + release}, settings...)...)
	if err != nil {
		t.Fatal(err)
	}
	var objects []object
	for _, document := range strings.Split("\n"+output, "\n---\n") {
		var one object
		if err := yaml.UnmarshalStrict([]byte(document), &one); err != nil {
			t.Fatalf("%v: %v", err, document)
		}
		if one != nil {
			objects = append(objects, one)
		}
	}
	return objects
}

func find(t *testing.T, objects []object, kind, name string) object {
	t.Helper()
	for _, one := range objects {
		if one["kind"] == kind && at(one, "metadata", "name") == name {
			return one
		}
	}
	t.Fatalf("no %s %s", kind, name)
	return nil
}

func has(objects []object, kind, name string) bool {
	for _, one := range objects {
		if one["kind"] == kind && at(one, "metadata", "name") == name {
			return true
		}
	}
	return false
}

func container(t *testing.T, objects []object, name string) object {
	t.Helper()
	for _, one := range at(find(t, objects, "Deployment", "muster"), "spec", "template", "spec", "containers").([]any) {
		if at(one, "name") == name {
			return one.(object)
		}
	}
	t.Fatalf("no container %s", name)
	return nil
}

// config is what a ConfigMap holds for a program.
func config(t *testing.T, objects []object, name string) object {
	t.Helper()
	var settings object
	text, _ := at(find(t, objects, "ConfigMap", name), "data", "config.yaml").(string)
	if err := yaml.UnmarshalStrict([]byte(text), &settings); err != nil {
		t.Fatal(err)
	}
	return settings
}

func TestTheManifestsAreWhatTheChartSays(t *testing.T) {
	folder := t.TempDir()
	if output, err := exec.Command("./render.sh", folder).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	made := 0
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		made++
		name, _ := filepath.Rel(folder, path)
		want, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if found, err := os.ReadFile(filepath.Join(deployFolder, name)); err != nil || !bytes.Equal(found, want) {
			t.Errorf("deploy/%s isn't what the chart says (./run fmt writes it): %v", name, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// A file that kustomize applies and that the chart no longer makes is nobody's.
	known := map[string]bool{"kustomization.yaml": true, "namespace.yaml": true}
	for _, part := range []string{"base", "policies", "withdraw-nodes", "kueue-fallback"} {
		files, err := filepath.Glob(filepath.Join(deployFolder, part, "*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			_, err := os.Stat(filepath.Join(folder, part, filepath.Base(file)))
			if err != nil && !known[filepath.Base(file)] {
				t.Errorf("%s isn't made by the chart", file)
			}
			if list, _ := os.ReadFile(filepath.Join(deployFolder, part, "kustomization.yaml")); !known[filepath.Base(file)] &&
				!strings.Contains(string(list), "- "+filepath.Base(file)+"\n") {
				t.Errorf("%s isn't in its kustomization.yaml", file)
			}
		}
	}
	if made < 10 {
		t.Errorf("only %d manifests were made", made)
	}
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

func TestEachValueFileIsTaken(t *testing.T) {
	for _, file := range valueFiles(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			if _, err := helm(t, "lint", "--strict", "--quiet", "--values="+file, chartFolder); err != nil {
				t.Error(err)
			}
			for _, release := range releases {
				objects := rendered(t, release, "--values="+file)
				seen := map[string]bool{}
				for _, one := range objects {
					name := fmt.Sprint(one["kind"], " ", at(one, "metadata", "namespace"), "/", at(one, "metadata", "name"))
					if seen[name] {
						t.Errorf("%s: %s is there twice", release, name)
					}
					seen[name] = true
					if at(one, "metadata", "labels", "app.kubernetes.io/part-of") != "muster" {
						t.Errorf("%s: %s doesn't say what it is part of", release, name)
					}
				}
			}
		})
	}
}

func TestTheChartIsOfKubernetesFrom130On(t *testing.T) {
	if _, err := helm(t, "template", "muster", chartFolder, "--kube-version=v1.29.9"); err == nil {
		t.Error("1.29 is taken, which has no ValidatingAdmissionPolicies")
	}
}

func TestWhatTheSchemaDoesntKnowIsRefused(t *testing.T) {
	for _, wrong := range []string{
		"replica=3",
		"replicas=0",
		"replicas=two",
		"schedulerName=default-scheduler",
		"schedulerName=Muster",
		"image.name=muster",
		"image.digest=sha256:12",
		"config.engine.nodegrace=30s",
		"config.engine.nodeGrace=30",
		"config.engine.bindWait=3s",
		"config.lease.follow=a/b",
		"config.quota=kueu",
		"config.maxInFlight=0",
		"kubeScheduler.featureGates.GenericWorkload=true",
		"leaderElection.leaseDuration=6",
		"policies.gpuQueues.enable=true",
		"webhook.warning=false",
		"webhook.gates=false",
	} {
		if _, err := helm(t, "template", "muster", chartFolder, "--set="+wrong); err == nil {
			t.Errorf("%s is taken", wrong)
		} else if key, _, _ := strings.Cut(wrong, "="); !strings.Contains(err.Error(), "schema") {
			t.Errorf("%s: not for the schema: %v", key, err)
		}
	}
}

// Each value has its line in values.yaml, where its reason is, and its place in the schema; tables are
// closed.
func TestTheSchemaKnowsEachValueAndNoOther(t *testing.T) {
	var values, schema object
	for file, into := range map[string]*object{"values.yaml": &values, "values.schema.json": &schema} {
		text, err := os.ReadFile(filepath.Join(chartFolder, file))
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(text, into); err != nil {
			t.Fatal(err)
		}
	}
	// Of charts that have this one as a part; and what has no default is in the file's own reference.
	optional := map[string]bool{"global": true}
	var compare func(path string, value any, schema object)
	compare = func(path string, value any, schema object) {
		properties, ok := schema["properties"].(object)
		if !ok {
			return
		}
		if schema["additionalProperties"] != false {
			t.Errorf("%s: the schema lets anything in", path)
		}
		for key, its := range properties {
			found, there := at(value, key), at(value, key) != nil
			if !there && !optional[key] && path != "config" && !strings.HasPrefix(path, "config.") {
				t.Errorf("%s.%s has no line in values.yaml", path, key)
			}
			compare(strings.TrimPrefix(path+"."+key, "."), found, its.(object))
		}
	}
	compare("", values, schema)
}

func TestKubeSchedulerIsOfTheClustersVersion(t *testing.T) {
	for release, want := range map[string]struct{ image, gates string }{
		"v1.30.4":             {"v1.30.4", ""},
		"v1.34.2-eks-113cf36": {"v1.34.2", ""},
		"v1.35.0":             {"v1.35.0", "--feature-gates=GenericWorkload=false"},
		"v1.37.1-gke.1000":    {"v1.37.1", "--feature-gates=GenericWorkload=false"},
	} {
		one := container(t, rendered(t, release), "kube-scheduler")
		if image := one["image"]; image != "registry.k8s.io/kube-scheduler:"+want.image {
			t.Errorf("%s: image %v", release, image)
		}
		gates := ""
		for _, argument := range one["command"].([]any) {
			if strings.HasPrefix(argument.(string), "--feature-gates") {
				gates = argument.(string)
			}
		}
		// 1.34 doesn't start with a gate that it doesn't know.
		if gates != want.gates {
			t.Errorf("%s: %q, want %q", release, gates, want.gates)
		}
	}
	// One of one's own may be behind the cluster.
	if one := container(t, rendered(t, "v1.35.0", "--set=kubeScheduler.image.tag=v1.34.3"), "kube-scheduler"); strings.Contains(fmt.Sprint(one["command"]), "GenericWorkload") {
		t.Errorf("kube-scheduler 1.34 is told %v", one["command"])
	}
	one := container(t, rendered(t, "v1.36.0", "--set=kubeScheduler.featureGates.SchedulerQueueingHints=false"), "kube-scheduler")
	if want := "--feature-gates=GenericWorkload=false,SchedulerQueueingHints=false"; !strings.Contains(fmt.Sprint(one["command"]), want) {
		t.Errorf("%v, want %s", one["command"], want)
	}
}

// A member that is preempted for alone is a gang torn apart. Where groups are scheduled as one the
// plugin sits at a second point too, so it is off at all of them.
func TestNoKubeSchedulerPreemptsForOneMember(t *testing.T) {
	scheduler := config(t, rendered(t, "v1.36.0"), "muster-kube-scheduler")
	profile := scheduler["profiles"].([]any)[0]
	disabled, _ := json.Marshal(at(profile, "plugins", "multiPoint", "disabled"))
	if string(disabled) != `[{"name":"DefaultPreemption"}]` {
		t.Errorf("disabled at multiPoint: %s", disabled)
	}
}

func TestAChangedConfigurationMakesNewPods(t *testing.T) {
	checksums := func(settings ...string) [2]any {
		annotations := at(find(t, rendered(t, "v1.34.2", settings...), "Deployment", "muster"), "spec", "template", "metadata", "annotations")
		return [2]any{at(annotations, "checksum/muster-config"), at(annotations, "checksum/scheduler-config")}
	}
	before := checksums()
	if same := checksums(); same != before {
		t.Errorf("%v became %v of itself", before, same)
	}
	if engine := checksums("--set=config.engine.nodeGrace=1m"); engine[0] == before[0] || engine[1] != before[1] {
		t.Errorf("of Muster's settings: %v became %v", before, engine)
	}
	if leases := checksums("--set=leaderElection.leaseDuration=9s"); leases[1] == before[1] {
		t.Errorf("of kube-scheduler's settings: %v became %v", before, leases)
	}
}

func TestBothContainersAreToldTheSameTimesAndNames(t *testing.T) {
	objects := rendered(t, "v1.34.2", "--values="+chartFolder+"/ci/everything-values.yaml", "--namespace=gangs")
	muster, scheduler := config(t, objects, "muster"), config(t, objects, "muster-kube-scheduler")
	election := scheduler["leaderElection"]
	if follow, lease := at(muster, "lease", "follow"), fmt.Sprint(at(election, "resourceNamespace"), "/", at(election, "resourceName")); follow != lease {
		t.Errorf("muster follows %v, kube-scheduler holds %s", follow, lease)
	}
	if told, waits := at(muster, "extender", "httpTimeout"), at(scheduler["extenders"].([]any)[0], "httpTimeout"); told != waits || told != "1m" {
		t.Errorf("kube-scheduler waits %v, muster is told %v", waits, told)
	}
	name := at(scheduler["profiles"].([]any)[0], "schedulerName")
	if arguments := fmt.Sprint(container(t, objects, "muster")["args"]); !strings.Contains(arguments, fmt.Sprint("--scheduler-name=", name, " ")) {
		t.Errorf("profile %v, muster %s", name, arguments)
	}
	for _, one := range objects {
		if namespace := at(one, "metadata", "namespace"); namespace != nil && namespace != "gangs" && namespace != "kube-system" {
			t.Errorf("%v %v is in %v", one["kind"], at(one, "metadata", "name"), namespace)
		}
	}
	if text, _ := json.Marshal(objects); strings.Contains(string(text), "muster-system") || strings.Contains(string(text), "coscheduling") {
		t.Error("some name is not the chosen one")
	}
}

func TestRightsComeWithTheSettingsThatTakeThem(t *testing.T) {
	for name, setting := range map[string]string{
		"muster-withdraw-nodes": "config.engine.withdrawNodes=true",
		"muster-kueue-fallback": "config.engine.kueueFallback=true",
	} {
		if has(rendered(t, "v1.34.2"), "ClusterRole", name) {
			t.Errorf("%s is there by default", name)
		}
		if !has(rendered(t, "v1.34.2", "--set="+setting), "ClusterRoleBinding", name) {
			t.Errorf("%s isn't bound with %s", name, setting)
		}
	}
}
