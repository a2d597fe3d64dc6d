// Command server is dex with users and a clock that a test sets. It stands in a module
// of its own, because dex wants other versions of what Muster uses; internal/testkit/dex
// builds and starts it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/dexidp/dex/connector"
	"github.com/dexidp/dex/server"
	"github.com/dexidp/dex/storage"
	"github.com/dexidp/dex/storage/memory"
	"github.com/dexidp/dex/web"
	"github.com/prometheus/client_golang/prometheus"
)

// config comes on standard input, as JSON; internal/testkit/dex has its twin.
type config struct {
	CertFile, KeyFile string
	IDTokenLife       time.Duration
	Clients           []storage.Client
	Users             map[string]user // by name, which is the password too
}

type user struct{ Groups []string }

// users is a connector that knows the users of the config.
type users struct{ known map[string]user }

func (u users) Open(string, *slog.Logger) (connector.Connector, error) { return u, nil }
func (u users) Prompt() string                                         { return "Username" }

func (u users) Login(_ context.Context, s connector.Scopes, name, password string) (connector.Identity, bool, error) {
	if _, ok := u.known[name]; !ok || password != name {
		return connector.Identity{}, false, nil
	}
	return u.identity(s, name), true, nil
}

func (u users) Refresh(_ context.Context, s connector.Scopes, id connector.Identity) (connector.Identity, error) {
	if _, ok := u.known[id.Username]; !ok {
		return id, errors.New("the user is gone")
	}
	return u.identity(s, id.Username), nil
}

func (u users) identity(s connector.Scopes, name string) connector.Identity {
	id := connector.Identity{UserID: name, Username: name, PreferredUsername: name, Email: name + "@example.com", EmailVerified: true}
	if s.Groups {
		id.Groups = u.known[name].Groups
	}
	return id
}

func run() error {
	var c config
	in := json.NewDecoder(os.Stdin)
	if err := in.Decode(&c); err != nil {
		return fmt.Errorf("configuration on standard input: %w", err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	var ahead atomic.Int64
	store := memory.New(log)
	for _, cl := range c.Clients {
		if err := store.CreateClient(context.Background(), cl); err != nil {
			return err
		}
	}
	server.ConnectorsConfig["users"] = func() server.ConnectorConfig { return &users{c.Users} }
	if err := store.CreateConnector(context.Background(), storage.Connector{ID: "users", Type: "users", Name: "Users"}); err != nil {
		return err
	}
	refresh, err := server.NewRefreshTokenPolicy(log, false, "", "", "")
	if err != nil {
		return err
	}
	issuer := "https://" + ln.Addr().String() + "/dex"
	dex, err := server.NewServer(context.Background(), server.Config{
		Issuer: issuer, Storage: store, SkipApprovalScreen: true, IDTokensValidFor: c.IDTokenLife, RefreshTokenPolicy: refresh,
		SupportedResponseTypes: []string{"code"}, Web: server.WebConfig{WebFS: web.FS()}, Logger: log, PrometheusRegistry: prometheus.NewRegistry(),
		AllowedGrantTypes: []string{"authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"},
		Now:               func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
	})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/dex/", dex)
	mux.HandleFunc("POST /clock", func(w http.ResponseWriter, r *http.Request) {
		d, err := time.ParseDuration(r.URL.Query().Get("ahead"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		ahead.Store(int64(d))
	})
	fmt.Println(issuer)
	go func() { // ends with the test that holds the other end of standard input
		var none any
		_ = in.Decode(&none)
		os.Exit(0)
	}()
	return http.ServeTLS(ln, mux, c.CertFile, c.KeyFile)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
