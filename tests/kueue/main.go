// Program oracle answers what the packages of Kueue itself decide about queues
// and workloads that it reads as JSON. README.md has the format.
//
//	oracle              one case per line on stdin, one answer per line on stdout
//	oracle bench FILE   times the admission of all that is pending in one case
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) == 0:
		return answer(os.Stdin, os.Stdout)
	case len(arguments) == 2 && arguments[0] == "bench":
		content, err := os.ReadFile(arguments[1])
		if err != nil {
			return err
		}
		c, err := parseCase(content)
		if err != nil {
			return fmt.Errorf("%s: %w", arguments[1], err)
		}
		outcome, err := bench(c)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(outcome)
	}
	return fmt.Errorf("usage: oracle [bench FILE]")
}

// answer answers each line as it comes, so that a caller can wait for it.
func answer(in io.Reader, out io.Writer) error {
	lines := bufio.NewReaderSize(in, 1<<20)
	encoder := json.NewEncoder(out)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 1 {
			c, problem := parseCase(line)
			reply := Answer{ID: c.ID, Results: []Result{}}
			if problem != nil {
				reply.Error = problem.Error()
			} else {
				reply = judge(c)
			}
			if err := encoder.Encode(reply); err != nil {
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
