package cluster

import (
	"bufio"
	"net"
	"testing"
	"time"

	"muster.dev/tests/cluster/plane"
)

// echo answers each line with itself.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				lines := bufio.NewScanner(connection)
				for lines.Scan() {
					_, _ = connection.Write([]byte(lines.Text() + "\n"))
				}
			}()
		}
	}()
	return listener.Addr().String()
}

// answer reads one line, or "" if none comes within a while.
func answer(t *testing.T, connection net.Conn) string {
	t.Helper()
	if err := connection.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 64)
	n, err := connection.Read(buffer)
	if timeout, ok := err.(net.Error); err != nil && !(ok && timeout.Timeout()) {
		t.Fatalf("the connection ended: %v", err)
	}
	return string(buffer[:n])
}

// The soak cuts Muster off by such a line.
func TestACutLineTellsNobodyAndGoesOnOnceMended(t *testing.T) {
	t.Parallel()
	line, err := plane.NewLine(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(line.Close)
	open := func() net.Conn {
		connection, err := net.Dial("tcp", line.Address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = connection.Close() })
		return connection
	}
	say := func(connection net.Conn, what string) {
		if _, err := connection.Write([]byte(what + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	before := open()
	say(before, "whole")
	if got := answer(t, before); got != "whole\n" {
		t.Fatalf("the answer is %q", got)
	}

	line.Cut()
	line.Cut()
	say(before, "cut")
	during := open()
	say(during, "new")
	if got := answer(t, before) + answer(t, during); got != "" {
		t.Errorf("%q came through a line that is cut", got)
	}

	line.Mend()
	if got := answer(t, before); got != "cut\n" {
		t.Errorf("what was under way is %q once the line is mended", got)
	}
	if got := answer(t, during); got != "new\n" {
		t.Errorf("the connection made meanwhile answers %q", got)
	}
}
