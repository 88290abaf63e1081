package conformance

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muster.dev/tests/cluster/plane"
)

var realServer, embeddedServer *Server

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	stopReal, err := startReal()
	if err == nil {
		defer stopReal()
		var stopEmbedded func()
		stopEmbedded, err = startEmbedded()
		if err == nil {
			defer stopEmbedded()
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "--- FAIL: a server didn't start:", err)
		return 1
	}
	return m.Run()
}

func startReal() (func(), error) {
	programs, err := plane.Programs("..")
	if err != nil {
		return nil, err
	}
	server, err := plane.StartServer(programs)
	if err != nil {
		return nil, err
	}
	stop := func() {
		server.Stop()
		os.RemoveAll(server.Folder)
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(server.Authority())
	realServer = &Server{
		URL:   server.URL(),
		Token: server.Token("admin"),
		Client: &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: authorities},
		}},
	}
	return stop, nil
}

func startEmbedded() (func(), error) {
	program := os.Getenv("MUSTER_LAB_BINARY")
	if program == "" {
		program = filepath.Join("..", "..", "..", "build", "muster-lab")
	}
	command := exec.Command(program, "apiserver")
	command.Stderr = os.Stderr
	// It must not outlive a test that is killed.
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	url, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("%s apiserver said no URL: %w", program, err)
	}
	embeddedServer = &Server{URL: strings.TrimSpace(url), Client: &http.Client{}}
	return func() {
		command.Process.Signal(syscall.SIGTERM)
		command.Wait()
	}, nil
}

// Every request of every script gets the same answer from both servers, but for
// what the script lists.
func TestServersAnswerAlike(t *testing.T) {
	scripts, err := Load(filepath.Join("..", "..", "conformance"))
	if err != nil {
		t.Fatal(err)
	}
	requests := 0
	for _, script := range scripts {
		requests += len(script.Steps)
		t.Run(script.Name, func(t *testing.T) {
			real, err := realServer.Run(script)
			if err != nil {
				t.Fatal("the real server: ", err)
			}
			embedded, err := embeddedServer.Run(script)
			if err != nil {
				t.Fatal("the embedded server: ", err)
			}
			for i := range script.Steps {
				step := &script.Steps[i]
				if wrong := Compare(step, real[i], embedded[i]); wrong != "" {
					t.Errorf("%s (%s)\n%s", step.Name, step.Request, wrong)
				}
			}
		})
	}
	t.Logf("%d requests", requests)
}
