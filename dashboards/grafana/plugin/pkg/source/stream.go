package source

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/backend"
	"github.com/grafana/grafana-plugin-sdk-go/data"

	"muster.dev/muster/dashboards/grafana/plugin/pkg/console"
)

// A channel's path is scores/all, scores/site/NAME or scores/virtual-site/NAMESPACE/NAME; where the
// user's identity is handed on, below viewer/KEY/.
func (q *query) path() string {
	switch {
	case q.Site != "":
		return "scores/site/" + q.Site
	case q.VirtualSite != "":
		return "scores/virtual-site/" + q.VirtualSite
	}
	return "scores/all"
}

func parsePath(path string) (query, error) {
	q := query{Limit: maxLimit}
	if rest, ok := strings.CutPrefix(path, "viewer/"); ok {
		q.viewer, path, _ = strings.Cut(rest, "/")
	}
	switch parts := strings.Split(path, "/"); {
	case path == "scores/all":
	case len(parts) == 3 && parts[0] == "scores" && parts[1] == "site" && parts[2] != "":
		q.Site = parts[2]
	case len(parts) == 4 && parts[0] == "scores" && parts[1] == "virtual-site" && parts[2] != "" && parts[3] != "":
		q.VirtualSite = parts[2] + "/" + parts[3]
	default:
		return q, fmt.Errorf("channel %q: want scores/all, scores/site/NAME or scores/virtual-site/NAMESPACE/NAME", path)
	}
	return q, nil
}

// live are scores as they are, with the channel where changes come.
func (s *Source) live(ctx context.Context, c *console.Client, q query) (data.Frames, error) {
	sites, total, err := find(ctx, c, q)
	if err != nil {
		return nil, err
	}
	path := q.path()
	if s.settings.OAuthPassThru {
		key, err := s.viewers.remember(q.login, c.Authorization)
		if err != nil {
			return nil, wrong("health", "%v", err)
		}
		path = "viewer/" + key + "/" + path
	}
	f := liveFrame(sites, time.Now())
	f.Meta = &data.FrameMeta{Channel: "ds/" + s.uid + "/" + path}
	cut(f, len(sites), total)
	return data.Frames{f}, nil
}

// liveFrame has a row for each site. Grafana tells series apart by a first field that is
// named labels.
func liveFrame(sites []siteRow, at time.Time) *data.Frame {
	fields := []*data.Field{
		column("labels", sites, func(s *siteRow) string {
			return data.Labels{"tenant": s.Tenant, "site": s.Name, "region": s.Region}.String()
		}),
		column("time", sites, func(*siteRow) time.Time { return at }),
		score(column("score", sites, func(s *siteRow) *float64 { return s.Score })),
	}
	for _, d := range dimensions {
		fields = append(fields, score(column(d, sites, func(s *siteRow) *float64 { return s.Dimensions[d].Score })))
	}
	return data.NewFrame("scores", fields...)
}

// listener asks as the user whose channel it is, and only for them; without forwarded identities as the
// data source.
func (s *Source) listener(req forwarded, by backend.PluginContext, q query) (*console.Client, error) {
	if !s.settings.OAuthPassThru {
		if q.viewer != "" {
			return nil, errViewer
		}
		return s.client(req)
	}
	who, err := s.viewers.authorization(q.viewer, loginOf(by))
	if err != nil {
		return nil, err
	}
	return s.as(who), nil
}

// loginOf who asks; empty for nobody, such as of an alert rule.
func loginOf(by backend.PluginContext) string {
	if by.User == nil {
		return ""
	}
	return by.User.Login
}

// SubscribeStream implements backend.StreamHandler.
func (s *Source) SubscribeStream(ctx context.Context, req *backend.SubscribeStreamRequest) (*backend.SubscribeStreamResponse, error) {
	q, err := parsePath(req.Path)
	if err != nil {
		return &backend.SubscribeStreamResponse{Status: backend.SubscribeStreamStatusNotFound}, nil
	}
	c, err := s.listener(req, req.PluginContext, q)
	if err != nil {
		return &backend.SubscribeStreamResponse{Status: backend.SubscribeStreamStatusPermissionDenied}, nil
	}
	sites, _, err := find(ctx, c, q)
	switch code := console.StatusOf(err); {
	case code == 401 || code == 403:
		return &backend.SubscribeStreamResponse{Status: backend.SubscribeStreamStatusPermissionDenied}, nil
	case err != nil:
		return nil, err
	}
	first, err := backend.NewInitialFrame(liveFrame(sites, time.Now()), data.IncludeAll)
	if err != nil {
		return nil, err
	}
	return &backend.SubscribeStreamResponse{Status: backend.SubscribeStreamStatusOK, InitialData: first}, nil
}

// PublishStream implements backend.StreamHandler: nobody may.
func (s *Source) PublishStream(context.Context, *backend.PublishStreamRequest) (*backend.PublishStreamResponse, error) {
	return &backend.PublishStreamResponse{Status: backend.PublishStreamStatusPermissionDenied}, nil
}

// RunStream implements backend.StreamHandler: it sends how things are and then what changes, until nobody looks or
// the console ends it; Grafana then begins anew.
func (s *Source) RunStream(ctx context.Context, req *backend.RunStreamRequest, to *backend.StreamSender) error {
	q, err := parsePath(req.Path)
	if err != nil {
		return err
	}
	c, err := s.listener(req, req.PluginContext, q)
	if err != nil {
		return err
	}
	stream := *c
	stream.HTTP = s.endless
	body, err := stream.Open(ctx, "/health/stream", url.Values{})
	if err != nil {
		return err
	}
	defer body.Close()
	// What changed while nobody listened, such as before the console came back.
	sites, _, err := find(ctx, c, q)
	if err != nil {
		return err
	}
	if err := to.SendFrame(liveFrame(sites, time.Now()), data.IncludeAll); err != nil {
		return err
	}
	return console.ReadEvents(body, func(name string, b []byte) error {
		if name != "sites" {
			return nil
		}
		var ev struct {
			AsOf  time.Time `json:"asOf"`
			Sites []siteRow `json:"sites"`
		}
		if err := json.Unmarshal(b, &ev); err != nil {
			return fmt.Errorf("a change of sites that is none: %w", err)
		}
		changed := slices.DeleteFunc(ev.Sites, func(site siteRow) bool {
			return q.Site != "" && site.Name != q.Site || q.VirtualSite != "" && !slices.Contains(site.VirtualSites, q.VirtualSite)
		})
		if len(changed) == 0 {
			return nil
		}
		return to.SendFrame(liveFrame(changed, ev.AsOf), data.IncludeAll)
	})
}
