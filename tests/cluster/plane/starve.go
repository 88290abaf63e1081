package plane

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"muster.dev/tests/cluster/process"
)

// So many programs compute on the processor of those that are starved.
const hungry = 2

// Starve leaves some of Muster's threads, by name and niceness, only what nobody else wants of a
// processor on which others compute all the time: by SCHED_IDLE, a thousandth of it; release
// ends that. It takes root.
func (m *Muster) Starve(threads func(name string, niceness int) bool) (release func() error, err error) {
	var others []*process.Process
	var starved []string
	release = func() error {
		for _, one := range others {
			one.Kill()
		}
		var failed []error
		for _, thread := range starved {
			failed = append(failed, command("chrt", "--other", "--pid", "0", thread))
		}
		return errors.Join(failed...)
	}
	folder := fmt.Sprintf("/proc/%d/task", m.current().ID())
	entries, err := os.ReadDir(folder)
	if err != nil {
		return release, err
	}
	for _, entry := range entries {
		name, niceness, err := readThread(filepath.Join(folder, entry.Name(), "stat"))
		if err != nil {
			return release, err
		}
		if threads(name, niceness) {
			starved = append(starved, entry.Name())
		}
	}
	if len(starved) == 0 {
		return release, fmt.Errorf("none of muster's %d threads is meant", len(entries))
	}
	for i := range hungry {
		one, err := process.Start("hungry", m.plane.path(fmt.Sprintf("logs/hungry-%d.log", i)), nil,
			"taskset", "--cpu-list", "0", "sh", "-c", "while :; do :; done")
		if err != nil {
			return release, err
		}
		others = append(others, one)
	}
	for _, thread := range starved {
		if err := errors.Join(command("taskset", "--cpu-list", "--pid", "0", thread),
			command("chrt", "--idle", "--pid", "0", thread)); err != nil {
			return release, err
		}
	}
	return release, nil
}

func command(name string, arguments ...string) error {
	if output, err := exec.Command(name, arguments...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(arguments, " "), err, output)
	}
	return nil
}

// readThread reads a thread's name and niceness.
func readThread(path string) (name string, niceness int, err error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", 0, err
	}
	_, after, _ := strings.Cut(string(content), "(")
	end := strings.LastIndexByte(after, ')')
	if end < 0 {
		return "", 0, fmt.Errorf("%s: %q", path, content)
	}
	// After the name comes field 3; 19 is the niceness.
	fields := strings.Fields(after[end+1:])
	if len(fields) < 17 {
		return "", 0, fmt.Errorf("%s: %q", path, content)
	}
	niceness, err = strconv.Atoi(fields[16])
	return after[:end], niceness, err
}
