// Command kubesite runs a Kubernetes cluster for tests and trials: what of it is stock and what
// pretends, package cluster says. It writes one line of JSON when the cluster is ready, with
// the administrator's kubeconfig and the address that takes what package kubesite asks for, and
// ends when its standard input does, so that it never outlives who started it.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"muster.dev/muster/internal/testkit/kubesite/cluster"
)

func main() {
	var o cluster.Options
	flag.StringVar(&o.Dir, "dir", "", "directory that keeps the cluster; one that was used before goes on where it was")
	flag.IntVar(&o.Nodes, "nodes", 2, "number of nodes")
	flag.StringVar(&o.Prefix, "prefix", "node-", "what the names of nodes begin with")
	flag.Func("label", "a label of all nodes, KEY=VALUE; may be given more than once", func(s string) error {
		var k, v string
		for i := range s {
			if s[i] == '=' {
				k, v = s[:i], s[i+1:]
				break
			}
		}
		if k == "" {
			return fmt.Errorf("%q: wants KEY=VALUE", s)
		}
		if o.Labels == nil {
			o.Labels = map[string]string{}
		}
		o.Labels[k] = v
		return nil
	})
	flag.Parse()
	if o.Dir == "" {
		fmt.Fprintln(os.Stderr, "kubesite: --dir is missing")
		os.Exit(2)
	}
	o.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "kubesite:", err)
		os.Exit(1)
	}
}

func run(o cluster.Options) error {
	c, err := cluster.Start(context.Background(), o)
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() {
		_ = (&http.Server{Handler: c.Handler(), ReadHeaderTimeout: time.Minute}).Serve(ln)
	}()
	if err := json.NewEncoder(os.Stdout).Encode(map[string]string{"kubeconfig": c.Kubeconfig(), "control": "http://" + ln.Addr().String()}); err != nil {
		return err
	}
	return <-c.Failed()
}
