package plane

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Throttle lets each of some of Muster's threads, by name and niceness, compute for no longer than
// `quota` in each `period`, 4 s at most, as a container's CPU limit does with all of them: the kernel
// takes the processor away until the next period. It is by SCHED_DEADLINE, which goes before whatever
// else computes on the machine, so that they get neither more nor less. release ends that. It takes root.
func (m *Muster) Throttle(quota, period time.Duration, threads func(name string, niceness int) bool) (release func() error, err error) {
	var throttled []string
	release = func() error {
		var failed []error
		for _, thread := range throttled {
			failed = append(failed, command("chrt", "--other", "--pid", "0", thread))
		}
		return errors.Join(failed...)
	}
	folder := fmt.Sprintf("/proc/%d/task", m.current().ID())
	entries, err := os.ReadDir(folder)
	if err != nil {
		return release, err
	}
	nanoseconds := func(length time.Duration) string { return strconv.FormatInt(length.Nanoseconds(), 10) }
	for _, entry := range entries {
		name, niceness, err := readThread(filepath.Join(folder, entry.Name(), "stat"))
		if err != nil {
			return release, err
		}
		if !threads(name, niceness) {
			continue
		}
		if err := command("chrt", "--deadline", "--sched-runtime", nanoseconds(quota), "--sched-deadline", nanoseconds(period),
			"--sched-period", nanoseconds(period), "--pid", "0", entry.Name()); err != nil {
			return release, err
		}
		throttled = append(throttled, entry.Name())
	}
	if len(throttled) == 0 {
		return release, fmt.Errorf("none of muster's %d threads is meant", len(entries))
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
