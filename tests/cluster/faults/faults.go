// Package faults is the order that a case gives to the Karpenter under it: what
// shall go wrong with the nodes of one KWOKNodeClass. The case writes the order
// as an annotation of its own KWOKNodeClass; the Karpenter of ../karpenter reads
// it there and answers in annotations beside it. One class knows nothing of
// another, so cases with faults run in parallel.
package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

const (
	// OrderAnnotation holds the faults as a JSON list.
	OrderAnnotation = "tests.muster.dev/faults"
	// AnswerAnnotation is Karpenter's answer: Accepted, or what is wrong with the
	// order or went wrong while it was carried out.
	AnswerAnnotation = "tests.muster.dev/faults-answer"
	// Accepted is the answer to an order that is understood.
	Accepted = "accepted"
)

// HappenedAnnotation is set once the fault at this place of the order befell a
// launch: a case whose fault never happened has shown nothing.
func HappenedAnnotation(place int) string {
	return fmt.Sprintf("tests.muster.dev/fault-%d-happened", place)
}

// Kind is what goes wrong.
type Kind string

const (
	// InsufficientCapacity: the provider has no instance to give. With Offering it
	// is only out of these, and gives the next dearer one. It lasts LastsSeconds
	// from the first launch that it befalls. What was asked for in vain is shown
	// as unavailable for UnavailableSeconds, in which Karpenter doesn't ask for it.
	InsufficientCapacity Kind = "InsufficientCapacity"
	// LaunchDelay: the provider answers after DelaySeconds. Until then Karpenter
	// provisions and disrupts nothing at all, in no case.
	LaunchDelay Kind = "LaunchDelay"
	// RegistrationDelay: the node comes DelaySeconds later than the class says.
	RegistrationDelay Kind = "RegistrationDelay"
	// NeverRegisters: the instance runs and its node never comes.
	NeverRegisters Kind = "NeverRegisters"
	// Devices: the node's allocatable has only these Resources, and all of them
	// LastsSeconds after its registration.
	Devices Kind = "Devices"
	// Taint: the node comes with this Taint, and it goes LastsSeconds after its
	// registration. It is a startup taint where the NodePool says so.
	Taint Kind = "Taint"
	// Interruption: DelaySeconds after the node's registration the provider takes
	// the instance back, as on a spot interruption: the NodeClaim is deleted.
	Interruption Kind = "Interruption"
	// Drift: DelaySeconds after the node's registration the provider says that the
	// instance isn't any more what its class describes.
	Drift Kind = "Drift"
)

// Fault is one thing that goes wrong with some launches of a KWOKNodeClass.
type Fault struct {
	Kind Kind `json:"kind"`
	// Launches are those that it befalls, counted from 1 in the order in which
	// Karpenter asks for them. A relaunch is a launch of its own. Without any, and
	// without FromLaunch, it befalls all.
	Launches []int `json:"launches,omitempty"`
	// FromLaunch is the first that it befalls; all later ones follow.
	FromLaunch int `json:"fromLaunch,omitempty"`

	DelaySeconds int64 `json:"delaySeconds,omitempty"`
	// LastsSeconds is how long it lasts; 0 is for ever.
	LastsSeconds       int64 `json:"lastsSeconds,omitempty"`
	UnavailableSeconds int64 `json:"unavailableSeconds,omitempty"`
	// Offering is the value of one or more of OfferingLabels.
	Offering  map[string]string `json:"offering,omitempty"`
	Resources map[string]int64  `json:"resources,omitempty"`
	// Taint is a key; the effect is NoSchedule.
	Taint string `json:"taint,omitempty"`
}

// OfferingLabels are the labels that tell one offering from another.
var OfferingLabels = []string{
	"node.kubernetes.io/instance-type",
	"topology.kubernetes.io/zone",
	"karpenter.sh/capacity-type",
}

// Befalls tells whether the fault is for this launch.
func (f Fault) Befalls(launch int) bool {
	if f.FromLaunch > 0 {
		return launch >= f.FromLaunch
	}
	return len(f.Launches) == 0 || slices.Contains(f.Launches, launch)
}

// Parse reads an order and refuses what nobody would carry out.
func Parse(order string) ([]Fault, error) {
	decoder := json.NewDecoder(bytes.NewReader([]byte(order)))
	decoder.DisallowUnknownFields()
	var list []Fault
	if err := decoder.Decode(&list); err != nil {
		return nil, fmt.Errorf("not a list of faults: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the list of faults")
	}
	for place, fault := range list {
		if err := fault.check(); err != nil {
			return nil, fmt.Errorf("fault %d, %s: %w", place, fault.Kind, err)
		}
	}
	return list, nil
}

// fields are those that a fault of some kind may have, beside its launches, and
// whether it must.
var fields = map[Kind]map[string]bool{
	InsufficientCapacity: {"lastsSeconds": false, "unavailableSeconds": false, "offering": false},
	LaunchDelay:          {"delaySeconds": true},
	RegistrationDelay:    {"delaySeconds": true},
	NeverRegisters:       {},
	Devices:              {"resources": true, "lastsSeconds": false},
	Taint:                {"taint": true, "lastsSeconds": false},
	Interruption:         {"delaySeconds": false},
	Drift:                {"delaySeconds": false},
}

func (f Fault) check() error {
	allowed, known := fields[f.Kind]
	if !known {
		return errors.New("no such kind")
	}
	given := map[string]bool{
		"delaySeconds":       f.DelaySeconds != 0,
		"lastsSeconds":       f.LastsSeconds != 0,
		"unavailableSeconds": f.UnavailableSeconds != 0,
		"offering":           len(f.Offering) > 0,
		"resources":          len(f.Resources) > 0,
		"taint":              f.Taint != "",
	}
	for field, is := range given {
		must, may := allowed[field]
		if is && !may {
			return fmt.Errorf("%s means nothing here", field)
		}
		if must && !is {
			return fmt.Errorf("%s is missing", field)
		}
	}
	return errors.Join(f.checkLaunches(), f.checkValues())
}

func (f Fault) checkLaunches() error {
	if f.FromLaunch < 0 || slices.ContainsFunc(f.Launches, func(launch int) bool { return launch < 1 }) {
		return fmt.Errorf("launches count from 1, not %v from %d", f.Launches, f.FromLaunch)
	}
	if f.FromLaunch > 0 && len(f.Launches) > 0 {
		return errors.New("launches and fromLaunch exclude each other")
	}
	return nil
}

func (f Fault) checkValues() error {
	if f.DelaySeconds < 0 || f.LastsSeconds < 0 || f.UnavailableSeconds < 0 {
		return fmt.Errorf("a time below 0: delaySeconds %d, lastsSeconds %d, unavailableSeconds %d",
			f.DelaySeconds, f.LastsSeconds, f.UnavailableSeconds)
	}
	for label := range f.Offering {
		if !slices.Contains(OfferingLabels, label) {
			return fmt.Errorf("offering: %s is none of %s", label, strings.Join(OfferingLabels, ", "))
		}
	}
	for resource, count := range f.Resources {
		if count < 0 {
			return fmt.Errorf("resources: %s is %d, below 0", resource, count)
		}
	}
	return nil
}
