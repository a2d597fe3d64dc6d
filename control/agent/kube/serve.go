package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"muster.dev/muster/internal/tunnel"
	"muster.dev/muster/internal/workload"
)

// Serve serves HTTP/1.1 on one connection of a tunnel until it ends or ctx does, which
// closes it: of pods in Muster's namespaces the logs, exec, attach, port-forward, eviction
// and removal, under the paths of the site's own API and with the agent's credentials. All
// else is forbidden. Who may ask is for control to say: the tunnel comes from there alone.
func (k *Kube) Serve(ctx context.Context, conn net.Conn) {
	tunnel.Serve(ctx, conn, &http.Server{
		Handler:           k.proxy(),
		ReadHeaderTimeout: 30 * time.Second,
		IdleTimeout:       5 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(k.opts.Logger.Handler(), slog.LevelDebug),
	})
}

// maxSessions is how many logs, execs, attaches and port-forwards are served at a time. Tunnels
// there may be more (control/agent): a pod is removed whoever reads logs, and who gets no
// session is told why.
const maxSessions = 16

// podRequest finds what a request is about, if it is of those that are served.
func podRequest(method, path string) (namespace, pod, sub string, ok bool) {
	// /api/v1/namespaces/NS/pods/NAME[/SUB]
	p := strings.Split(path, "/")
	if len(p) < 7 || len(p) > 8 || p[0] != "" || p[1] != "api" || p[2] != "v1" || p[3] != "namespaces" || p[5] != "pods" {
		return "", "", "", false
	}
	if namespace, pod = p[4], p[6]; !isName(namespace) || !isName(pod) {
		return "", "", "", false
	}
	if len(p) == 8 {
		if sub = p[7]; sub == "" {
			return "", "", "", false
		}
	}
	switch sub {
	case "log":
		ok = method == http.MethodGet
	case "exec", "attach", "portforward":
		ok = method == http.MethodGet || method == http.MethodPost
	case "eviction":
		ok = method == http.MethodPost
	case "":
		ok = method == http.MethodDelete
	}
	return namespace, pod, sub, ok
}

// isName tells whether s is a name as pods and namespaces have.
func isName(s string) bool {
	return s != "" && len(s) <= 253 && s[0] != '.' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-.") == ""
}

// hopHeaders would act on the site's API server in the name of somebody else, or tell it
// what is not so.
func hostile(h string) bool {
	h = strings.ToLower(h)
	return h == "authorization" || h == "cookie" || strings.HasPrefix(h, "impersonate-") || strings.HasPrefix(h, "x-remote-") || strings.HasPrefix(h, "x-forwarded-") || h == "forwarded"
}

// proxy is the part of the site's API that is served.
func (k *Kube) proxy() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ns, _, sub, ok := podRequest(r.Method, r.URL.Path)
		if !ok || r.URL.RawPath != "" {
			refuseHTTP(w, http.StatusForbidden, metav1.StatusReasonForbidden, "a site serves logs, exec, attach, port-forward, eviction and removal of pods, and nothing else")
			return
		}
		if l := k.lives.get(workload.ItemName("", "Namespace", "", ns)); l == nil {
			refuseHTTP(w, http.StatusForbidden, metav1.StatusReasonForbidden, "the namespace "+ns+" is not Muster's on this site")
			return
		}
		if sub != "" && sub != "eviction" {
			defer k.sessions.Add(-1)
			if k.sessions.Add(1) > maxSessions {
				refuseHTTP(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, fmt.Sprintf("the site serves %d logs, execs and port-forwards at a time; close some", maxSessions))
				return
			}
		}
		target, transport, err := k.upstream()
		if err != nil {
			refuseHTTP(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, err.Error())
			return
		}
		p := httputil.ReverseProxy{
			Transport:     transport,
			FlushInterval: -1, // logs that are followed
			ErrorLog:      slog.NewLogLogger(k.opts.Logger.Handler(), slog.LevelDebug),
			Rewrite: func(pr *httputil.ProxyRequest) {
				for h := range pr.Out.Header {
					if hostile(h) {
						delete(pr.Out.Header, h)
					}
				}
				pr.Out.URL.Scheme, pr.Out.URL.Host, pr.Out.Host = target.Scheme, target.Host, target.Host
				pr.Out.URL.Path, pr.Out.URL.RawPath = strings.TrimSuffix(target.Path, "/")+pr.In.URL.Path, ""
				pr.Out.URL.RawQuery = pr.In.URL.RawQuery
			},
			ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
				refuseHTTP(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "the site's API server does not answer: "+err.Error())
			},
		}
		p.ServeHTTP(w, r)
	})
}

// upstream is the API server, spoken to in HTTP/1.1: HTTP/2 can't switch protocols, which
// exec and port-forward do.
func (k *Kube) upstream() (*url.URL, http.RoundTripper, error) {
	k.up.once.Do(func() {
		cfg := rest.CopyConfig(k.cluster.cfg)
		cfg.NextProtos = []string{"http/1.1"}
		cfg.ContentType, cfg.AcceptContentTypes = "", ""
		if k.up.url, _, k.up.err = rest.DefaultServerUrlFor(cfg); k.up.err == nil {
			k.up.transport, k.up.err = rest.TransportFor(cfg)
		}
	})
	return k.up.url, k.up.transport, k.up.err
}

type upstream struct {
	once      sync.Once
	url       *url.URL
	transport http.RoundTripper
	err       error
}

// refuseHTTP answers as an API server does.
func refuseHTTP(w http.ResponseWriter, code int32, reason metav1.StatusReason, message string) {
	b, err := json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message})
	if err != nil {
		b = nil
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(code))
	_, _ = w.Write(b)
}
