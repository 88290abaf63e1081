package plane

import (
	"net"
	"sync"
)

// Line is a TCP connection to somewhere that can be cut as a network is: no side is told, what is
// under way stays where it is, and new connections lead nowhere. Mended, all of it goes on.
type Line struct {
	Address string // where it begins

	listener net.Listener
	target   string

	mutex       sync.Mutex
	mended      chan struct{} // closed while the line is whole
	connections map[net.Conn]bool
}

// NewLine makes a line to a TCP address.
func NewLine(target string) (*Line, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &Line{
		Address: listener.Addr().String(), listener: listener, target: target,
		mended: make(chan struct{}), connections: map[net.Conn]bool{},
	}
	close(l.mended)
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			go l.serve(near)
		}
	}()
	return l, nil
}

// Cut stops everything on the line. Cutting it twice does nothing.
func (l *Line) Cut() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	select {
	case <-l.mended:
		l.mended = make(chan struct{})
	default:
	}
}

// Mend lets everything go on.
func (l *Line) Mend() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	select {
	case <-l.mended:
	default:
		close(l.mended)
	}
}

// Close ends the line and what is on it.
func (l *Line) Close() {
	_ = l.listener.Close()
	l.Mend()
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for connection := range l.connections {
		_ = connection.Close()
	}
}

func (l *Line) awaitMended() {
	l.mutex.Lock()
	mended := l.mended
	l.mutex.Unlock()
	<-mended
}

func (l *Line) serve(near net.Conn) {
	l.awaitMended()
	far, err := net.Dial("tcp", l.target)
	if err != nil {
		_ = near.Close()
		return
	}
	l.mutex.Lock()
	l.connections[near], l.connections[far] = true, true
	l.mutex.Unlock()
	var both sync.WaitGroup
	both.Go(func() { l.carry(far, near) })
	both.Go(func() { l.carry(near, far) })
	both.Wait()
	l.mutex.Lock()
	delete(l.connections, near)
	delete(l.connections, far)
	l.mutex.Unlock()
}

// carry passes on what is read until either side ends; the end is passed on too, once the line is
// whole.
func (l *Line) carry(to, from net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		l.awaitMended()
		if n > 0 {
			if _, failed := to.Write(buffer[:n]); failed != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	_ = to.Close()
	_ = from.Close()
}
