package hostexporter

import (
	"net/http/httptest"
	"strings"
	"testing"
)

func TestServesThisHost(t *testing.T) {
	h, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	body := w.Body.String()
	for _, want := range []string{"node_cpu_seconds_total{", "node_memory_MemAvailable_bytes ", "node_filesystem_avail_bytes{", "node_uname_info{", "node_boot_time_seconds ", "node_load1 ", "node_reboot_required ", "node_network_receive_bytes_total{"} {
		if !strings.Contains(body, "\n"+want) {
			t.Errorf("no %s on the page", want)
		}
	}
	if w.Code != 200 {
		t.Errorf("status %d", w.Code)
	}
	for _, line := range strings.Split(body, "\n") {
		if strings.HasPrefix(line, "node_scrape_collector_success") {
			t.Log(line)
		}
	}
	if _, err := New(Options{}); err != nil {
		t.Errorf("a second handler: %v", err)
	}
	if _, err := New(Options{ProcFS: "/host/proc"}); err == nil || !strings.Contains(err.Error(), "differ") {
		t.Errorf("other paths: err = %v", err)
	}
	if _, err := New(Options{Collectors: []string{"nonsense"}}); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("err = %v", err)
	}
}
