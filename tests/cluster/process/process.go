// Package process runs the programs of the test cluster as children of the
// test driver. Each is stopped by its own process id, and none outlives the
// driver, however that ends.
package process

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Process is one running program. Its output goes to one log file.
type Process struct {
	Name    string
	LogPath string

	command *exec.Cmd
	exited  chan struct{}
}

// Start runs a program. Environment entries are added to the driver's own.
func Start(name, logPath string, environment []string, program string, arguments ...string) (*Process, error) {
	return StartOn("", name, logPath, environment, program, arguments...)
}

// StartOn runs a program that believes to be on a host of the given name, as in
// a pod. Without a name it is on this one.
func StartOn(host, name, logPath string, environment []string, program string, arguments ...string) (*Process, error) {
	attributes := &syscall.SysProcAttr{}
	if host != "" {
		// The shell becomes the program, so that the process id is the program's.
		arguments = append([]string{"-c", `hostname "$0" && exec "$@"`, host, program}, arguments...)
		program = "/bin/sh"
		useOwnHostName(attributes)
	}
	return start(attributes, name, logPath, environment, program, arguments)
}

// StartMounted runs a program that sees a folder at another path as well, as a
// volume of a pod. The path stays empty for everybody else.
func StartMounted(folder, path, name, logPath string, environment []string, program string, arguments ...string) (*Process, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, err
	}
	attributes := &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	useOwnUsers(attributes)
	arguments = append([]string{"-c", `mount --bind "$0" "$1" && shift && exec "$@"`, folder, path, program}, arguments...)
	return start(attributes, name, logPath, environment, "/bin/sh", arguments)
}

// StartInPod is both: a host name, and a folder at another path.
func StartInPod(host, folder, path, name, logPath string, environment []string, program string, arguments ...string) (*Process, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, err
	}
	attributes := &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	useOwnHostName(attributes)
	arguments = append([]string{"-c", `hostname "$0" && mount --bind "$1" "$2" && shift 2 && exec "$@"`, host, folder, path, program}, arguments...)
	return start(attributes, name, logPath, environment, "/bin/sh", arguments)
}

// StartContained runs a program as the first process of a container: with process
// ids, a network, a host name and mounts of its own. It takes root.
func StartContained(name, logPath string, environment []string, program string, arguments ...string) (*Process, error) {
	attributes := &syscall.SysProcAttr{
		Cloneflags:   syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		Unshareflags: syscall.CLONE_NEWNS,
	}
	return start(attributes, name, logPath, environment, program, arguments)
}

func start(attributes *syscall.SysProcAttr, name, logPath string, environment []string, program string, arguments []string) (*Process, error) {
	if err := os.MkdirAll(filepath.Dir(logPath), 0o755); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()

	command := exec.Command(program, arguments...)
	command.Env = append(os.Environ(), environment...)
	command.Stdout, command.Stderr = log, log
	// A group of its own keeps a terminal's Ctrl-C from stopping the programs
	// in random order; the death signal covers a driver that was killed.
	attributes.Setpgid, attributes.Pdeathsig = true, syscall.SIGKILL
	command.SysProcAttr = attributes
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &Process{Name: name, LogPath: logPath, command: command, exited: make(chan struct{})}
	go func() {
		// How it ended is read from ProcessState.
		_ = command.Wait()
		close(p.exited)
	}()
	return p, nil
}

// useOwnHostName gives a child a host name that it may change.
func useOwnHostName(attributes *syscall.SysProcAttr) {
	attributes.Cloneflags = syscall.CLONE_NEWUTS
	useOwnUsers(attributes)
}

// useOwnUsers lets who isn't root do what only root may, in a user namespace where
// the child counts as root.
func useOwnUsers(attributes *syscall.SysProcAttr) {
	if os.Geteuid() == 0 {
		return
	}
	attributes.Cloneflags |= syscall.CLONE_NEWUSER
	attributes.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	attributes.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
}

// Exited is closed once the program has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Running tells whether the program has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Killed tells whether the program has ended by SIGKILL.
func (p *Process) Killed() bool {
	if p.Running() {
		return false
	}
	status, ok := p.command.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// ExitCode is the program's, or 128 and the signal that ended it; only once it has
// ended.
func (p *Process) ExitCode() int {
	<-p.exited
	status, _ := p.command.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// ID is the process id.
func (p *Process) ID() int { return p.command.Process.Pid }

// CPU is the time that the program has computed so far, 0 once it has ended.
func (p *Process) CPU() time.Duration {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.command.Process.Pid))
	if err != nil {
		return 0
	}
	// After the name in parentheses comes field 3; 14 and 15 are user and system time.
	fields := bytes.Fields(content[bytes.LastIndexByte(content, ')')+1:])
	if len(fields) < 13 {
		return 0
	}
	var ticks int64
	for _, field := range fields[11:13] {
		count, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return 0
		}
		ticks += count
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond
}

// PeakMemory is the most that the program has had resident so far, in bytes, 0 once it has ended.
func (p *Process) PeakMemory() int64 {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.command.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(content, []byte("VmHWM:"))
	line, _, _ := bytes.Cut(rest, []byte(" kB"))
	kibibytes, err := strconv.ParseInt(string(bytes.TrimSpace(line)), 10, 64)
	if err != nil {
		return 0
	}
	return kibibytes << 10
}

// The kernel's USER_HZ, which is the same wherever Go runs on Linux.
const ticksPerSecond = 100

// Ending says how the program ended, for messages.
func (p *Process) Ending() string {
	if p.Running() {
		return "running"
	}
	return p.command.ProcessState.String()
}

// Kill ends the program as a crash of the machine would.
func (p *Process) Kill() {
	_ = p.command.Process.Kill()
	<-p.exited
}

// Signal sends the program a signal.
func (p *Process) Signal(what syscall.Signal) error { return p.command.Process.Signal(what) }

// Stop asks the program to end and kills it when it takes longer than grace.
// It reports whether the program ended by itself.
func (p *Process) Stop(grace time.Duration) bool {
	_ = p.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
		return true
	case <-time.After(grace):
		p.Kill()
		return false
	}
}

// Tail returns the last lines of the program's log.
func (p *Process) Tail(lines int) string {
	content, err := os.ReadFile(p.LogPath)
	if err != nil {
		return err.Error()
	}
	all := bytes.Split(bytes.TrimRight(content, "\n"), []byte("\n"))
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return string(bytes.Join(all, []byte("\n")))
}
