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
	if options.Programs, err = builtIn(folder); err != nil {
		return options, err
	}
	if _, err := os.Stat(filepath.Join(options.Programs, "complete")); err != nil {
		return options, errors.New("its programs are missing; tests/cluster/build.sh builds them")
	}
	if options.Peers, err = builtIn(folder, "--peers"); err != nil {
		return options, err
	}
	options.Manifests = filepath.Join(folder, "..", "..", "deploy")
	// Another build of Muster, for example one with a sanitizer.
	options.Muster = os.Getenv("MUSTER_BINARY")
	if options.Muster == "" {
		options.Muster, err = filepath.Abs(filepath.Join(folder, "..", "..", "build", "muster"))
	}
	return options, err
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
