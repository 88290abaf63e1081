package plane

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"muster.dev/tests/cluster/process"
)

// Muster is the program under test. Its addresses stay the same when it is
// started again, as they do behind a Service.
type Muster struct {
	ExtenderAddress string
	Address         string // REST, metrics
	GRPCAddress     string
	WebhookAddress  string
	HealthAddress   string // what the kubelet would ask
	// Where the API server hands queries on to; empty: nowhere.
	AggregatedAddress string

	plane  *Plane
	binary string
	name   string // of its files
	user   string // whose kubeconfig it has
	host   string // that it believes to be on; empty: the real one

	ensuring sync.Mutex // one caller of Ensure at a time

	mutex   sync.Mutex
	process *process.Process
	starts  int
}

func newMuster(p *Plane, binary string, addresses []string) *Muster {
	return &Muster{
		plane:           p,
		binary:          binary,
		name:            "muster",
		user:            serviceAccount,
		ExtenderAddress: addresses[0],
		Address:         addresses[1],
		GRPCAddress:     addresses[2],
		WebhookAddress:  addresses[3],
		HealthAddress:   addresses[4],
	}
}

// Launch is what one start of Muster differs in.
type Launch struct {
	Environment []string          // added to the driver's own
	Webhook     map[string]string // added to that part of the configuration that deploy/ gives it
	Engine      map[string]any    // likewise
	Query       map[string]any    // likewise
	Quota       string            // who admits: internal (as if it weren't set), kueue or off
}

// Binary is the program under test.
func (m *Muster) Binary() string { return m.binary }

// Ensure starts Muster unless it runs, and returns once it is ready.
func (m *Muster) Ensure() error {
	m.ensuring.Lock()
	defer m.ensuring.Unlock()
	if m.Running() {
		return m.AwaitReady(30 * time.Second)
	}
	return m.Start(Launch{})
}

// Start starts Muster and returns once it is ready.
func (m *Muster) Start(launch Launch) error {
	if err := m.Launch(launch); err != nil {
		return err
	}
	return m.AwaitReady(30 * time.Second)
}

// Launch starts Muster and returns at once.
func (m *Muster) Launch(launch Launch) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.process != nil && m.process.Running() {
		return fmt.Errorf("muster is running already")
	}
	if _, err := os.Stat(m.binary); err != nil {
		return fmt.Errorf("the binary under test is missing (./run build makes it): %w", err)
	}
	m.starts++
	config := m.plane.path(fmt.Sprintf("%s-%03d.yaml", m.name, m.starts))
	settings := runtime.DeepCopyJSON(m.plane.musterSettings)
	for key, value := range launch.Webhook {
		if err := unstructured.SetNestedField(settings, value, "webhook", key); err != nil {
			return err
		}
	}
	for key, value := range launch.Engine {
		if err := unstructured.SetNestedField(settings, value, "engine", key); err != nil {
			return err
		}
	}
	for key, value := range launch.Query {
		if err := unstructured.SetNestedField(settings, value, "query", key); err != nil {
			return err
		}
	}
	if launch.Quota != "" {
		settings["quota"] = launch.Quota
	}
	if err := m.plane.applyWebhooks(launch.Quota); err != nil {
		return err
	}
	content, err := yaml.Marshal(settings)
	if err != nil {
		return err
	}
	if err := os.WriteFile(config, content, 0o600); err != nil {
		return err
	}
	flags := []string{"--mode=extender", "--extender-listen=" + m.ExtenderAddress}
	if m.plane.standalone {
		flags = []string{"--mode=standalone"}
	}
	if m.AggregatedAddress != "" {
		flags = append(flags, "--aggregated-listen="+m.AggregatedAddress)
	}
	flags = append(flags,
		"--scheduler-name="+SchedulerName,
		"--listen="+m.Address,
		"--grpc-listen="+m.GRPCAddress,
		"--webhook-listen="+m.WebhookAddress,
		"--health-listen="+m.HealthAddress,
		"--leader-elect=true",
		"--config="+config)
	m.process, err = m.serve(launch.Environment, flags)
	return err
}

// serve starts the program. The one that cases share is standalone as in a pod, where it knows its
// former life by the host's name and leads again at once; beside a kube-scheduler it follows that.
func (m *Muster) serve(environment, flags []string) (*process.Process, error) {
	log := m.plane.path(fmt.Sprintf("logs/%s-%03d.log", m.name, m.starts))
	if !m.plane.standalone || m.host != "" {
		flags = append(flags, "--kubeconfig="+m.plane.kubeconfig(m.user))
		return process.StartOn(m.host, m.name, log, environment, m.binary, append([]string{"serve"}, flags...)...)
	}
	account, err := m.plane.mountAccount(deploymentNamespace, serviceAccount, m.plane.path("pods/"+m.name))
	if err != nil {
		return nil, err
	}
	server, err := m.plane.podEnvironment()
	if err != nil {
		return nil, err
	}
	return process.StartInPod(m.name, account, accountPath, m.name, log, append(server, environment...), m.binary,
		append([]string{"serve"}, flags...)...)
}

// AwaitReady returns once Muster's readiness endpoint says yes.
func (m *Muster) AwaitReady(patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for {
		current := m.current()
		if current == nil || !current.Running() {
			return fmt.Errorf("muster isn't running: %s", m.Report())
		}
		response, err := httpClient.Get("http://" + m.HealthAddress + "/readyz")
		if err == nil {
			body, _ := io.ReadAll(response.Body)
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("%s: %s", response.Status, body)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("muster isn't ready after %v: %w\n%s", patience, err, m.Report())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// AwaitCrash returns once Muster has ended by SIGKILL.
func (m *Muster) AwaitCrash(patience time.Duration) error {
	current := m.current()
	if current == nil {
		return fmt.Errorf("muster was never started")
	}
	select {
	case <-current.Exited():
	case <-time.After(patience):
		return fmt.Errorf("muster still runs after %v, log %s:\n%s", patience, current.LogPath, current.Tail(20))
	}
	if !current.Killed() {
		return fmt.Errorf("muster ended, but not by SIGKILL: %s", m.Report())
	}
	return nil
}

// Kill ends Muster as a crash would. Without a running Muster it does nothing.
func (m *Muster) Kill() {
	if current := m.current(); current != nil {
		current.Kill()
	}
}

// Freeze stops Muster where it is, as a host that hangs; Thaw lets it go on.
func (m *Muster) Freeze() error { return m.current().Signal(syscall.SIGSTOP) }

// Thaw ends what Freeze began.
func (m *Muster) Thaw() error { return m.current().Signal(syscall.SIGCONT) }

// Stop ends Muster as a rollout would.
func (m *Muster) Stop() error {
	if current := m.current(); current != nil && !current.Stop(20*time.Second) {
		return fmt.Errorf("muster didn't end within 20 s of SIGTERM: %s", m.Report())
	}
	return nil
}

// Running tells whether Muster runs.
func (m *Muster) Running() bool {
	current := m.current()
	return current != nil && current.Running()
}

// LogPath is where the newest start logs to.
func (m *Muster) LogPath() string {
	if current := m.current(); current != nil {
		return current.LogPath
	}
	return "(never started)"
}

// Report says how Muster ended and shows the end of its log.
func (m *Muster) Report() string {
	current := m.current()
	if current == nil {
		return "never started"
	}
	return fmt.Sprintf("%s, log %s:\n%s", current.Ending(), current.LogPath, current.Tail(20))
}

// Metrics reads what Muster counts about itself, as Prometheus would.
func (m *Muster) Metrics() (string, error) {
	body, err := m.read("/metrics")
	return string(body), err
}

func (m *Muster) read(path string) ([]byte, error) {
	response, err := httpClient.Get("http://" + m.Address + path)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", path, response.Status, body)
	}
	return body, err
}

// Get reads one of Muster's REST resources as JSON.
func (m *Muster) Get(path string) (map[string]any, error) {
	body, err := m.read(path)
	if err != nil {
		return nil, err
	}
	var object map[string]any
	if err := json.Unmarshal(body, &object); err != nil {
		return nil, fmt.Errorf("GET %s: %w: %s", path, err, body)
	}
	return object, nil
}

// Command runs one of Muster's commands as the cluster's administrator and returns what it printed
// and its exit code.
func (m *Muster) Command(arguments ...string) (output string, code int, err error) {
	command := exec.Command(m.binary, arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+m.plane.Kubeconfig)
	content, err := command.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(content), exit.ExitCode(), nil
	}
	return string(content), 0, err
}

func (m *Muster) current() *process.Process {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.process
}

// Log is all that the newest start has logged.
func (m *Muster) Log() (string, error) {
	content, err := os.ReadFile(m.LogPath())
	return string(content), err
}
