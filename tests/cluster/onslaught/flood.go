// Package onslaught is whoever may reach Muster's ports and means no good, or knows no better: connections
// that say nothing, watches that are read slowly or never, requests that never end, bodies of 100 MiB,
// and requests made of noise.
package onslaught

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Plan is what a flood is made of.
type Plan struct {
	REST, GRPC, Webhook, Health string // addresses

	Idle     int // connections to each: all of them to REST, a quarter of them to each other port
	Watches  int
	Slow     int // requests that never end, to each port
	Bodies   int // of 100 MiB, at a time
	Requests int // that are made of noise, in all
	Lasts    time.Duration
	Seed     uint64
}

// Report is what came of it.
type Report struct {
	Idle, Watches, Slow int            // that were open at the end
	Events              int64          // lines that the watches that are read got
	Answers             map[string]int // by what was asked and the status
	Undocumented        []string       // requests and answers that the description doesn't know
	Unanswered          int            // of the requests made of noise: the connection was closed
}

const bodySize = 100 << 20

// The addresses that the flood comes from, none of them that of the API server or the kubelet.
var sources = []string{"127.0.0.2", "127.0.0.3", "127.0.0.4"}

type flood struct {
	plan     Plan
	document *document
	until    time.Time

	idle, watches, slow atomic.Int64
	events              atomic.Int64

	mutex  sync.Mutex
	report Report
}

// Run floods until the plan's time is over.
func Run(plan Plan) (Report, error) {
	document, err := readDocument("http://" + plan.REST + "/openapi.json")
	if err != nil {
		return Report{}, err
	}
	f := &flood{plan: plan, document: document, until: time.Now().Add(plan.Lasts)}
	f.report.Answers = map[string]int{}
	var all sync.WaitGroup
	many := func(count int, work func(i int)) {
		for i := range count {
			all.Add(1)
			go func() {
				defer all.Done()
				// Not all in the same moment: they stand for many, not for a loop.
				time.Sleep(time.Duration(i) * time.Second / time.Duration(count) * 5)
				for time.Now().Before(f.until) {
					work(i)
					// Whose connection was ended comes again, but isn't a flood of connections by itself.
					time.Sleep(5*time.Second + rand.N(10*time.Second))
				}
			}()
		}
	}
	many(plan.Idle, func(i int) { f.hold(i, plan.REST, nil, &f.idle) })
	for _, address := range []string{plan.GRPC, plan.Webhook, plan.Health} {
		many(plan.Idle/4, func(i int) { f.hold(i, address, nil, &f.idle) })
	}
	many(plan.Watches, f.watch)
	for _, address := range []string{plan.REST, plan.GRPC, plan.Health} {
		many(plan.Slow, func(i int) { f.hold(i, address, []byte("GET /v1/gangs HTTP/1.1\r\nHost: x\r\nX-Slow: "), &f.slow) })
	}
	many(plan.Slow, func(i int) { f.hold(i, plan.Webhook, []byte{0x16, 0x03, 0x01, 0x02, 0x00, 0x01}, &f.slow) })
	many(plan.Bodies, func(i int) { f.body(i) })
	const senders = 8
	for sender := range senders {
		all.Add(1)
		go func() {
			defer all.Done()
			f.noise(rand.New(rand.NewPCG(plan.Seed, uint64(sender))), plan.Requests/senders)
		}()
	}
	time.Sleep(time.Until(f.until) - time.Second)
	f.mutex.Lock()
	f.report.Idle, f.report.Watches, f.report.Slow = int(f.idle.Load()), int(f.watches.Load()), int(f.slow.Load())
	f.mutex.Unlock()
	all.Wait()
	f.report.Events = f.events.Load()
	return f.report, nil
}

func (f *flood) dial(i int, address string) (net.Conn, error) {
	dialer := net.Dialer{
		LocalAddr: &net.TCPAddr{IP: net.ParseIP(sources[i%len(sources)])},
		Timeout:   10 * time.Second,
	}
	return dialer.Dial("tcp", address)
}

// hold keeps a connection open until the other side ends it: silent, or saying a byte each second.
func (f *flood) hold(i int, address string, says []byte, open *atomic.Int64) {
	connection, err := f.dial(i, address)
	if err != nil {
		return
	}
	defer connection.Close()
	open.Add(1)
	defer open.Add(-1)
	_, _ = connection.Write(says)
	var one [1]byte
	for time.Now().Before(f.until) {
		deadline := f.until
		if says != nil {
			deadline = time.Now().Add(time.Second)
			if _, err := connection.Write([]byte("x")); err != nil {
				return
			}
		}
		_ = connection.SetReadDeadline(deadline)
		if _, err := connection.Read(one[:]); err != nil {
			if timeout, is := err.(net.Error); !is || !timeout.Timeout() {
				return
			}
		}
	}
}

// watch follows something; every fourth one never reads what it is told.
func (f *flood) watch(i int) {
	paths := []string{"/v1/gangs?watch=true", "/v1/gangs?namespace=default&watch=true", "/v1/gangs/default/none?watch=true", "/v1/nodes?watch=true"}
	path := paths[i/4%len(paths)]
	connection, err := f.dial(i, f.plan.REST)
	if err != nil {
		return
	}
	defer connection.Close()
	_ = connection.SetDeadline(f.until)
	fmt.Fprintf(connection, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
	reader := bufio.NewReaderSize(connection, 4<<10)
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		return
	}
	f.answered("watch", "GET", path, response.StatusCode)
	if response.StatusCode != http.StatusOK {
		return
	}
	f.watches.Add(1)
	defer f.watches.Add(-1)
	if i%4 == 0 {
		time.Sleep(time.Until(f.until))
		return
	}
	buffer := make([]byte, 4<<10)
	for {
		count, err := response.Body.Read(buffer)
		f.events.Add(int64(bytes.Count(buffer[:count], []byte("\n"))))
		if err != nil {
			return
		}
	}
}

// body sends 100 MiB, with their length or in chunks, to REST or to the webhook.
func (f *flood) body(i int) {
	connection, path, where := net.Conn(nil), "/v1/gangs", "body to REST"
	var err error
	if i%2 == 0 {
		connection, err = f.dial(i, f.plan.REST)
	} else {
		path, where = "/mutate-pods", "body to the webhook"
		if connection, err = f.dial(i, f.plan.Webhook); err == nil {
			connection = tls.Client(connection, &tls.Config{InsecureSkipVerify: true})
		}
	}
	if err != nil {
		return
	}
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(30 * time.Second))
	status := make(chan int, 1)
	go func() {
		response, err := http.ReadResponse(bufio.NewReader(connection), nil)
		if err != nil {
			status <- 0
			return
		}
		_, _ = io.Copy(io.Discard, response.Body)
		status <- response.StatusCode
	}()
	piece := bytes.Repeat([]byte("x"), 1<<20)
	chunked := i%4 < 2
	if chunked {
		fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", path)
	} else {
		fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", path, bodySize)
	}
	for sent := 0; sent < bodySize; sent += len(piece) {
		if chunked {
			fmt.Fprintf(connection, "%x\r\n", len(piece))
		}
		if _, err := connection.Write(piece); err != nil {
			break
		}
		if chunked {
			_, _ = connection.Write([]byte("\r\n"))
		}
	}
	if code := <-status; code != 0 {
		f.answered(where, "POST", path, code)
	}
}

// noise sends requests of which little is right, and looks at what they are answered.
func (f *flood) noise(random *rand.Rand, count int) {
	for i := 0; i < count && time.Now().Before(f.until); i++ {
		request := makeRequest(random)
		connection, err := f.dial(i, f.plan.REST)
		if err != nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		// As a client does that has said all.
		_ = connection.SetDeadline(time.Now().Add(15 * time.Second))
		_, _ = connection.Write(request.bytes)
		_ = connection.(*net.TCPConn).CloseWrite()
		reader := bufio.NewReader(connection)
		response, err := http.ReadResponse(reader, nil)
		if err == nil && response.StatusCode == http.StatusContinue {
			response, err = http.ReadResponse(reader, nil)
		}
		if err != nil {
			f.mutex.Lock()
			f.report.Unanswered++
			f.mutex.Unlock()
		} else {
			f.answered("noise", request.method, request.target, response.StatusCode)
		}
		connection.Close()
	}
}

func (f *flood) answered(what, method, target string, status int) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.report.Answers[fmt.Sprintf("%s: %d", what, status)]++
	if what == "body to the webhook" && status == http.StatusRequestEntityTooLarge {
		return // it isn't REST's to describe
	}
	if !f.document.allows(method, target, status) && len(f.report.Undocumented) < 20 {
		f.report.Undocumented = append(f.report.Undocumented, fmt.Sprintf("%s %s: %d", method, target, status))
	}
}
