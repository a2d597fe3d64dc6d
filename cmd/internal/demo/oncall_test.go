package demo

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestPhone(t *testing.T) {
	p := &phone{}
	post := func(body string) int {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequest(http.MethodPost, onCallPath, strings.NewReader(body)))
		return w.Code
	}
	if code := post("no json"); code != http.StatusBadRequest {
		t.Errorf("garbage: %d", code)
	}
	body := `{"alerts":[{"status":"firing","labels":{"alertname":"SiteDown","site":"paris","severity":"critical"},"annotations":{"summary":"s"},"startsAt":"2026-03-01T00:00:00Z"}]}`
	for range maxNotices + 5 {
		if code := post(body); code != http.StatusOK {
			t.Fatalf("answer %d", code)
		}
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, onCallPath, nil))
	var list []Notice
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || len(list) != maxNotices || list[0].Alert != "SiteDown" || list[0].Site != "paris" {
		t.Errorf("%d notices, %v", len(list), err)
	}
}

func FuzzPhone(f *testing.F) {
	f.Add(`{"alerts":[{"status":"firing"}]}`)
	f.Fuzz(func(_ *testing.T, body string) {
		(&phone{}).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, onCallPath, strings.NewReader(body)))
	})
}
