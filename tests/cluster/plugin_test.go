package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"muster.dev/tests/cluster/plane"
)

// `kubectl muster`, run by the stock kubectl through the real API server's aggregation layer, as people
// with the roles that every cluster has. They log in as on EKS: by a credential plugin of their
// kubeconfig. The case ends Muster, so it doesn't run beside others.

type pluginCase struct {
	*accessCase
	folder string // on PATH: kubectl-muster, and the credential plugin
}

func newPluginCase(t *testing.T) *pluginCase {
	t.Helper()
	p := &pluginCase{accessCase: newAccessCase(t), folder: t.TempDir()}
	installQueues(t)
	// Whoever gives quota takes its finalizers away, too.
	t.Cleanup(func() {
		shared.Muster.Kill()
		if err := shared.Muster.Start(plane.Launch{}); err != nil {
			t.Error(err)
		}
		p.clear()
	})
	binary, err := filepath.Abs(shared.Muster.Binary())
	p.must(err)
	for _, name := range []string{"kubectl-muster", "kubectl_complete-muster"} {
		p.must(os.Symlink(binary, filepath.Join(p.folder, name)))
	}
	// Answers as `aws eks get-token` does.
	p.must(os.WriteFile(filepath.Join(p.folder, "get-token"), []byte(`#!/bin/sh
echo "$1" >>"$(dirname "$0")/logins"
printf '{"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1beta1", "spec": {}, "status": {"expirationTimestamp": "%s", "token": "%s"}}' \
  "$(date --utc --date='+14 minutes' +%Y-%m-%dT%H:%M:%SZ)" "$(cat "$(dirname "$0")/$1.token")"
`), 0o755))
	t.Setenv("PATH", p.folder+":"+os.Getenv("PATH"))
	return p
}

// kubeconfig is that of an account, in the case's namespace.
func (p *pluginCase) kubeconfig(account string) string {
	p.Helper()
	path := filepath.Join(p.folder, account+".kubeconfig")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	p.must(os.WriteFile(filepath.Join(p.folder, account+".token"), []byte(p.token(account)), 0o600))
	cluster := func(field string) string {
		value, err := shared.Kubectl("config", "view", "--raw", "--minify", "--flatten", "--output=jsonpath={.clusters[0].cluster."+field+"}")
		p.must(err)
		return value
	}
	p.must(os.WriteFile(path, fmt.Appendf(nil, `
apiVersion: v1
kind: Config
current-context: team
contexts:
- {name: team, context: {cluster: test, user: %[1]s, namespace: %[2]s}}
clusters:
- {name: test, cluster: {server: %[3]q, certificate-authority-data: %[4]q}}
users:
- name: %[1]s
  user:
    exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: get-token, args: [%[1]s]}
`, account, p.Namespace, cluster("server"), cluster("certificate-authority-data")), 0o600))
	return path
}

// command is `kubectl muster` of an account.
func (p *pluginCase) command(account string, arguments ...string) *exec.Cmd {
	p.Helper()
	return p.kubectl(account, append([]string{"muster"}, arguments...)...)
}

func (p *pluginCase) kubectl(account string, arguments ...string) *exec.Cmd {
	p.Helper()
	command := exec.CommandContext(p.Context(), shared.KubectlProgram(), arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+p.kubeconfig(account), "HOME="+p.folder)
	return command
}

// run answers with what it printed, what it complained about, and its exit code.
func (p *pluginCase) run(account string, arguments ...string) (out, complaint string, code int) {
	p.Helper()
	var stdout, stderr bytes.Buffer
	command := p.command(account, arguments...)
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		p.Fatal(err)
	}
	return stdout.String(), stderr.String(), command.ProcessState.ExitCode()
}

// expect runs it until what it prints matches.
func (p *pluginCase) expect(pattern, account string, arguments ...string) {
	p.Helper()
	p.eventually(func() error {
		out, complaint, code := p.run(account, arguments...)
		if code != 0 || !regexp.MustCompile(pattern).MatchString(out) {
			return fmt.Errorf("kubectl muster %s as %s ended with %d, and printed\n%s%swant\n%s", strings.Join(arguments, " "), account, code, out, complaint, pattern)
		}
		return nil
	})
}

// refused runs it once: it ends with that code, and complains in one line.
func (p *pluginCase) refused(code int, pattern, account string, arguments ...string) {
	p.Helper()
	out, complaint, ended := p.run(account, arguments...)
	if ended != code || out != "" || strings.Count(complaint, "\n") != 1 || !regexp.MustCompile(pattern).MatchString(complaint) {
		p.Errorf("kubectl muster %s as %s ended with %d, want %d, and printed\n%s%swant\n%s", strings.Join(arguments, " "), account, ended, code, out, complaint, pattern)
	}
}

// following is a command that goes on.
type following struct {
	command *exec.Cmd
	mutex   sync.Mutex
	printed bytes.Buffer
}

func (f *following) Write(data []byte) (int, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.printed.Write(data)
}

func (f *following) text() string {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.printed.String()
}

func (p *pluginCase) follow(account string, arguments ...string) *following {
	p.Helper()
	f := &following{command: p.command(account, append(arguments, "--watch")...)}
	f.command.Stdout, f.command.Stderr = f, f
	p.must(f.command.Start())
	p.Cleanup(func() {
		_ = f.command.Process.Kill()
		_ = f.command.Wait()
	})
	return f
}

func (p *pluginCase) await(f *following, pattern string) {
	p.Helper()
	p.eventually(func() error {
		if text := f.text(); !regexp.MustCompile(pattern).MatchString(text) {
			return fmt.Errorf("%v has printed\n%swant\n%s", f.command.Args, text, pattern)
		}
		return nil
	})
}

func TestPluginTellsAGangsStoryWithTheRightsOfWhoAsks(t *testing.T) {
	p := newPluginCase(t)
	// Room and quota for one gang of two.
	p.flavorNodes(usage{"nvidia": 2})
	p.Apply("quota.yaml", nominalQuota(usage{"nvidia": 2, "nvidia-efa": 0}), onNodesLabelled)
	p.expect(`(?m)^QUEUE +CLUSTERQUEUE .*\ndefault +cluster-queue-gpu +0 +0$`, "lead", "queues")

	first := p.quotaGang("first", 2, 1)
	p.expect(`(?m)^first +BOUND +ALL_BOUND +2/2 +default +\d+s$`, "lead", "gangs")
	second := p.PodGroup("second", 2, 1)
	second.edit = withoutCPU
	rows := p.follow("lead", "gangs", "second")
	story := p.follow("lead", "explain", "second")
	nodes := p.follow("operator", "nodes")
	second.AddMembers(1)
	p.await(rows, `(?m)^second +WAITING_FOR_MEMBERS +MEMBERS_MISSING +0/2 `)
	p.await(story, `(?m)^members +now +1 of 2 exist$`)
	second.AddMembers(1)
	p.await(rows, `(?m)^second +WAITING_FOR_QUOTA +QUOTA_IN_USE +0/2 `)
	p.await(story, `(?m)^quota +now +first in line in ClusterQueue cluster-queue-gpu$`)
	// Those who came in the same second have no order among them.
	time.Sleep(1100 * time.Millisecond)
	p.quotaGang("third", 2, 1)

	p.part("who waits is told in order", func(*Case) {
		p.expect(`(?m)^quota +now +place 2 in line in ClusterQueue cluster-queue-gpu$`, "lead", "explain", "third")
		p.expect(`(?s)default +1 +\S+/second +0 +QUOTA_IN_USE .*default +2 +\S+/third +0 `, "lead", "queues")
		p.expect(`(?s)cluster-queue-gpu +- +2 +1 +nvidia +nvidia.com/gpu +2 +2 +0\n.*PLACE.*cluster-queue-gpu +1 +\S+/second .*cluster-queue-gpu +2 +\S+/third `, "operator", "queues", "-A")
	})
	p.part("the forms of kubectl", func(*Case) {
		p.expect(`(?m)^gang.visibility.muster.dev/first$`, "lead", "gangs", "-o", "name")
		p.expect(`(?m)^  name: "?first"?$`, "lead", "gangs", "first", "-o", "yaml")
		out, complaint, code := p.run("operator", "gangs", "-A", "-o", "json")
		var list struct {
			Items []struct{ Metadata struct{ Namespace string } }
		}
		if err := json.Unmarshal([]byte(out), &list); err != nil || code != 0 {
			p.Errorf("-o json ended with %d: %v: %s%s", code, err, out, complaint)
		}
		namespaces := map[string]bool{}
		for _, item := range list.Items {
			namespaces[item.Metadata.Namespace] = true
		}
		if !namespaces[p.Namespace] || !namespaces[p.other] {
			p.Errorf("-A shows gangs of %v", namespaces)
		}
		p.expect(`(?m)^NAME +STATE .* FLAVORS +MESSAGE$`, "lead", "gangs", "-o", "wide")
		p.expect(`without a cluster`, "lead", "lint", "--help")
	})
	p.part("the shell's completion", func(*Case) {
		for want, words := range map[string][]string{
			"explain\t":        {"ex"},
			"second\nthird\n":  {"explain", ""},
			"--namespace\tby":  {"gangs", "--n"},
			"first\n:4\n":      {"gangs", "-n", p.Namespace, "f"},
			"default\n:4\nCom": {"queues", ""},
		} {
			output, err := p.kubectl("lead", append([]string{"__complete", "muster"}, words...)...).CombinedOutput()
			if err != nil || !strings.Contains(string(output), want) {
				p.Errorf("kubectl __complete muster %q: %v: %s, want %q", words, err, output, want)
			}
		}
	})
	p.part("who may not is told which right he lacks", func(*Case) {
		p.refused(2, `lead" cannot list resource "nodes" in API group "visibility.muster.dev" at the cluster scope; .*ClusterRoleBinding`, "lead", "nodes")
		p.refused(2, `lead" cannot list resource "gangs" .* at the cluster scope; .* -n`, "lead", "gangs", "-A")
		p.refused(2, `lead" cannot get resource "gangs" .* in the namespace "`+p.other+`"; ClusterRole view, bound in namespace `, "lead", "explain", "train", "-n", p.other)
		p.refused(2, `nobody" cannot list resource "gangs" .* in the namespace`, "nobody", "gangs")
		p.refused(1, `there is no gang lost in namespace `, "lead", "explain", "lost")
	})

	first.Delete()
	p.await(rows, `(?m)^second +BOUND +ALL_BOUND +2/2 `)
	p.await(story, `(?m)^State: +BOUND `)
	p.await(nodes, `(?m)^`+p.Namespace+`-nvidia-0 +USABLE `)
	for _, each := range []*following{rows, story, nodes} {
		if strings.Contains(each.text(), "\033") {
			t.Errorf("colours, and this is no terminal: %q", each.text())
		}
		if strings.Contains(each.text(), "muster: ") {
			t.Errorf("%v complains: %s", each.command.Args, each.text())
		}
	}
	t.Logf("gangs --watch:\n%s", rows.text())
	t.Logf("explain --watch:\n%s", story.text())
	t.Logf("nodes --watch:\n%s", nodes.text())
	for _, arguments := range [][]string{{"gangs", "-o", "wide"}, {"queues"}, {"explain", "third"}} {
		out, _, _ := p.run("lead", arguments...)
		t.Logf("%v:\n%s", arguments, out)
	}
	out, _, _ := p.run("operator", "queues", "-A")
	t.Logf("queues -A:\n%s", out)

	shared.Muster.Kill()
	began := time.Now()
	p.refused(2, `Muster doesn't answer .*no replica of it leads`, "lead", "gangs")
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %v to say so", took)
	}
	mustKubectl(t, "delete", "apiservice", "v1beta1.visibility.muster.dev")
	p.eventually(func() error {
		_, complaint, code := p.run("lead", "gangs")
		if code != 2 || !strings.Contains(complaint, "this cluster has no API group visibility.muster.dev") {
			return fmt.Errorf("without the APIService it ended with %d: %s", code, complaint)
		}
		return nil
	})
}
