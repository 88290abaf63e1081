package plane

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"muster.dev/tests/cluster/process"
)

// Request is one that the API server has answered to a program that is measured.
type Request struct {
	Received time.Time
	Answered time.Time
	User     string
	Program  string // as it calls itself, without its version
	Verb     string // the API's, for example patch
	Resource string // with the subresource, for example pods/binding
	Object   string // namespace/name
	// What the API server calls the token, where it names it.
	Credential string
	Code       int // of the answer
	// No role of the user grants it.
	Forbidden bool
}

// Writes tells whether it was to change something.
func (r Request) Writes() bool {
	switch r.Verb {
	case "get", "list", "watch":
		return false
	}
	return true
}

// The namespace of ServiceAccounts that aren't Muster's.
const callers = "callers"

// KueueUser is who Kueue is to the API server where it is measured.
const KueueUser = "system:serviceaccount:" + callers + ":kueue"

// CallerUser is who a program is to the API server that calls as a ServiceAccount of
// its name.
func CallerUser(name string) string { return "system:serviceaccount:" + callers + ":" + name }

// RawCaller is the one that Caller gives whoever measures the API server alone.
const RawCaller = "raw"

// StockSchedulerUser is who the cluster's own kube-scheduler is.
const StockSchedulerUser = "system:kube-scheduler"

// auditPolicy has the API server note the requests of all who are measured alike, when
// it has answered them. Leases go on without any work.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: None
  resources: [{group: coordination.k8s.io}]
- level: Metadata
  users:
  - "` + KueueUser + `"
  - "` + ServiceAccount + `"
  - "` + StockSchedulerUser + `"
  - "system:serviceaccount:` + callers + `:` + PeerSchedulerName + `"
  - "system:serviceaccount:` + callers + `:` + RawCaller + `"
- level: None
`

func (p *Plane) auditLog() string { return p.path("logs/audit.json") }

func (p *Plane) auditFlags() ([]string, error) {
	policy := p.path("audit.yaml")
	return []string{
		"--audit-policy-file=" + policy,
		"--audit-log-path=" + p.auditLog(),
		// One file, in MiB.
		"--audit-log-maxsize=10000",
	}, os.WriteFile(policy, []byte(auditPolicy), 0o600)
}

// Requests returns those received in a span of time and answered by now, of a
// control plane that was started with Measured or Audited.
func (p *Plane) Requests(from, to time.Time) ([]Request, error) {
	file, err := os.Open(p.auditLog())
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var requests []Request
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		request, err := readRequest(lines.Bytes())
		if err != nil {
			return nil, err
		}
		if !request.Received.Before(from) && request.Received.Before(to) {
			requests = append(requests, request)
		}
	}
	return requests, lines.Err()
}

func readRequest(line []byte) (Request, error) {
	var event struct {
		Verb, UserAgent          string
		RequestReceivedTimestamp time.Time
		StageTimestamp           time.Time
		User                     struct {
			Username string
			Extra    map[string][]string
		}
		ObjectRef      struct{ Resource, Subresource, Namespace, Name string }
		ResponseStatus struct{ Code int }
		Annotations    map[string]string
	}
	if err := json.Unmarshal(line, &event); err != nil {
		return Request{}, fmt.Errorf("audit log: %w: %s", err, line)
	}
	program, _, _ := strings.Cut(event.UserAgent, "/")
	resource := event.ObjectRef.Resource
	if event.ObjectRef.Subresource != "" {
		resource += "/" + event.ObjectRef.Subresource
	}
	return Request{
		Received:   event.RequestReceivedTimestamp,
		Answered:   event.StageTimestamp,
		User:       event.User.Username,
		Program:    program,
		Verb:       event.Verb,
		Resource:   resource,
		Object:     event.ObjectRef.Namespace + "/" + event.ObjectRef.Name,
		Credential: strings.Join(event.User.Extra["authentication.kubernetes.io/credential-id"], " "),
		Code:       event.ResponseStatus.Code,
		Forbidden:  event.Annotations["authorization.k8s.io/decision"] == "forbid",
	}, nil
}

// AwaitQuiet returns once nobody who is measured has asked for anything for so
// long. Events, which a program may write long after what they tell, count only if
// asked for.
func (p *Plane) AwaitQuiet(quiet, patience time.Duration, events bool) error {
	begin, since := time.Now(), time.Now()
	return p.await(fmt.Sprintf("%v without a request", quiet), patience, func() error {
		if time.Since(since) < quiet {
			return fmt.Errorf("there was one %v ago", time.Since(since))
		}
		requests, err := p.Requests(begin, time.Now())
		if err != nil {
			return err
		}
		for _, request := range requests {
			if (events || request.Resource != "events") && request.Answered.After(since) {
				since = request.Answered
			}
		}
		if passed := time.Since(since); passed < quiet {
			return fmt.Errorf("the last one was %v ago", passed)
		}
		return nil
	})
}

// CPU is the time that each program of the control plane has computed so far, by
// its name, Muster's and a peer's included.
func (p *Plane) CPU() map[string]time.Duration {
	times := map[string]time.Duration{}
	for _, one := range p.programsRunning() {
		times[one.Name] = one.CPU()
	}
	return times
}

// PeakMemory is the most that each of them has had resident, in bytes.
func (p *Plane) PeakMemory() map[string]int64 {
	peaks := map[string]int64{}
	for _, one := range p.programsRunning() {
		peaks[one.Name] = one.PeakMemory()
	}
	return peaks
}

func (p *Plane) programsRunning() []*process.Process {
	p.mutex.Lock()
	running := slices.Clone(p.processes)
	p.mutex.Unlock()
	if current := p.Muster.current(); current != nil {
		running = append(running, current)
	}
	return running
}
