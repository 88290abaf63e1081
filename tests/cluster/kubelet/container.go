package kubelet

import (
	_ "embed"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"muster.dev/tests/cluster/process"
)

// container is the one of a pod, as a process.
type container struct {
	*process.Process
	address         netip.Addr
	terminationFile string
}

// setUp makes the namespaces of a new process into a container and becomes its command.
//
//go:embed set_up.sh
var setUp string

// start starts a pod's container, which sees this machine's files, with its volumes
// in their places. What else a pod can ask for is an error.
func (k *Kubelet) start(pod *corev1.Pod) (*container, error) {
	if len(pod.Spec.Containers) != 1 {
		return nil, fmt.Errorf("pod %s has %d containers, and only one can be run here", pod.Name, len(pod.Spec.Containers))
	}
	spec := &pod.Spec.Containers[0]
	if len(spec.Command) == 0 {
		return nil, fmt.Errorf("pod %s has no command, and there is no image here to say one", pod.Name)
	}
	if pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
		return nil, fmt.Errorf("pod %s has restartPolicy %s, and nothing is restarted here", pod.Name, pod.Spec.RestartPolicy)
	}
	if spec.TerminationMessagePath != corev1.TerminationMessagePathDefault {
		return nil, fmt.Errorf("pod %s has terminationMessagePath %s, and only %s can be had here",
			pod.Name, spec.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	}
	environment := []string{"PATH=" + k.options.Path, "HOSTNAME=" + pod.Name}
	for _, variable := range spec.Env {
		if variable.ValueFrom != nil {
			return nil, fmt.Errorf("pod %s has the variable %s from elsewhere, and only values can be had here", pod.Name, variable.Name)
		}
		environment = append(environment, variable.Name+"="+variable.Value)
	}
	volumes, err := mounts(pod, spec)
	if err != nil {
		return nil, err
	}

	folder := filepath.Join(k.options.Folder, fmt.Sprintf("%s-%s", pod.Name, pod.UID))
	if err := os.MkdirAll(filepath.Join(folder, "dev"), 0o755); err != nil {
		return nil, err
	}
	started := &container{address: k.network.address(), terminationFile: filepath.Join(folder, "termination-log")}
	if err := errors.Join(
		os.WriteFile(started.terminationFile, nil, 0o666),
		// Names that aren't in the file of hosts are known to nobody, at once.
		os.WriteFile(filepath.Join(folder, "resolv.conf"), []byte("nameserver 127.0.0.1\n"), 0o644),
		k.network.names.add(pod, started.address, filepath.Join(folder, "hosts")),
	); err != nil {
		return nil, err
	}
	arguments := []string{"-c", setUp, pod.Name}
	arguments = append(arguments, environment...)
	arguments = append(arguments, spec.Command...)
	arguments = append(arguments, spec.Args...)
	started.Process, err = process.StartContained(pod.Name, k.LogPath(pod), []string{
		"POD_FOLDER=" + folder,
		"POD_LINK=" + link(started.address),
		fmt.Sprintf("POD_ADDRESS=%s/%d", started.address, prefixBits),
		"POD_NETWORK=" + k.network.namespace(),
		"POD_BRIDGE=" + bridge,
		"POD_MOUNTS=" + strings.Join(volumes, "\n"),
	}, "/bin/sh", arguments...)
	return started, err
}

// mounts are the container's volumes: of each the folder, and below it the path.
func mounts(pod *corev1.Pod, spec *corev1.Container) ([]string, error) {
	folders := map[string]string{}
	for _, volume := range pod.Spec.Volumes {
		if volume.HostPath == nil {
			return nil, fmt.Errorf("pod %s has the volume %s, and only a hostPath can be had here", pod.Name, volume.Name)
		}
		folders[volume.Name] = volume.HostPath.Path
	}
	var lines []string
	for _, mount := range spec.VolumeMounts {
		lines = append(lines, folders[mount.Name], mount.MountPath)
	}
	return lines, nil
}
