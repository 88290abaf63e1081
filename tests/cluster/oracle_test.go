package cluster

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Who is to be displaced is asked of Kueue's own packages: tests/kueue, whose
// README has the format.

// oracleCase is one question: a state and the workload that comes into it.
type oracleCase struct {
	ID            uint64           `json:"id"`
	Flavors       []map[string]any `json:"flavors"`
	ClusterQueues []map[string]any `json:"clusterQueues"`
	Admitted      []oracleWorkload `json:"admitted"`
	Pending       []oracleWorkload `json:"pending"`
}

type oracleWorkload struct {
	UID          types.UID      `json:"uid"`
	Name         string         `json:"name"`
	ClusterQueue string         `json:"clusterQueue"`
	Priority     int32          `json:"priority"`
	CreatedAt    time.Time      `json:"createdAt"`
	ReservedAt   *time.Time     `json:"reservedAt,omitempty"`
	PodSets      []oraclePodSet `json:"podSets"`
}

type oraclePodSet struct {
	Name         string                        `json:"name"`
	Count        int64                         `json:"count"`
	Requests     map[corev1.ResourceName]int64 `json:"requests"` // of one pod
	NodeSelector map[string]string             `json:"nodeSelector,omitempty"`
	Flavors      map[string]string             `json:"flavors,omitempty"`
}

// verdict is what Kueue decides about the workload.
type verdict struct {
	Mode    string `json:"mode"` // Fit, Preempt or NoFit
	PodSets []struct {
		Flavors map[string]string `json:"flavors"`
	} `json:"podSets"`
	Victims []struct {
		UID    types.UID `json:"uid"`
		Reason string    `json:"reason"`
	} `json:"victims"`
	// Kueue is a function of its input but for fair sharing among cohorts.
	Alternatives []json.RawMessage `json:"alternatives"`
}

// oracle is a conversation with the program, one question at a time.
type oracle struct {
	mutex sync.Mutex
	in    io.WriteCloser
	out   *bufio.Reader
}

// startOracle starts the program for as long as the test runs.
func startOracle(t *testing.T) *oracle {
	t.Helper()
	where, err := exec.Command("../kueue/build.sh", "--where").Output()
	if err != nil {
		t.Fatalf("tests/kueue/build.sh --where: %v", err)
	}
	program := exec.Command(filepath.Join(strings.TrimSpace(string(where)), "oracle"))
	program.Stderr = os.Stderr
	in, err := program.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatalf("%v; tests/kueue/build.sh builds it", err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := program.Wait(); err != nil {
			t.Errorf("the oracle ended with %v", err)
		}
	})
	return &oracle{in: in, out: bufio.NewReader(out)}
}

// ask returns the verdict about the one pending workload.
func (o *oracle) ask(question oracleCase) (verdict, error) {
	line, err := json.Marshal(question)
	if err != nil {
		return verdict{}, err
	}
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if _, err := o.in.Write(append(line, '\n')); err != nil {
		return verdict{}, fmt.Errorf("asking the oracle: %w", err)
	}
	text, err := o.out.ReadBytes('\n')
	if err != nil {
		return verdict{}, fmt.Errorf("the oracle doesn't answer: %w", err)
	}
	var answer struct {
		ID      uint64    `json:"id"`
		Results []verdict `json:"results"`
		Error   string    `json:"error"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return verdict{}, fmt.Errorf("the oracle's answer: %w: %s", err, text)
	}
	switch {
	case answer.Error != "":
		return verdict{}, fmt.Errorf("the oracle can't judge %s: %s", line, answer.Error)
	case answer.ID != question.ID || len(answer.Results) != 1:
		return verdict{}, fmt.Errorf("case %d was answered by %s", question.ID, text)
	case len(answer.Results[0].Alternatives) > 0:
		return verdict{}, errors.New("the set-up leaves Kueue's answer to chance")
	}
	return answer.Results[0], nil
}
