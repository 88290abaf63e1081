package plane

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"muster.dev/tests/cluster/process"
)

// Replica is one of the Deployment's pods: a kube-scheduler, unless Muster is
// standalone, and the Muster beside it, on a host name of their own, which is how they know each other in
// the Lease. Both are started again when they end, as by a kubelet.
type Replica struct {
	Host   string
	Muster *Muster
	// What the API server calls the tokens. In a pod both have the same one, and
	// nobody could tell who wrote.
	MusterCredential, SchedulerCredential string
	// How its Muster starts from its next start on.
	Launch Launch

	scheduler container
	muster    container
}

// restartPause is that of a kubelet before the first restart: it looks at its
// containers once a second. A container that ends again and again would wait
// 10 s and more, which no case here does.
const restartPause = time.Second

// NewReplica prepares a replica without starting it.
func (p *Plane) NewReplica(host string) (*Replica, error) {
	addresses, err := freePorts(5)
	if err != nil {
		return nil, err
	}
	r := &Replica{Host: host, Muster: newMuster(p, p.Muster.binary, addresses)}
	r.Muster.host, r.Muster.name, r.Muster.user = host, "muster-"+host, "muster-"+host
	if r.MusterCredential, err = p.createToken(r.Muster.user); err != nil {
		return nil, err
	}
	r.muster.start = func() (*process.Process, error) {
		err := r.Muster.Launch(r.Launch)
		return r.Muster.current(), err
	}
	if !p.standalone {
		if err := p.besideScheduler(r); err != nil {
			return nil, err
		}
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.replicas = append(p.replicas, r)
	return r, nil
}

// besideScheduler gives a replica its kube-scheduler.
func (p *Plane) besideScheduler(r *Replica) (err error) {
	host, name := r.Host, "kube-scheduler-"+r.Host
	if r.SchedulerCredential, err = p.createToken(name); err != nil {
		return err
	}
	config, err := p.deployedSchedulerConfig(name, r.Muster.ExtenderAddress)
	if err != nil {
		return err
	}
	gates, err := p.schedulerGates()
	if err != nil {
		return err
	}
	configFile := p.path(name + ".yaml")
	if err := os.WriteFile(configFile, config, 0o644); err != nil {
		return err
	}
	r.scheduler.start = func() (*process.Process, error) {
		return process.StartOn(host, name, p.path("logs/"+name+".log"), nil, p.program("kube-scheduler"),
			append(gates, "--config="+configFile, "--secure-port=0", "--v=2")...)
	}
	return nil
}

// Retire ends a replica for good.
func (p *Plane) Retire(r *Replica) error {
	p.mutex.Lock()
	p.replicas = slices.DeleteFunc(p.replicas, func(one *Replica) bool { return one == r })
	p.mutex.Unlock()
	return r.Stop()
}

// Start starts both containers and returns at once.
func (r *Replica) Start() error {
	for _, c := range r.containers() {
		if err := c.begin(); err != nil {
			return err
		}
	}
	return nil
}

// Lose ends both at once and for good, as the loss of their host would.
func (r *Replica) Lose() {
	for _, c := range r.containers() {
		c.unwanted()
	}
	for _, c := range r.containers() {
		c.crash()
	}
}

// CrashMuster ends Muster alone; it comes back.
func (r *Replica) CrashMuster() { r.muster.crash() }

// CrashScheduler ends the kube-scheduler alone; it comes back.
func (r *Replica) CrashScheduler() { r.scheduler.crash() }

// Freeze stops both where they are, as a host that hangs; Thaw lets them go on.
func (r *Replica) Freeze() error { return r.signal(syscall.SIGSTOP) }

func (r *Replica) Thaw() error { return r.signal(syscall.SIGCONT) }

func (r *Replica) signal(what syscall.Signal) error {
	for _, c := range r.containers() {
		if err := c.current().Signal(what); err != nil {
			return err
		}
	}
	return nil
}

// Stop asks both to end at the same time, as a rollout or a drain does.
func (r *Replica) Stop() error {
	containers := r.containers()
	failed := make([]error, len(containers))
	var all sync.WaitGroup
	for i, c := range containers {
		one := c.unwanted()
		all.Go(func() {
			if one != nil && !one.Stop(45*time.Second) {
				failed[i] = fmt.Errorf("%s didn't end within 45 s of SIGTERM, log %s:\n%s", one.Name, one.LogPath, one.Tail(20))
			}
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

// Logs says where the programs log to.
func (r *Replica) Logs() string {
	var paths []string
	for _, c := range r.containers() {
		if one := c.current(); one != nil {
			paths = append(paths, one.LogPath)
		}
	}
	return r.Host + ": " + strings.Join(paths, " ")
}

func (r *Replica) containers() []*container {
	if r.scheduler.start == nil {
		return []*container{&r.muster} // standalone
	}
	return []*container{&r.scheduler, &r.muster}
}

// container is a program that is started again when it ends, as long as it is
// wanted.
type container struct {
	start func() (*process.Process, error)

	mutex   sync.Mutex
	process *process.Process
	wanted  bool
}

func (c *container) begin() error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.wanted = true
	return c.startLocked()
}

func (c *container) startLocked() error {
	started, err := c.start()
	if err != nil {
		return err
	}
	c.process = started
	go c.keep(started)
	return nil
}

func (c *container) keep(one *process.Process) {
	<-one.Exited()
	time.Sleep(restartPause)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.wanted && c.process == one {
		// What can't be started is missed by whoever waits for it.
		_ = c.startLocked()
	}
}

func (c *container) current() *process.Process {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.process
}

func (c *container) crash() {
	if one := c.current(); one != nil {
		one.Kill()
	}
}

// unwanted leaves the program that runs as it is and sees to it that no other
// follows.
func (c *container) unwanted() *process.Process {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.wanted = false
	return c.process
}

// credential is the name that the API server gives a token of a ServiceAccount.
func credential(token string) (string, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "", fmt.Errorf("a token of %d parts", len(parts))
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", err
	}
	var claims struct {
		ID string `json:"jti"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		return "", err
	}
	return "JTI=" + claims.ID, nil
}
