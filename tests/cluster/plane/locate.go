package plane

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Locate finds what the control plane is made of; folder is tests/cluster. The
// peers may be missing: only some of those who start a control plane need them.
func Locate(folder string) (Options, error) {
	var options Options
	var err error
	if options.Programs, err = Programs(folder); err != nil {
		return options, err
	}
	if options.Peers, err = builtIn(folder, "--peers"); err != nil {
		return options, err
	}
	options.Manifests = filepath.Join(folder, "..", "..", "deploy")
	if options.Muster, err = binary("MUSTER_BINARY", folder, "muster"); err != nil {
		return options, err
	}
	options.Worker, err = binary("MUSTER_WORKER_BINARY", folder, "muster-worker")
	return options, err
}

// Programs is the folder that build.sh filled, or another one that MUSTER_PROGRAMS names
// (versions.sh); folder is tests/cluster.
func Programs(folder string) (string, error) {
	programs := os.Getenv("MUSTER_PROGRAMS")
	if programs == "" {
		var err error
		if programs, err = builtIn(folder); err != nil {
			return "", err
		}
	}
	if _, err := os.Stat(filepath.Join(programs, "complete")); err != nil {
		return "", errors.New("its programs are missing; tests/cluster/build.sh builds them")
	}
	return programs, nil
}

// binary is a program of the tree's build, or another build of it that a variable
// names, for example one with a sanitizer.
func binary(variable, folder, name string) (string, error) {
	if named := os.Getenv(variable); named != "" {
		return filepath.Abs(named)
	}
	return filepath.Abs(filepath.Join(folder, "..", "..", "build", name))
}

// builtIn asks build.sh where it puts what it builds.
func builtIn(folder string, what ...string) (string, error) {
	command := exec.Command("./build.sh", append(what, "--where")...)
	command.Dir = folder
	where, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("build.sh --where: %w", err)
	}
	return strings.TrimSpace(string(where)), nil
}
