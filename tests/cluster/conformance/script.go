// Package conformance sends the requests of tests/conformance to an API server
// and compares what two servers answer.
package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"sigs.k8s.io/yaml"
)

// Script is one file of requests, sent one after the other. Each script has a
// namespace of its own, in which nothing else happens: $NS.
type Script struct {
	Name  string `json:"-"` // the file's, without its ending
	About string `json:"about"`
	Steps []Step `json:"steps"`
}

// Step is one request and what is known about its answers.
type Step struct {
	Name string `json:"name"`
	// "POST /api/v1/namespaces/$NS/pods?dryRun=All"; $WORD stands for what an
	// earlier step kept.
	Request string `json:"request"`
	Type    string `json:"type"`   // Content-Type; application/json if there is a body
	Accept  string `json:"accept"` // application/json if it isn't said
	Body    any    `json:"body"`   // sent as JSON
	Text    string `json:"text"`   // sent as it is
	// What of the answer's body later steps use: WORD: metadata.resourceVersion.
	Keep map[string]string `json:"keep"`
	// managedFields, which are left out otherwise, are compared too.
	Managed bool `json:"managed"`
	// Of a watch: the request ends after this many events, or with the stream.
	Events int `json:"events"`
	// The request is repeated until it is answered with this code: for what a
	// server does a little later.
	Until int `json:"until"`
	// What the embedded server does otherwise on purpose, or the real one more
	// than it: exactly this, no less and no more.
	Differs []Difference `json:"differs"`
}

// Difference is one place of the answer where the two servers differ.
type Difference struct {
	At       string `json:"at"` // "code", "body.items.0.spec"; a subtree
	Real     any    `json:"real"`
	Embedded any    `json:"embedded"`
	Because  string `json:"because"`
}

// Load reads the scripts of a folder.
func Load(folder string) ([]*Script, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no scripts in %s", folder)
	}
	sort.Strings(files)
	var scripts []*Script
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		script := &Script{Name: strings.TrimSuffix(filepath.Base(file), ".yaml")}
		if err := yaml.UnmarshalStrict(content, script); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, step := range script.Steps {
			for _, difference := range step.Differs {
				if difference.Because == "" || difference.At == "" {
					return nil, fmt.Errorf("%s: %s: a difference needs at and because", file, step.Name)
				}
			}
		}
		scripts = append(scripts, script)
	}
	return scripts, nil
}
