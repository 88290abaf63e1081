// Program oracle answers what Kueue itself decides about queues and workloads
// that it reads as JSON. README.md has the formats.
//
//	oracle                   one case per line on stdin, one answer per line on stdout
//	oracle histories         one history per line, one course per line
//	oracle bench FILE WAVES ENDS   times the admission of what is pending in one case
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	// Kueue's packages log by these where they are given nothing else.
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) == 0:
		return converse(os.Stdin, os.Stdout, answerCase)
	case len(arguments) == 1 && arguments[0] == "histories":
		return converse(os.Stdin, os.Stdout, answerHistory)
	case len(arguments) == 4 && arguments[0] == "bench":
		content, err := os.ReadFile(arguments[1])
		if err != nil {
			return err
		}
		var waves []int
		if err := json.Unmarshal([]byte("["+arguments[2]+"]"), &waves); err != nil {
			return fmt.Errorf("waves %s: %w", arguments[2], err)
		}
		ends, err := strconv.Atoi(arguments[3])
		if err != nil {
			return err
		}
		c, err := parseCase(content)
		if err != nil {
			return fmt.Errorf("%s: %w", arguments[1], err)
		}
		outcome, err := bench(c, waves, ends)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(outcome)
	}
	return fmt.Errorf("usage: oracle [histories | bench FILE WAVES ENDS]")
}

func answerCase(line []byte) any {
	c, problem := parseCase(line)
	if problem != nil {
		return Answer{ID: c.ID, Results: []Result{}, Error: problem.Error()}
	}
	return judge(c)
}

func answerHistory(line []byte) any {
	h, problem := parseHistory(line)
	if problem != nil {
		return Course{Error: problem.Error()}
	}
	return follow(h)
}

// converse answers each line as it comes, so that a caller can wait for it.
func converse(in io.Reader, out io.Writer, answer func(line []byte) any) error {
	lines := bufio.NewReaderSize(in, 1<<20)
	encoder := json.NewEncoder(out)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 1 {
			if err := encoder.Encode(answer(line)); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
