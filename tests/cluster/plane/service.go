package plane

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"sync"
)

// gateService stands in kube-proxy's place for the Services that the API server
// calls: that of Muster's webhook, and those of other controllers' webhooks. The
// API server resolves the Service to its cluster IP, and its egress to cluster
// IPs comes here (HTTP CONNECT, as a konnectivity proxy's). Each connection goes
// to any of the endpoints that accepts it, as with a list of endpoints that is up
// to date.
type gateService struct {
	listener  net.Listener
	endpoints func() []string // of Muster's webhook

	mutex  sync.Mutex
	routes map[string]string // the endpoint of each other Service, by its cluster IP
}

// egressConfig makes the API server send what is for the cluster's network
// through a socket, and nothing else.
const egressConfig = `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport:
      uds:
        udsName: %s
`

// serveGate begins to listen and writes the API server's configuration.
func serveGate(socket, config string, endpoints func() []string) (*gateService, error) {
	if err := os.WriteFile(config, fmt.Appendf(nil, egressConfig, socket), 0o600); err != nil {
		return nil, err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	g := &gateService{listener: listener, endpoints: endpoints, routes: map[string]string{}}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go g.forward(connection)
		}
	}()
	return g, nil
}

func (g *gateService) close() { g.listener.Close() }

// route leads a Service to an endpoint, or with an empty one nowhere again.
func (g *gateService) route(clusterIP, endpoint string) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if endpoint == "" {
		delete(g.routes, clusterIP)
		return
	}
	g.routes[clusterIP] = endpoint
}

// behind are the endpoints of the Service that a caller named.
func (g *gateService) behind(target string) []string {
	clusterIP, _, err := net.SplitHostPort(target)
	if err != nil {
		return nil
	}
	g.mutex.Lock()
	endpoint, other := g.routes[clusterIP]
	g.mutex.Unlock()
	if other {
		return []string{endpoint}
	}
	return g.endpoints()
}

func (g *gateService) forward(caller net.Conn) {
	defer caller.Close()
	request, err := http.ReadRequest(bufio.NewReader(caller))
	if err != nil || request.Method != http.MethodConnect {
		return
	}
	backend := dialAny(g.behind(request.Host))
	if backend == nil {
		fmt.Fprint(caller, "HTTP/1.1 502 No endpoint answers\r\n\r\n")
		return
	}
	defer backend.Close()
	fmt.Fprint(caller, "HTTP/1.1 200 OK\r\n\r\n")
	// TLS: the caller speaks first, and only after the answer above, so that
	// nothing of it was read with the request.
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{caller, backend}, {backend, caller}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			// One side has ended: the other shall know at once.
			caller.Close()
			backend.Close()
		})
	}
	both.Wait()
}

func dialAny(endpoints []string) net.Conn {
	for _, i := range rand.Perm(len(endpoints)) {
		if connection, err := net.Dial("tcp", endpoints[i]); err == nil {
			return connection
		}
	}
	return nil
}
