package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"muster.dev/tests/cluster/plane"
)

// contestant is one of the two programs that admit the same load.
type contestant interface {
	name() string
	// The scheduler that the jobs' pods name.
	scheduler() string
	// Installs the definitions that it needs and starts it.
	start(ctx context.Context) error
	// Tells whether it asked for it.
	asked(request plane.Request) bool
	// Stops it and takes away what start made.
	stop() error
}

// kueue is Kueue's full manager as its manifests configure it, webhooks and all, but
// for three settings: it manages Jobs alone, its client may send 1,000 requests per
// second, and without the visibility API, which nobody asks here.
type kueue struct {
	plane *plane.Plane
	peer  *plane.Peer
}

func (k *kueue) name() string { return "kueue" }

func (k *kueue) scheduler() string { return "default-scheduler" }

func (k *kueue) start(context.Context) (err error) {
	k.peer, err = k.plane.StartKueue(plane.Kueue{Frameworks: []string{"batch/job"}, Measured: true})
	return err
}

func (k *kueue) asked(request plane.Request) bool { return request.User == plane.KueueUser }

func (k *kueue) stop() error {
	if k.peer == nil {
		return nil
	}
	return k.peer.Stop()
}

// muster is Muster as deploy/ configures it, beside its kube-scheduler.
type muster struct {
	plane       *plane.Plane
	definitions string // of the queues
}

func newMuster(p *plane.Plane, options plane.Options) *muster {
	return &muster{plane: p, definitions: filepath.Join(options.Manifests, "crds", "kueue")}
}

func (m *muster) name() string { return "muster" }

func (m *muster) scheduler() string { return plane.SchedulerName }

func (m *muster) start(ctx context.Context) error {
	if output, err := m.plane.Kubectl("apply", "--server-side", "--kustomize="+m.definitions); err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	crds := []string{"wait", "--for=condition=Established", "--timeout=60s", "crd"}
	for _, kind := range []string{"resourceflavors", "clusterqueues", "localqueues", "cohorts", "workloadpriorityclasses", "workloads"} {
		crds = append(crds, kind+"."+kueueGroup.Group)
	}
	if output, err := m.plane.Kubectl(crds...); err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	if err := m.plane.StandIn(); err != nil {
		return err
	}
	return m.plane.Muster.Start(plane.Launch{})
}

// The kube-scheduler beside it is the same user.
func (m *muster) asked(request plane.Request) bool {
	return request.User == plane.ServiceAccount && request.Program == "muster"
}

// While it runs the queues' own finalizers go. Its webhooks aren't to be asked in
// the other's race.
func (m *muster) stop() error {
	_, err := m.plane.Kubectl("delete", "--kustomize="+m.definitions, "--ignore-not-found", "--timeout=60s")
	err = errors.Join(err, m.plane.StandAside())
	_, failed := m.plane.Kubectl("delete", "mutatingwebhookconfiguration/muster-admission",
		"validatingwebhookconfiguration/muster-warnings")
	return errors.Join(err, failed)
}
