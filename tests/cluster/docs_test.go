package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"muster.dev/tests/cluster/plane"
)

// The pages of docs/ on a cluster of their own each: every command is run, in order, and what it prints
// is held to what the page shows. docs/README.md has the conventions.
//
// What stands for EKS: Karpenter with its kwok provider. In the copy of deploy/ that the commands see
// NodePools name its KWOKNodeClass and instance types; EC2NodeClasses are taken by a definition
// without a schema.

const docsFolder = "../../docs"

// docsCommand is one command of a page.
type docsCommand struct {
	line   int
	text   string
	status int     // that the page says it ends with
	shown  *string // nil: the page shows nothing
	kind   string  // of its block
	cloud  bool    // only its syntax can be checked here
}

var (
	blockBegin = regexp.MustCompile("^( *)```(.*)$")
	endsWith   = regexp.MustCompile(`# ends with (\d+)`)
)

// isWhole tells whether the shell takes it as it is, with no line missing.
func isWhole(text string) (bool, string) {
	if strings.HasSuffix(text, "\\") {
		return false, "it goes on"
	}
	command := exec.Command("bash", "-n")
	command.Stdin = strings.NewReader(text + "\n")
	output, err := command.CombinedOutput()
	return err == nil && len(output) == 0, string(output)
}

// readPage returns a page's commands, what its cluster begins as, and what is wrong with it.
func readPage(text string) (commands []docsCommand, begins string, wrong []error) {
	begins = "bare"
	var kind, pending string
	var indent string // of the block, in a list
	inside, begun, before := false, 0, 0
	finish := func() {
		if pending == "" {
			return
		}
		if ok, why := isWhole(pending); !ok {
			wrong = append(wrong, fmt.Errorf("line %d: bash doesn't take %q: %s", begun, pending, why))
		}
		pending = ""
	}
	add := func(command docsCommand) {
		command.text = pending
		if found := endsWith.FindStringSubmatch(pending); found != nil {
			command.status, _ = strconv.Atoi(found[1])
		}
		commands = append(commands, command)
		pending = ""
	}
	for i, line := range strings.Split(text, "\n") {
		number := i + 1
		if found := regexp.MustCompile(`^<!-- begins: (\w+) -->$`).FindStringSubmatch(line); found != nil {
			begins = found[1]
		}
		if found := blockBegin.FindStringSubmatch(line); found != nil {
			finish()
			inside = !inside
			if inside {
				indent, kind, before = found[1], found[2], len(commands)
				if !strings.Contains("|sh|sh cloud|sh upgrade|sh downgrade|sh downgrade with queues|console|yaml|text|", "|"+kind+"|") {
					wrong = append(wrong, fmt.Errorf("line %d: a block of %q", number, kind))
				}
			}
			continue
		}
		if !inside {
			continue
		}
		line = strings.TrimPrefix(line, indent)
		switch kind {
		case "sh", "sh cloud", "sh upgrade", "sh downgrade", "sh downgrade with queues":
			if pending == "" {
				begun = number
				if trimmed := strings.TrimSpace(line); trimmed == "" || strings.HasPrefix(trimmed, "#") {
					continue
				}
			} else {
				pending += "\n"
			}
			pending += line
			if ok, _ := isWhole(pending); ok {
				add(docsCommand{line: begun, kind: kind, cloud: kind != "sh"})
			}
		case "console":
			if text, is := strings.CutPrefix(line, "$ "); is || pending != "" {
				if is {
					begun = number
				} else {
					pending += "\n"
					text = line
				}
				pending += text
				if ok, _ := isWhole(pending); ok {
					add(docsCommand{line: begun, kind: kind})
				}
				continue
			}
			if len(commands) == before {
				wrong = append(wrong, fmt.Errorf("line %d: output of no command", number))
				continue
			}
			last := &commands[len(commands)-1]
			if last.shown == nil {
				last.shown = new(string)
			}
			*last.shown += line + "\n"
		}
	}
	finish()
	return commands, begins, wrong
}

// pattern matches what a page shows: … is anything, columns may have other widths.
func pattern(shown string) *regexp.Regexp {
	var lines []string
	for _, line := range strings.Split(strings.TrimSpace(shown), "\n") {
		if strings.TrimSpace(line) == "…" {
			lines = append(lines, `(?:.*\n)*?`)
			continue
		}
		var words []string
		for _, word := range strings.Fields(line) {
			words = append(words, strings.ReplaceAll(regexp.QuoteMeta(word), "…", ".*"))
		}
		lines = append(lines, `\s*`+strings.Join(words, `\s+`)+`\s*\n`)
	}
	return regexp.MustCompile("^" + strings.Join(lines, "") + `\s*$`)
}

// docsCluster is where a page's commands run.
type docsCluster struct {
	*testing.T
	plane       *plane.Plane
	tree        string // the copy that they see
	environment []string
	state       string // what they export
}

func startDocsCluster(t *testing.T) *docsCluster {
	t.Helper()
	options, err := plane.Locate(".")
	if err != nil {
		t.Fatal(err)
	}
	options.Bare = true
	server, err := plane.Start(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Stop()
		if !t.Failed() {
			_ = os.RemoveAll(server.Folder)
		} else {
			t.Log("logs are in", server.Folder)
		}
	})
	d := &docsCluster{T: t, plane: server, tree: filepath.Join(server.Folder, "tree"), state: filepath.Join(server.Folder, "exported")}
	programs := filepath.Join(server.Folder, "bin")
	helm, err := exec.Command("../chart/build.sh", "--where").Output()
	d.must(err)
	d.must(os.MkdirAll(programs, 0o755))
	for name, path := range map[string]string{
		"muster": options.Muster, "helm": strings.TrimSpace(string(helm)), "kubectl": filepath.Join(options.Programs, "kubectl"),
	} {
		d.must(os.Symlink(path, filepath.Join(programs, name)))
	}
	d.must(os.CopyFS(filepath.Join(d.tree, "deploy"), os.DirFS("../../deploy")))
	d.must(os.WriteFile(d.state, nil, 0o644))
	d.environment = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "KUBECONFIG="+server.Kubeconfig, "HOME="+server.Folder,
		"HELM_CACHE_HOME="+server.Folder+"/helm", "HELM_CONFIG_HOME="+server.Folder+"/helm", "HELM_DATA_HOME="+server.Folder+"/helm")
	d.standForEKS()
	return d
}

func (d *docsCluster) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

func (d *docsCluster) standForEKS() {
	d.Helper()
	class := regexp.MustCompile(`group: karpenter\.k8s\.aws\n( +)kind: EC2NodeClass`)
	types := strings.NewReplacer("[g6.2xlarge, g6.4xlarge, g5.2xlarge]", "["+plane.InstanceType(1)+"]", "[p5.48xlarge]", "["+plane.InstanceType(8)+"]")
	changed := 0
	d.must(filepath.WalkDir(filepath.Join(d.tree, "deploy/examples"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text := types.Replace(class.ReplaceAllString(string(content), "group: karpenter.kwok.sh\n${1}kind: KWOKNodeClass"))
		if text == string(content) {
			return nil
		}
		changed++
		return os.WriteFile(path, []byte(text), 0o644)
	}))
	if changed == 0 {
		d.Error("no example names an EC2NodeClass any more")
	}
	d.apply(anyObjects("karpenter.k8s.aws", "ec2nodeclasses", "EC2NodeClass", "Cluster") + `
---
apiVersion: karpenter.kwok.sh/v1alpha1
kind: KWOKNodeClass
metadata: {name: gpu}
---
apiVersion: karpenter.kwok.sh/v1alpha1
kind: KWOKNodeClass
metadata: {name: gpu-efa}
---
apiVersion: v1
kind: Namespace
metadata: {name: karpenter}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: karpenter, namespace: karpenter}
spec:
  selector: {matchLabels: {app: karpenter}}
  template:
    metadata: {labels: {app: karpenter}}
    spec: {containers: [{name: controller, image: "example.com/karpenter:1.8.0"}]}
`)
	d.must(d.plane.AwaitCRDs("ec2nodeclasses.karpenter.k8s.aws"))
	_, err := d.plane.RunPods(nil)
	d.must(err)
}

func (d *docsCluster) apply(manifest string) {
	d.Helper()
	file := filepath.Join(d.TempDir(), "manifest.yaml")
	d.must(os.WriteFile(file, []byte(manifest), 0o644))
	_, err := d.plane.Kubectl("apply", "--server-side", "--filename="+file)
	d.must(err)
}

// run runs a command as the reader of the page would, who stands in the project's folder.
func (d *docsCluster) run(text string) (output string, status int) {
	d.Helper()
	ctx, cancel := context.WithTimeout(d.Context(), 4*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", "-c", "set -euo pipefail\n. "+d.state+"\n"+text+"\nstatus=$?\n{ declare -px; declare -fx; } >"+d.state+"\nexit $status")
	command.Dir, command.Env = d.tree, d.environment
	command.WaitDelay = time.Second
	content, err := command.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(content), exit.ExitCode()
	}
	if err != nil {
		d.Fatalf("%s: %v\n%s", text, err, content)
	}
	return string(content), 0
}

// What each page begins with, beside a cluster with Karpenter.
var docsBegins = map[string]string{
	"bare": "",
	// As docs/install.md leaves it.
	"installed": `
kubectl apply -f deploy/base/namespace.yaml
helm install muster deploy/chart --namespace muster-system
kubectl -n muster-system rollout status deployment/muster --timeout=2m
kubectl wait --for=condition=Available apiservice/v1beta1.visibility.muster.dev --timeout=1m
kubectl apply -f deploy/examples/nodepools.yaml
`,
	// The objects of scheduler-plugins, which nobody acts on here, and a gang that waits.
	"schedulerplugins": `
kubectl create namespace scheduler-plugins
kubectl -n scheduler-plugins create deployment scheduler-plugins-scheduler --image=example.com/kube-scheduler
kubectl -n scheduler-plugins create deployment scheduler-plugins-controller --image=example.com/controller
kubectl apply -f deploy/crds/scheduling.x-k8s.io_podgroups.yaml
kubectl wait --for=create crd/podgroups.scheduling.x-k8s.io
kubectl apply -f deploy/examples/nodepools.yaml
sed 's/schedulerName: coscheduling/schedulerName: scheduler-plugins-scheduler/' deploy/examples/plain-pods.yaml | kubectl apply -f -
`,
	// The objects of Kueue: definitions, webhooks and a Deployment; whether it lives its Lease says.
	"kueue": `
kubectl apply --server-side -k deploy/crds/kueue
kubectl create namespace kueue-system
kubectl -n kueue-system create deployment kueue-controller-manager --image=example.com/kueue
kubectl -n kueue-system create service clusterip kueue-webhook-service --tcp=443
kubectl apply -f - <<'END'
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: kueue-mutating-webhook-configuration}
webhooks:
- name: mworkload.kb.io
  clientConfig: {service: {name: kueue-webhook-service, namespace: kueue-system, path: /mutate}}
  rules: [{apiGroups: [kueue.x-k8s.io], apiVersions: [v1beta2], operations: [CREATE], resources: [workloads]}]
  failurePolicy: Fail
  sideEffects: None
  admissionReviewVersions: [v1]
END
kubectl apply -f deploy/examples/nodepools.yaml
kubectl wait --for=create crd/clusterqueues.kueue.x-k8s.io
kubectl apply -f deploy/examples/queues.yaml
`,
}

func TestEveryCommandOfThePagesDoesWhatItSays(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(docsFolder + "/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	run, cloud := 0, 0
	for _, page := range pages {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		commands, begins, wrong := readPage(string(content))
		for _, one := range wrong {
			t.Errorf("%s: %v", page, one)
		}
		here := 0
		for _, command := range commands {
			if !command.cloud {
				here++
			}
		}
		cloud += len(commands) - here
		if here == 0 {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) {
			before, known := docsBegins[begins]
			if !known {
				t.Fatalf("%s begins as %q, which is nothing known", page, begins)
			}
			d := startDocsCluster(t)
			if output, status := d.run(before); status != 0 {
				t.Fatalf("what the page begins with ended with %d:\n%s", status, output)
			}
			if begins == "kueue" {
				d.keepKueueAlive()
			}
			for _, command := range commands {
				if command.cloud {
					continue
				}
				began := time.Now()
				output, status := d.run(command.text)
				t.Logf("%s:%d (%.1f s): %s\n%s", filepath.Base(page), command.line, time.Since(began).Seconds(), command.text, output)
				if status != command.status {
					t.Fatalf("%s:%d ended with %d, the page says %d: %s", page, command.line, status, command.status, command.text)
				}
				if command.shown != nil && !pattern(*command.shown).MatchString(output) {
					t.Fatalf("%s:%d printed\n%s\nthe page shows\n%s", page, command.line, output, *command.shown)
				}
				run++
			}
		})
	}
	t.Logf("%d commands of %d pages were run; of %d for a cloud only the syntax was checked", run, len(pages), cloud)
}

// keepKueueAlive renews Kueue's Lease as its manager does, as long as its Deployment has replicas.
func (d *docsCluster) keepKueueAlive() {
	renew := func() error {
		deployment, err := d.plane.Client.AppsV1().Deployments("kueue-system").Get(d.Context(), "kueue-controller-manager", metav1.GetOptions{})
		if err != nil || *deployment.Spec.Replicas == 0 {
			return err
		}
		lease := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
			"metadata": map[string]any{"name": "c1f6bfd2.kueue.x-k8s.io", "namespace": "kueue-system"},
			"spec": map[string]any{"holderIdentity": "kueue", "leaseDurationSeconds": int64(15),
				"renewTime": time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")},
		}}
		_, err = d.plane.Dynamic.Resource(schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}).Namespace("kueue-system").Apply(d.Context(), lease.GetName(), lease,
			metav1.ApplyOptions{FieldManager: "kueue", Force: true})
		return err
	}
	d.must(renew())
	go func() {
		for d.Context().Err() == nil {
			_ = renew() // in the end the cluster goes
			time.Sleep(2 * time.Second)
		}
	}()
}

// That a page's commands can be wrong: what is read of one, and what doesn't match.
func TestPagesAreReadAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	commands, begins, wrong := readPage("<!-- begins: installed -->\n```sh\n# said\na \\\n  b\ncat <<E\nx\nE\n```\n" +
		" ```console\n $ c   # ends with 1: no\n one …\n $ d\n ```\n```sh cloud\naws eks\n```\n```yaml\nnone: {}\n```\n")
	if len(wrong) > 0 || begins != "installed" || len(commands) != 5 {
		t.Fatalf("%v, %q, %d commands", wrong, begins, len(commands))
	}
	if one := commands[0]; one.text != "a \\\n  b" || one.line != 4 || one.shown != nil {
		t.Errorf("%+v", one)
	}
	if one := commands[2]; one.status != 1 || *one.shown != "one …\n" {
		t.Errorf("%+v", one)
	}
	if !commands[4].cloud || commands[3].cloud {
		t.Error("which are for a cloud")
	}
	for _, page := range []string{"```sh\nif true\n```\n", "```sh\ntrue\n```\n```console\nwhat\n```\n", "```bash\ntrue\n```\n", "```console\nwhat\n```\n"} {
		if _, _, wrong := readPage(page); len(wrong) != 1 {
			t.Errorf("%q: %v", page, wrong)
		}
	}
	shown := pattern("NAME   STATE\nsum …  BOUND\n…\nend")
	for printed, want := range map[string]bool{
		"NAME STATE\nsum a b  BOUND\nend\n":             true,
		"NAME STATE\nsum a    BOUND\nmore\nthan\nend\n": true,
		"NAME STATE\nsum a    READY\nend\n":             false,
		"NAME STATE\nsum a    BOUND\n":                  false,
	} {
		if shown.MatchString(printed) != want {
			t.Errorf("%q: want %v", printed, want)
		}
	}
}
