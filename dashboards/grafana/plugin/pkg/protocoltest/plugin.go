package protocoltest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/backend"
	"github.com/grafana/grafana-plugin-sdk-go/backend/grpcplugin"
	"github.com/grafana/grafana-plugin-sdk-go/data"
	"github.com/grafana/grafana-plugin-sdk-go/genproto/pluginv2"
	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
)

// binary is what Main has built.
var binary string

// Main builds the plugin and runs the tests, which start it.
func Main(m *testing.M) int {
	dir, err := os.MkdirTemp("", "gpx_muster_fleet")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "gpx_muster_fleet")
	cmd := exec.Command("go", "build", "-o", binary, "./pkg")
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the plugin: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// Plugin is a running one, with the settings of one data source and what Grafana sends
// along with each call.
type Plugin struct {
	t       testing.TB
	data    grpcplugin.DataClient
	diag    grpcplugin.DiagnosticsClient
	res     grpcplugin.ResourceClient
	stream  grpcplugin.StreamClient
	From    time.Time // of queries; default an hour ago
	To      time.Time // default now
	Points  int64     // that a panel has room for; default 100, 15 s apart at least
	Setting *pluginv2.DataSourceInstanceSettings
	// Headers are those that Grafana forwards.
	Headers map[string]string
	Login   string // of who is logged in to Grafana; "": nobody
}

// Start starts the plugin. The settings are those of a data source at url; jsonData is
// JSON.
func Start(t testing.TB, url, jsonData, token string) *Plugin {
	t.Helper()
	client := goplugin.NewClient(&goplugin.ClientConfig{
		Cmd:             exec.Command(binary),
		HandshakeConfig: goplugin.HandshakeConfig{ProtocolVersion: grpcplugin.ProtocolVersion, MagicCookieKey: grpcplugin.MagicCookieKey, MagicCookieValue: grpcplugin.MagicCookieValue},
		VersionedPlugins: map[int]goplugin.PluginSet{grpcplugin.ProtocolVersion: {
			"data": &grpcplugin.DataGRPCPlugin{}, "diagnostics": &grpcplugin.DiagnosticsGRPCPlugin{}, "resource": &grpcplugin.ResourceGRPCPlugin{}, "stream": &grpcplugin.StreamGRPCPlugin{},
		}},
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		Logger:           hclog.NewNullLogger(),
	})
	t.Cleanup(client.Kill)
	rpc, err := client.Client()
	if err != nil {
		t.Fatalf("the handshake: %v", err)
	}
	p := &Plugin{t: t, Headers: map[string]string{}, Login: "alice", Setting: &pluginv2.DataSourceInstanceSettings{Uid: "muster", Name: "Muster", Url: url, JsonData: []byte(jsonData),
		DecryptedSecureJsonData: map[string]string{"token": token}, LastUpdatedMS: 1}}
	for name, to := range map[string]any{"data": &p.data, "diagnostics": &p.diag, "resource": &p.res, "stream": &p.stream} {
		raw, err := rpc.Dispense(name)
		if err != nil {
			t.Fatal(err)
		}
		switch to := to.(type) {
		case *grpcplugin.DataClient:
			*to = raw.(grpcplugin.DataClient)
		case *grpcplugin.DiagnosticsClient:
			*to = raw.(grpcplugin.DiagnosticsClient)
		case *grpcplugin.ResourceClient:
			*to = raw.(grpcplugin.ResourceClient)
		case *grpcplugin.StreamClient:
			*to = raw.(grpcplugin.StreamClient)
		}
	}
	return p
}

func (p *Plugin) context() *pluginv2.PluginContext {
	out := &pluginv2.PluginContext{OrgId: 1, PluginId: "muster-fleet-datasource", DataSourceInstanceSettings: p.Setting}
	if p.Login != "" {
		out.User = &pluginv2.User{Login: p.Login}
	}
	return out
}

// Query asks one query, which is JSON, and returns its frames or its error.
func (p *Plugin) Query(query string) (data.Frames, error) {
	p.t.Helper()
	var model struct {
		Type string `json:"queryType"`
	}
	if err := json.Unmarshal([]byte(query), &model); err != nil {
		p.t.Fatal(err)
	}
	from, to := p.From, p.To
	if to.IsZero() {
		to = time.Now()
	}
	if from.IsZero() {
		from = to.Add(-time.Hour)
	}
	points, interval := int64(100), 15*time.Second
	if p.Points > 0 {
		points, interval = p.Points, time.Second
	}
	resp, err := p.data.QueryData(p.t.Context(), &pluginv2.QueryDataRequest{PluginContext: p.context(), Headers: p.Headers, Queries: []*pluginv2.DataQuery{{
		RefId: "A", QueryType: model.Type, MaxDataPoints: points, IntervalMS: interval.Milliseconds(), Json: []byte(query),
		TimeRange: &pluginv2.TimeRange{FromEpochMS: from.UnixMilli(), ToEpochMS: to.UnixMilli()}}}})
	if err != nil {
		return nil, err
	}
	r := resp.Responses["A"]
	if r == nil {
		return nil, errors.New("no response")
	}
	if r.Error != "" {
		return nil, fmt.Errorf("%d %s: %s", r.Status, r.ErrorSource, r.Error)
	}
	return data.UnmarshalArrowFrames(r.Frames)
}

// CheckHealth is the button "Save & test".
func (p *Plugin) CheckHealth() (ok bool, message string) {
	p.t.Helper()
	r, err := p.diag.CheckHealth(p.t.Context(), &pluginv2.CheckHealthRequest{PluginContext: p.context(), Headers: p.Headers})
	if err != nil {
		p.t.Fatal(err)
	}
	return r.Status == pluginv2.CheckHealthResponse_OK, r.Message
}

// Resource calls a resource, such as values/sites?region=eu.
func (p *Plugin) Resource(path string) (int, string) {
	p.t.Helper()
	at, _, _ := strings.Cut(path, "?")
	headers := map[string]*pluginv2.StringList{}
	for k, v := range p.Headers {
		headers[k] = &pluginv2.StringList{Values: []string{v}}
	}
	s, err := p.res.CallResource(p.t.Context(), &pluginv2.CallResourceRequest{PluginContext: p.context(), Path: at, Url: path, Method: "GET", Headers: headers})
	if err != nil {
		p.t.Fatal(err)
	}
	var body []byte
	code := 0
	for {
		r, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return code, string(body)
		}
		if err != nil {
			p.t.Fatal(err)
		}
		if r.Code != 0 {
			code = int(r.Code)
		}
		body = append(body, r.Body...)
	}
}

// Subscribe asks whether the channel may be listened to.
func (p *Plugin) Subscribe(path string) (backend.SubscribeStreamStatus, []byte) {
	p.t.Helper()
	r, err := p.stream.SubscribeStream(p.t.Context(), &pluginv2.SubscribeStreamRequest{PluginContext: p.context(), Path: path, Headers: p.Headers})
	if err != nil {
		p.t.Fatal(err)
	}
	return backend.SubscribeStreamStatus(r.Status), r.Data
}

// Run listens to the channel; each call of the result waits for the next frame.
func (p *Plugin) Run(ctx context.Context, path string) func() (*data.Frame, error) {
	p.t.Helper()
	s, err := p.stream.RunStream(ctx, &pluginv2.RunStreamRequest{PluginContext: p.context(), Path: path, Headers: p.Headers})
	if err != nil {
		p.t.Fatal(err)
	}
	return func() (*data.Frame, error) {
		packet, err := s.Recv()
		if err != nil {
			return nil, err
		}
		f := &data.Frame{}
		return f, json.Unmarshal(packet.Data, f)
	}
}
