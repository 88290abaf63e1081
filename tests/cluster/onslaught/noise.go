package onslaught

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
)

type request struct {
	method, target string
	bytes          []byte
}

// Of each part of a request, what is right and what is odd.
type part struct{ right, odd []string }

var (
	methods  = part{[]string{"GET"}, []string{"POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "get", "G\x00T", ""}}
	paths    = part{[]string{"/v1/gangs", "/v1/gangs/default/none", "/v1/nodes", "/v1/queues", "/v1/queues/none", "/v1/queues/default/none", "/v1/flavors", "/metrics", "/healthz", "/readyz", "/openapi.json", "/"}, nil}
	segments = []string{"v1", "gangs", "queues", "default", "..", "", "%2e", "%00", "%zz", "a%2Fb", "{name}", "é", "\x01", strings.Repeat("long", 400), strings.Repeat("longer", 3000)}
	queries  = part{[]string{"", "", "", "?watch=false"}, []string{"?namespace=default", "?watch=maybe", "?namespace=", "?namespace=%00", "?limit=1", "?watch", "?&&=&", "?watch=false&watch=false", "?%zz=1", "?x=" + strings.Repeat("y", 2000)}}
	versions = part{[]string{"HTTP/1.1"}, []string{"HTTP/1.0", "HTTP/2.0", "HTTP/9", "", "http/1.1"}}
	headers  = part{[]string{"Host: x", "Accept: */*", "Content-Length: 0", "Connection: close", "Range: bytes=0-1", "If-None-Match: *", "X: " + strings.Repeat("z", 300)}, []string{"Content-Length: 5", "Content-Length: -1", "Content-Length: 99999999999999999999", "Transfer-Encoding: chunked", "Transfer-Encoding: gzip", "Expect: 100-continue", "Connection: upgrade", "Broken", ": empty", "X: " + strings.Repeat("z", 30000)}}
)

// pick is right seven times of eight.
func (p part) pick(random *rand.Rand) string {
	if len(p.odd) > 0 && random.IntN(8) == 0 {
		return one(random, p.odd)
	}
	return one(random, p.right)
}

// unknown is the target of a request of which nobody can say what it is.
const unknown = "*"

func one(random *rand.Rand, of []string) string { return of[random.IntN(len(of))] }

// makeRequest makes one of which most is right, so that it comes far, or of which bytes were changed.
func makeRequest(random *rand.Rand) request {
	made := request{method: methods.pick(random), target: paths.pick(random)}
	if random.IntN(4) == 0 {
		made.target = ""
		for range 1 + random.IntN(5) {
			made.target += "/" + one(random, segments)
		}
	}
	made.target += queries.pick(random)
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s %s %s\r\n", made.method, made.target, versions.pick(random))
	for range random.IntN(4) {
		fmt.Fprintf(&text, "%s\r\n", headers.pick(random))
	}
	text.WriteString("\r\n")
	if random.IntN(8) == 0 {
		text.WriteString("hello")
	}
	made.bytes = text.Bytes()
	if random.IntN(8) == 0 {
		made.target = unknown
		for range 1 + random.IntN(4) {
			made.bytes[random.IntN(len(made.bytes))] = byte(random.UintN(256))
		}
	}
	return made
}
