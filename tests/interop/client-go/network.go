package main

import (
	"context"
	"fmt"
	"math/rand"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"syscall"

	"k8s.io/client-go/rest"
)

// recorder keeps the requests that were sent.
type recorder struct {
	mu   sync.Mutex
	sent []*url.URL
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

func (r *recorder) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		r.mu.Lock()
		r.sent = append(r.sent, request.URL)
		r.mu.Unlock()
		return next.RoundTrip(request)
	})
}

// count tells how many requests were sent for which matches holds.
func (r *recorder) count(matches func(path string, query url.Values) bool) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := 0
	for _, sent := range r.sent {
		if matches(sent.Path, sent.Query()) {
			found++
		}
	}
	return found
}

func isWatch(_ string, query url.Values) bool { return query.Get("watch") == "true" }

func isStreamingList(_ string, query url.Values) bool {
	return query.Get("sendInitialEvents") == "true"
}

// network makes connections that it can cut.
type network struct {
	mu     sync.Mutex
	open   map[*connection]bool
	down   bool
	random *rand.Rand
	// chance is how likely a read ends in a cut, while there are cuts left.
	chance float64
	left   int
	cuts   int
}

type connection struct {
	net.Conn
	network *network
}

func newNetwork() *network {
	return &network{open: map[*connection]bool{}, random: rand.New(rand.NewSource(1))}
}

// through returns a configuration whose connections all go through this network.
func (n *network) through(config *rest.Config, requests *recorder) *rest.Config {
	copied := rest.CopyConfig(config)
	copied.Dial = n.dial
	copied.WrapTransport = requests.wrap
	return copied
}

func (n *network) dial(ctx context.Context, protocol, address string) (net.Conn, error) {
	n.mu.Lock()
	down := n.down
	n.mu.Unlock()
	if down {
		return nil, &net.OpError{Op: "dial", Net: protocol, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	plain, err := (&net.Dialer{}).DialContext(ctx, protocol, address)
	if err != nil {
		return nil, err
	}
	opened := &connection{plain, n}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open[opened] = true
	return opened, nil
}

// cut ends all connections. While the network is down, there are no new ones.
func (n *network) cut(down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = down
	for each := range n.open {
		n.cuts++
		each.Conn.Close()
	}
	clear(n.open)
}

// restore lets there be connections again.
func (n *network) restore() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = false
}

// unleash cuts connections at random from now on, at most so many times.
func (n *network) unleash(chance float64, times int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.chance, n.left = chance, times
}

func (n *network) strikes() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.left == 0 || n.random.Float64() >= n.chance {
		return false
	}
	n.left--
	n.cuts++
	return true
}

// Read may come to nothing, after any number of bytes.
func (c *connection) Read(buffer []byte) (int, error) {
	read, err := c.Conn.Read(buffer)
	if err == nil && c.network.strikes() {
		c.Close()
		return 0, fmt.Errorf("cut while reading: %w", syscall.ECONNRESET)
	}
	return read, err
}

// Close closes the connection.
func (c *connection) Close() error {
	c.network.mu.Lock()
	delete(c.network.open, c)
	c.network.mu.Unlock()
	return c.Conn.Close()
}
