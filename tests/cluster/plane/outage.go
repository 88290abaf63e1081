package plane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"muster.dev/tests/cluster/process"
)

// What may befall the control plane itself. The programs are those of Store, by name.
const (
	APIServer = "kube-apiserver"
	Etcd      = "etcd"
)

// Freeze stops programs where they are, as a host that hangs; Thaw lets them go on.
func (p *Plane) Freeze(names ...string) error { return p.signal(syscall.SIGSTOP, names) }

// Thaw ends what Freeze began.
func (p *Plane) Thaw(names ...string) error { return p.signal(syscall.SIGCONT, names) }

func (p *Plane) signal(what syscall.Signal, names []string) error {
	for _, name := range names {
		one, err := p.process(name)
		if err != nil {
			return err
		}
		if err := one.Signal(what); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// Crash kills programs; Restart starts them again as they were started.
func (p *Plane) Crash(names ...string) error {
	for _, name := range names {
		one, err := p.process(name)
		if err != nil {
			return err
		}
		one.Kill()
	}
	return nil
}

// Restart starts programs that have ended again, with the same arguments, data and log.
func (p *Plane) Restart(names ...string) error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, name := range names {
		if err := p.restart(name); err != nil {
			return err
		}
	}
	return nil
}

// Revive does what kubelets and systemd would: whatever has ended meanwhile is started again. It
// returns what that was.
func (p *Plane) Revive() ([]string, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	var revived []string
	for _, one := range p.processes {
		if !one.Running() {
			revived = append(revived, one.Name)
		}
	}
	for _, name := range revived {
		if err := p.restart(name); err != nil {
			return revived, err
		}
	}
	return revived, nil
}

func (p *Plane) restart(name string) error {
	for i, one := range p.processes {
		if one.Name != name {
			continue
		}
		if one.Running() {
			return fmt.Errorf("%s runs still", name)
		}
		started, err := p.starts[name]()
		if err != nil {
			return err
		}
		p.processes[i] = started
		return nil
	}
	return fmt.Errorf("there is no %s", name)
}

func (p *Plane) process(name string) (*process.Process, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, one := range p.processes {
		if one.Name == name {
			return one, nil
		}
	}
	return nil, fmt.Errorf("there is no %s", name)
}

// AwaitAPIServer returns once the API server says that it is ready, and lists every kind from its
// store: for each it has a connection of its own, which comes back at its own time.
func (p *Plane) AwaitAPIServer(patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for {
		err := p.answers()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the API server doesn't answer after %v: %w", patience, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (p *Plane) answers() error {
	// A connection to one that was killed may be dead without a word.
	ask := func(path string, parameters ...string) error {
		ctx, cancel := context.WithTimeout(p.context, time.Second)
		defer cancel()
		request := p.Client.CoreV1().RESTClient().Get().AbsPath(path)
		for _, parameter := range parameters {
			request.Param(parameter, "1")
		}
		if err := request.Do(ctx).Error(); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	}
	if err := ask("/readyz"); err != nil {
		return err
	}
	kinds, err := p.Client.Discovery().ServerPreferredResources()
	if err != nil {
		return err
	}
	for _, group := range kinds {
		root := "/apis/"
		if group.GroupVersion == "v1" {
			root = "/api/"
		}
		for _, kind := range group.APIResources {
			if !slices.Contains(kind.Verbs, "list") || !slices.Contains(kind.Verbs, "watch") {
				continue
			}
			if err := ask(root+group.GroupVersion+"/"+kind.Name, "limit"); err != nil {
				return err
			}
		}
	}
	return nil
}

// NewLine makes a line to the API server.
func (p *Plane) NewLine() (*Line, error) { return NewLine(strings.TrimPrefix(p.server, "https://")) }

// ConnectThrough has the replica's Muster, from its next start on, reach the API server by this
// line. Its kube-scheduler reaches it as before.
func (r *Replica) ConnectThrough(line *Line) error {
	p := r.Muster.plane
	path := p.kubeconfig(r.Muster.user)
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	changed := strings.ReplaceAll(string(content), p.server, "https://"+line.Address)
	if changed == string(content) {
		return errors.New("the kubeconfig in " + path + " doesn't name the API server")
	}
	return os.WriteFile(path, []byte(changed), 0o600)
}
