package gateway

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/internal/wire"
)

// fleetEnv makes the test binary the sites of BenchmarkConnectedSite.
const fleetEnv = "MUSTER_GATEWAY_TEST_FLEET"

// fleetOrder is what that process reads.
type fleetOrder struct {
	Address   string
	CA        []byte // DER
	Cert, Key [][]byte
	Push      []byte // remote write 2.0
}

// connectFleet connects each site as an agent does: one connection for its stream, one
// for its pushes. They stay until standard input ends.
func connectFleet() error {
	var o fleetOrder
	in := json.NewDecoder(os.Stdin)
	if err := in.Decode(&o); err != nil {
		return err
	}
	ca, err := x509.ParseCertificate(o.CA)
	if err != nil {
		return err
	}
	ctx := context.Background()
	for i := range o.Cert {
		key, err := x509.ParseECPrivateKey(o.Key[i])
		if err != nil {
			return err
		}
		cfg := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: identity.PoolOf([]*x509.Certificate{ca}), Certificates: []tls.Certificate{{Certificate: [][]byte{o.Cert[i]}, PrivateKey: key}}}
		cc, err := grpc.NewClient(o.Address, grpc.WithTransportCredentials(credentials.NewTLS(cfg)))
		if err != nil {
			return err
		}
		stream, err := wire.NewUplinkClient(cc).Connect(ctx)
		if err != nil {
			return err
		}
		if err := stream.Send(&wire.FromSite{Msg: &wire.FromSite_Hello{Hello: &wire.Hello{Capability: wire.Capability}}}); err != nil {
			return err
		}
		if _, err := stream.Recv(); err != nil {
			return err
		}
		go func() {
			for range time.Tick(HeartbeatInterval) {
				_ = stream.Send(&wire.FromSite{Msg: &wire.FromSite_Heartbeat{Heartbeat: &wire.Heartbeat{}}})
			}
		}()
		c := &http.Client{Transport: &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true}}
		for range 3 {
			req, err := http.NewRequest(http.MethodPost, "https://"+o.Address+"/api/v1/push", bytes.NewReader(o.Push))
			if err != nil {
				return err
			}
			req.Header.Set("Content-Type", remotewrite.ContentTypeV2)
			req.Header.Set("Content-Encoding", "snappy")
			resp, err := c.Do(req)
			if err != nil {
				return err
			}
			b, _ := io.ReadAll(resp.Body)
			if resp.Body.Close(); resp.StatusCode >= 300 {
				return fmt.Errorf("%s: %s", resp.Status, b)
			}
		}
	}
	fmt.Println("connected")
	_, err = io.Copy(io.Discard, io.MultiReader(in.Buffered(), os.Stdin))
	return err
}

// BenchmarkConnectedSite: what a site takes in the gateway's process that has its stream
// and its sender's connection open and is quiet: heap, stacks, goroutines. The two series
// that it pushed are in it. With MUSTER_HEAP=file it leaves a profile.
func BenchmarkConnectedSite(b *testing.B) {
	const sites = 500
	measure := func() (heap, stacks uint64) {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc, m.StackInuse
	}
	for b.Loop() {
		h := newHarness(b, harnessOptions{})
		o := fleetOrder{Address: h.g.Addr().String(), CA: h.ca.Cert.Raw, Push: remotewrite.EncodeV2(siteSeries(2, time.Now()))}
		for i := range sites {
			c := h.ca.site(b, fleet.SiteID{Tenant: "acme", Name: fmt.Sprintf("site-%d", i)}, "eu-west")
			key, err := x509.MarshalECPrivateKey(c.PrivateKey.(*ecdsa.PrivateKey))
			if err != nil {
				b.Fatal(err)
			}
			o.Cert, o.Key = append(o.Cert, c.Certificate[0]), append(o.Key, key)
		}
		order, err := json.Marshal(o)
		if err != nil {
			b.Fatal(err)
		}
		heap, stacks := measure()
		goroutines := runtime.NumGoroutine()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), fleetEnv+"=1")
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			b.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		if _, err := in.Write(order); err != nil {
			b.Fatal(err)
		}
		if word := make([]byte, 10); true {
			if n, err := io.ReadFull(out, word); err != nil {
				b.Fatal(err, string(word[:n]))
			}
		}
		if n := h.g.Status().Connected; n != sites {
			b.Fatal(n, "are connected")
		}
		heap2, stacks2 := measure()
		b.ReportMetric(float64(heap2-heap)/sites, "heap-B/site")
		b.ReportMetric(float64(stacks2-stacks)/sites, "stack-B/site")
		b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/sites, "goroutines/site")
		if name := os.Getenv("MUSTER_HEAP"); name != "" {
			f, err := os.Create(name)
			if err != nil {
				b.Fatal(err)
			}
			if err := pprof.Lookup("heap").WriteTo(f, 0); err != nil {
				b.Fatal(err)
			}
			_ = f.Close()
		}
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			b.Fatal(err)
		}
	}
}
