package bucket

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"muster.dev/muster/internal/testkit/objectstore"
)

// Who is not let in is told which fields of the config to look at, in a line, whichever store it is.
// The answers are those of the servers of Amazon, Google and Microsoft to a key that is not known.
func TestWhoIsRefusedIsToldWhere(t *testing.T) {
	status, body, header := 0, "", http.Header{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for k, v := range header {
			w.Header()[k] = v
		}
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	defer server.Close()
	addr := strings.TrimPrefix(server.URL, "http://")
	t.Setenv("STORAGE_EMULATOR_HOST", addr) // Google's library reads it
	azure := fmt.Appendf(nil, "{storage_account: acme, container: c, max_retries: 1, storage_create_container: false, storage_connection_string: %q}", "DefaultEndpointsProtocol=http;AccountName=acme;AccountKey=a2V5;BlobEndpoint="+server.URL+"/acme;")
	for name, tc := range map[string]struct {
		typ          string
		config       []byte
		status       int
		body, header string
		said, want   string
	}{
		"S3": {"s3", fmt.Appendf(nil, "{bucket: acme, endpoint: %q, region: us-east-1, insecure: true, access_key: a, secret_key: b, max_retries: 1}", addr), 403,
			`<Error><Code>InvalidAccessKeyId</Code><Message>The AWS Access Key Id you provided does not exist in our records.</Message></Error>`, "application/xml", "Access Key Id", "access_key and secret_key"},
		"Google, an account that has no rights": {"gcs", fmt.Appendf(nil, "{bucket: acme, service_account: %q}", objectstore.ServiceAccount(t, 200)), 403,
			`{"error":{"code":403,"message":"muster@acme.example does not have storage.objects.get access to the Google Cloud Storage object.","errors":[{"reason":"forbidden"}]}}`, "application/json", "does not have storage", "service_account"},
		"Google, a key that was taken away": {"gcs", fmt.Appendf(nil, "{bucket: acme, service_account: %q}", objectstore.ServiceAccount(t, 400)), 200, "", "", "Invalid JWT Signature", "service_account"},
		"Azure":                             {"azure", azure, 403, `<?xml version="1.0" encoding="utf-8"?><Error><Code>AuthenticationFailed</Code><Message>Server failed to authenticate the request.</Message></Error>`, "application/xml", "AuthenticationFailed", "storage_account_key, or storage_connection_string"},
	} {
		t.Run(name, func(t *testing.T) {
			status, body, header = tc.status, tc.body, http.Header{"Content-Type": {tc.header}, "X-Ms-Error-Code": {"AuthenticationFailed"}}
			errs := map[string]error{}
			b, err := Open(t.Context(), Options{Type: tc.typ, Config: tc.config})
			if err != nil { // of Azure, where a container is made that is not there
				errs["open"] = err
			} else {
				errs["put"], errs["delete"], errs["list"] = b.Put(t.Context(), "1.root.json", strings.NewReader("{}")), b.Delete(t.Context(), "1.root.json"), b.Each(t.Context(), "", func(string) {})
				_, errs["get"] = b.Metadata(t.Context(), "1.root.json", 100)
			}
			for what, err := range errs {
				if err == nil || !strings.Contains(err.Error(), tc.said) || !strings.Contains(err.Error(), "config: ") || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s: %v; want a line that says %q and names %s of the config", what, err, tc.said, tc.want)
				}
				t.Log(err)
			}
		})
	}
}
