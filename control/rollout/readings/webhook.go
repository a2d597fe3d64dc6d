package readings

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/rollout/decide"
	"muster.dev/muster/internal/egress"
	"muster.dev/muster/internal/turns"
)

// WebhookBody is what a webhook gets, as JSON.
type WebhookBody struct {
	Tenant    string `json:"tenant"`
	Namespace string `json:"namespace"`
	Rollout   string `json:"rollout"`
	Gate      string `json:"gate"`
	// Since is when the wave began; absent if that is not known.
	Since *time.Time `json:"since,omitempty"`
	// Sites of the wave that have the change.
	Sites []string `json:"sites"`
}

// maxVerdict bounds what is read of a webhook's answer, in bytes.
const maxVerdict = 64 << 10

func newWebhookClient(dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Client {
	return &http.Client{
		// One connection a question: the door bounds the life of each.
		Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true, TLSHandshakeTimeout: othersLimit, ResponseHeaderTimeout: othersLimit, MaxResponseHeaderBytes: maxVerdict},
		// A redirect is no verdict, and would carry the token elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// ask asks a webhook.
func (r *Readings) ask(ctx context.Context, q *Question, g *v1alpha1.RolloutGate) *decide.Outside {
	w := g.Webhook
	body := WebhookBody{Tenant: q.Tenant, Namespace: q.Namespace, Rollout: q.Rollout, Gate: g.Name, Sites: slices.Clone(q.Changed)}
	if body.Sites == nil {
		body.Sites = []string{}
	}
	if !q.Since.IsZero() {
		since := q.Since.UTC()
		body.Since = &since
	}
	out, _, err := r.hooks.get(ctx, q.key(g.Name, w.URL, w.TokenSecret), func(ctx context.Context) (decide.Outside, error) {
		release, err := r.slots.Acquire(ctx, turns.Class{Tenant: q.Tenant})
		if err != nil {
			return decide.Outside{}, errors.New("too many webhooks of this tenant's gates are under way")
		}
		defer release()
		return r.post(ctx, w, &body)
	})
	if err != nil {
		out = unknown("the webhook: %v", err)
	}
	return &out
}

func (r *Readings) post(ctx context.Context, w *v1alpha1.GateWebhook, body *WebhookBody) (decide.Outside, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return decide.Outside{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(b))
	if err != nil {
		return decide.Outside{}, errors.New("url: want http(s)://HOST/PATH")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "muster-gate")
	if w.TokenSecret != "" {
		token, err := r.o.Token(ctx, body.Namespace, w.TokenSecret)
		if err != nil {
			return decide.Outside{}, fmt.Errorf("tokenSecret: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := r.webhook.Do(req)
	if err != nil {
		if errors.Is(err, egress.ErrRefused) {
			return decide.Outside{}, egress.ErrRefused // not what was found out on the way
		}
		return decide.Outside{}, plain(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxVerdict+1))
	if err != nil {
		return decide.Outside{}, plain(err)
	}
	return verdict(resp.StatusCode, answer)
}

var verdicts = map[string]v1alpha1.GateVerdict{"pass": v1alpha1.GatePass, "wait": v1alpha1.GateWait, "fail": v1alpha1.GateFail}

// verdict reads a webhook's answer. What it can't understand is an error, which holds.
func verdict(status int, body []byte) (decide.Outside, error) {
	if status/100 != 2 {
		return decide.Outside{}, fmt.Errorf("answers %d, want 2xx", status)
	}
	if len(body) > maxVerdict {
		return decide.Outside{}, fmt.Errorf("answers with more than %d KiB", maxVerdict>>10)
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return decide.Outside{Verdict: v1alpha1.GatePass, Text: fmt.Sprintf("the webhook answers %d", status)}, nil
	}
	// A map, because encoding/json takes VERDICT for verdict in a struct.
	var a map[string]json.RawMessage
	var said, text string
	if json.Unmarshal(body, &a) != nil || json.Unmarshal(a["verdict"], &said) != nil || verdicts[said] == "" {
		return decide.Outside{}, fmt.Errorf(`answers %s, want {"verdict":"pass"}, "wait" or "fail"`, cut(string(body), 80))
	}
	out := decide.Outside{Verdict: verdicts[said], Text: "the webhook says " + said}
	if json.Unmarshal(a["message"], &text) == nil && text != "" {
		out.Text += ": " + cut(text, 200)
	}
	return out, nil
}
