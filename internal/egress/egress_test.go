package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func policy(t testing.TB, o Options) *Policy {
	t.Helper()
	if o.interfaces == nil {
		o.interfaces = func() ([]net.Addr, error) {
			return []net.Addr{&net.IPNet{IP: net.ParseIP("127.0.0.1"), Mask: net.CIDRMask(8, 32)}, &net.IPNet{IP: net.ParseIP("9.9.9.9"), Mask: net.CIDRMask(24, 32)},
				&net.IPNet{IP: net.ParseIP("2a00::9"), Mask: net.CIDRMask(64, 128)}}, nil
		}
	}
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestWhatIsReachable(t *testing.T) {
	own := []string{"127.0.0.1:9009", "0.0.0.0:6443", ":6444", "8.8.4.4:7443", "https://cortex.example.com", "http://[2a00::77]:9200/x"}
	plain := policy(t, Options{Own: own})
	inside := policy(t, Options{Own: own, Allow: []string{"127.0.0.0/8", "::1", "10.0.0.0/8", "fd00::/8", "9.9.9.9:25", "192.168.1.1"}, Deny: []string{"10.6.0.0/16", "1.1.1.0/24", "10.7.0.1:25"}})
	for _, c := range []struct {
		to            string
		plain, inside bool
	}{
		{"8.8.8.8:443", true, true},
		{"[2a00:1450::1]:443", true, true},
		{"127.0.0.1:80", false, true},
		{"127.3.2.1:80", false, true},
		{"127.0.0.1:9009", false, false}, // own, whatever is allowed
		{"127.0.0.2:9009", false, false},
		{"127.0.0.1:6443", false, false},
		{"[::1]:6444", false, false},
		{"[::1]:80", false, true},
		{"0.0.0.0:80", false, false},
		{"[::]:80", false, false},
		{"0.1.2.3:80", false, false},
		{"9.9.9.9:443", false, false}, // this machine's, public
		{"9.9.9.9:25", false, true},
		{"9.9.9.9:9009", false, false},
		{"[2a00::9]:6443", false, false},
		{"9.9.9.10:443", true, true},
		{"8.8.4.4:7443", false, false}, // own, elsewhere
		{"8.8.4.4:443", true, true},
		{"[2a00::77]:9200", false, false},
		{"10.1.2.3:80", false, true},
		{"10.6.2.3:80", false, false},
		{"10.7.0.1:25", false, false},
		{"10.7.0.1:26", false, true},
		{"1.1.1.1:80", true, false},
		{"172.16.0.1:80", false, false},
		{"172.31.255.255:80", false, false},
		{"172.32.0.1:80", true, true},
		{"192.168.1.1:80", false, true},
		{"192.168.1.2:80", false, false},
		{"100.64.0.1:80", false, false},
		{"100.128.0.1:80", true, true},
		{"169.254.169.254:80", false, false},
		{"[fe80::1%eth0]:80", false, false},
		{"[fd00::1]:80", false, true},
		{"[fd00::1%eth0]:80", false, true},
		{"[fc00::1]:80", false, false},
		{"[fec0::1]:80", false, false},
		{"224.0.0.1:80", false, false},
		{"255.255.255.255:80", false, false},
		{"[ff02::1]:80", false, false},
		{"198.18.0.1:80", false, false},
		{"[::ffff:127.0.0.1]:80", false, true}, // the same in other clothes
		{"[::ffff:127.0.0.1]:9009", false, false},
		{"[::ffff:169.254.169.254]:80", false, false},
		{"[::ffff:8.8.8.8]:80", true, true},
		{"[::127.0.0.1]:80", false, false},
		{"[::ffff:0:127.0.0.1]:80", false, false},
		{"[64:ff9b::8.8.8.8]:80", true, true}, // NAT64
		{"[64:ff9b::127.0.0.1]:80", false, true},
		{"[64:ff9b::127.0.0.1]:9009", false, false},
		{"[64:ff9b::169.254.169.254]:80", false, false},
		{"[64:ff9b::1.1.1.1]:80", true, false},
		{"[64:ff9b:1::a00:1]:80", false, false},
		{"[2002:808:808::1]:80", true, true}, // 6to4
		{"[2002:7f00:1::1]:80", false, true},
		{"[2002:a9fe:a9fe::1]:80", false, false},
		{"[2001:0:808:808:0:0:f7f7:f7f7]:80", true, true}, // Teredo, server and client 8.8.8.8
		{"[2001:0:808:808:0:0:80ff:fffe]:80", false, true},
		{"[2001:0:7f00:1:0:0:f7f7:f7f7]:80", false, true},
		{"[2a00:1::5efe:10.6.0.1]:80", false, false}, // ISATAP
		{"[2a00:1::200:5efe:10.6.0.1]:80", false, false},
		{"[2a00:1::5efe:8.8.8.8]:80", true, true},
		{"[2001:db8::1]:80", false, false},
		{"[100::1]:80", false, false},
		{"[4000::1]:80", false, false},
		{"localhost:80", false, true}, // names that need no look-up
		{"LocalHost.:9009", false, false},
		{"x.localhost:80", false, true},
		{"cortex.example.com:443", false, false},
		{"Cortex.Example.COM.:443", false, false},
		{"cortex.example.com:444", true, true},
		{"127.1:80", false, false},
		{"2130706433:80", false, false},
		{"0x7f000001:80", false, false},
		{"0x7f.0.0.0x1:80", false, false},
		{":80", false, false},
		{"example.com:https", true, true},
	} {
		for _, k := range []struct {
			name string
			p    *Policy
			want bool
		}{{"plain", plain, c.plain}, {"inside", inside, c.inside}} {
			err := k.p.Named(c.to)
			if (err == nil) != k.want || err != nil && !errors.Is(err, ErrRefused) {
				t.Errorf("%s, %s: %v; want reachable %v", k.name, c.to, err, k.want)
			}
		}
	}
	for _, bad := range []string{"nothing", "a:b:c", "example.com:nosuchport", "example.com:70000"} {
		if plain.Named(bad) == nil {
			t.Errorf("%s is taken for a destination", bad)
		}
	}
}

// The look is at what a name resolved to, and at every connection: a redirect, a name
// that means another address the second time, and one that hides among good ones.
func TestNamesAndRedirects(t *testing.T) {
	hits := map[string]int{}
	inner := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hits["inner"]++ }))
	defer inner.Close()
	outer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits["outer"]++
		http.Redirect(w, r, inner.URL+"/shutdown", http.StatusTemporaryRedirect)
	}))
	defer outer.Close()
	p, err := New(Options{Allow: []string{outer.Listener.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: p.DialContext}}
	_, err = client.Post(outer.URL, "", strings.NewReader("x"))
	if !errors.Is(err, ErrRefused) || hits["outer"] != 1 || hits["inner"] != 0 {
		t.Errorf("a redirect: %v, %v", err, hits)
	}
	// A name of this machine that nobody wrote as an address: /etc/hosts has localhost.
	_, port, _ := net.SplitHostPort(inner.Listener.Addr().String())
	for _, host := range []string{"localhost", "127.0.0.1", "[::ffff:127.0.0.1]", "0.0.0.0"} {
		conn, err := p.DialContext(t.Context(), "tcp", host+":"+port)
		if err == nil {
			_ = conn.Close()
		}
		if !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", host, err)
		}
	}
	// A proxy is dialled by the same door.
	client.Transport = &http.Transport{DialContext: p.DialContext, Proxy: func(*http.Request) (*url.URL, error) { return url.Parse(inner.URL) }}
	if _, err := client.Get("http://example.com/"); !errors.Is(err, ErrRefused) || hits["inner"] != 0 {
		t.Errorf("a proxy: %v, %v", err, hits)
	}
	for _, network := range []string{"unix", "udp"} {
		if _, err := p.DialContext(t.Context(), network, "/run/docker.sock"); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", network, err)
		}
	}
}

// An error tells a tenant nothing that the tenant did not write.
func TestErrorsTellNothing(t *testing.T) {
	open := httptest.NewServer(http.NotFoundHandler())
	defer open.Close()
	p := policy(t, Options{Own: []string{open.Listener.Addr().String()}, Deny: []string{"127.0.0.0/8"}})
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	errs := map[string]bool{}
	for _, to := range []string{open.Listener.Addr().String(), closed.Addr().String(), "10.0.0.1:80", "localhost:1"} {
		_, err := p.DialContext(t.Context(), "tcp", to)
		if err == nil {
			t.Fatalf("%s is reachable", to)
		}
		errs[strings.ReplaceAll(err.Error(), to, "X")] = true
	}
	if len(errs) != 1 {
		t.Errorf("refusals that can be told apart: %v", errs)
	}
}

// What Muster's own names resolve to is out of reach, also by the address; a look-up
// that fails forgets nothing.
func TestOwnNames(t *testing.T) {
	addrs := []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	var fail error
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	_, port, _ := net.SplitHostPort(srv.Listener.Addr().String())
	p := policy(t, Options{
		Own: []string{"http://store.example.com:" + port}, Allow: []string{"127.0.0.0/8"},
		interfaces: func() ([]net.Addr, error) { return nil, nil },
		lookup:     func(context.Context, string) ([]netip.Addr, error) { return addrs, fail },
	})
	delete(p.ports, srv.Listener.Addr().(*net.TCPAddr).AddrPort().Port()) // as if the store ran elsewhere
	reached := func() bool {
		conn, err := p.DialContext(t.Context(), "tcp", srv.Listener.Addr().String())
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}
	if reached() {
		t.Error("an own name's address is reachable")
	}
	p.looked, fail = p.looked.Add(-staleFor), errors.New("no resolver")
	if reached() {
		t.Error("after a look-up that failed, an own name's address is reachable")
	}
	p.looked, fail, addrs = p.looked.Add(-staleFor), nil, nil
	if !reached() {
		t.Error("an address that is nobody's any more is out of reach")
	}
}

// A resolver that hangs holds up nobody while the addresses are not old, and only those who
// wait for it themselves after that. Who gives up spoils nothing for the others.
func TestAResolverThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		answer := make(chan struct{})
		p := policy(t, Options{Own: []string{"http://store.example.com:80"}, lookup: func(ctx context.Context, _ string) ([]netip.Addr, error) {
			calls++
			select {
			case <-answer:
				return []netip.Addr{netip.MustParseAddr("8.8.4.4")}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}})
		store := netip.MustParseAddrPort("8.8.4.4:80")
		hasty, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		gaveUp, patient := make(chan error, 1), make(chan bool, 1)
		go func() { _, err := p.lookUp(hasty); gaveUp <- err }()
		synctest.Wait()
		go func() { own, _ := p.lookUp(t.Context()); patient <- own[store] }()
		if err := <-gaveUp; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who has a second got %v", err)
		}
		close(answer)
		if !<-patient {
			t.Error("the address is not known to who waited, because somebody else gave up")
		}

		answer = make(chan struct{}) // hangs again
		time.Sleep(ownFor)
		began := time.Now()
		for range 20 {
			if own, err := p.lookUp(t.Context()); !own[store] || err != nil {
				t.Errorf("%v, %v", own, err)
			}
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("a resolver that hangs held 20 dials up for %v", d)
		}
		synctest.Wait()
		if calls != 2 {
			t.Errorf("%d look-ups, want one for all", calls)
		}
		time.Sleep(lookTime + staleFor) // the look-up has failed; its next one is waited for, and what was known stays
		if own, err := p.lookUp(t.Context()); !own[store] || err != nil {
			t.Errorf("%v, %v", own, err)
		}
	})
}

func TestWithoutTheMachinesAddressesNothingIsReached(t *testing.T) {
	p := policy(t, Options{interfaces: func() ([]net.Addr, error) { return nil, errors.New("no netlink") }})
	if err := p.Named("8.8.8.8:443"); !errors.Is(err, ErrRefused) {
		t.Errorf("%v", err)
	}
}

// Whoever reads an answer whole reads no more than the bound, and nobody waits for ever.
func TestConnectionsAreBounded(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for b := make([]byte, 4096); ; {
			if _, err := w.Write(b); err != nil {
				return
			}
		}
	}))
	defer srv.Close()
	p := policy(t, Options{Allow: []string{"127.0.0.1"}, MaxRead: 100_000})
	client := &http.Client{Transport: &http.Transport{DialContext: p.DialContext, DisableKeepAlives: true}}
	resp, err := client.Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if !errors.Is(err, errTooLong) || len(b) > 100_000 {
		t.Errorf("%d bytes, %v", len(b), err)
	}

	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	p.opts.MaxLife = 1 // ns
	conn, err := p.DialContext(t.Context(), "tcp", silent.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var timeout net.Error
	if _, err := conn.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("a silent receiver: %v", err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Allow: []string{"10.0.0.0/8", "10.0.0"}}, "allowNetworks[1]"},
		{Options{Deny: []string{"example.com"}}, "denyNetworks[0]"},
		{Options{Deny: []string{"::ffff:10.0.0.0/104"}}, "IPv4 address as such"},
		{Options{Allow: []string{"10.0.0.1:0"}}, "allowNetworks[0]"},
		{Options{Own: []string{"example.com"}}, "HOST:PORT"},
	} {
		if _, err := New(c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v; want %q", c.o, err, c.want)
		}
	}
}

func FuzzNamed(f *testing.F) {
	for _, s := range []string{"8.8.8.8:80", "[::1%lo]:1", "a.b:https", "[64:ff9b::1]:2", ":", "0x:1"} {
		f.Add(s)
	}
	p := policy(f, Options{Own: []string{"127.0.0.1:9009"}, Allow: []string{"127.0.0.0/8"}})
	f.Fuzz(func(t *testing.T, s string) {
		if p.Named(s) != nil {
			return
		}
		host, port, err := net.SplitHostPort(s)
		if err != nil {
			t.Fatalf("%q passes", s)
		}
		if ip := net.ParseIP(host); ip != nil && (ip.IsUnspecified() || ip.IsPrivate() || ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsLoopback() && port == "9009") {
			t.Fatalf("%q passes", s)
		}
	})
}
